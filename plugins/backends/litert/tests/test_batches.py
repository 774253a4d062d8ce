"""Batches: sizes that change, strings, errors of single requests, variables of instances."""

from __future__ import annotations

import numpy as np
import pytest
from tritonpy.plugin import InvalidArg, Tensor, TritonError
from tritonpy_backend_litert.calls import call_of, check_shape
from tritonpy_backend_litert.signature import read_signature
from tritonpy_sdk.testing import ask, request_of


def answered(answers):
    """Outputs of each request by name; raises the first error."""
    for answer in answers:
        if answer.only.error is not None:
            raise answer.only.error
    return [{output.name: output.numpy().tolist() for output in answer.only.outputs} for answer in answers]


def test_sizes_of_batches_come_and_go(load):
    model = load("free", {"max_batch_size": 64})
    for shape in ((1, 3), (5, 3), (1, 3), (0, 3), (7, 2), (64, 1)):
        x = np.arange(np.prod(shape), dtype="f4").reshape(shape)

        (got,) = answered(model.execute([request_of(len(x), X=x)]))

        assert got == {"Y": (-x).tolist()}


def test_requests_are_one_call(load, monkeypatch):
    model = load("variable")
    call = model.instances[0].state._call
    sizes = []
    run = type(call).run

    def counted(self, feeds, outputs):
        sizes.append(len(feeds["X"]))
        return run(self, feeds, outputs)

    monkeypatch.setattr(type(call), "run", counted)
    got = answered(model.execute([request_of(rows, X=np.full((rows, 3), rows, "f4")) for rows in (1, 2, 1)]))

    assert sizes == [4]
    assert got == [{"Y": [[-rows] * 3] * rows} for rows in (1, 2, 1)]


def test_bf16_goes_in_and_out_as_bits(load):
    pytest.importorskip("ml_dtypes", reason="LiteRT has BF16 with ml_dtypes only")
    x, y = (
        {"name": name, "data_type": "TYPE_BF16", "dims": dims} for name, dims in (("X", [-1, 2]), ("Y", [-1]))
    )
    model = load("bfloat16", {"input": [x], "output": [y]})
    bits = np.array([[0x3F80, 0xC020], [0x7F80, 0x0001]], "u2")  # 1, -2.5, infinity, the smallest of all

    (answer,) = model.execute([request_of(X=Tensor.from_numpy("X", bits, "BF16"))])

    (output,) = answer.only.outputs
    assert (output.datatype, output.numpy().tolist()) == ("BF16", bits.ravel().tolist())


def test_strings_are_any_bytes(load, litert):
    model = load("strings")
    rows = [[b"same", b""], [b"a\0b\xff", b"zz\0"]]
    requests = [
        request_of(TEXT=np.array([row], object), I=np.array([index]), rows=1)
        for index, row in enumerate(rows)
    ]

    assert answered(model.execute(requests)) == [
        {"SAME": [row], "EQUAL": [[text == b"same" for text in row]], "NEXT": [[index + 1]]}
        for index, row in enumerate(rows)
    ]


def test_the_other_byte_order_is_turned(load):
    tensor = Tensor.from_numpy("X", np.zeros((1, 3), "f4"))
    tensor._array = np.array([[1, 2, 3]], ">f4")

    assert ask(load("variable"), X=tensor) == {"Y": [[-1, -2, -3]]}


def test_value_that_the_model_refuses_fails_its_own_request(load):
    model = load("lookup")
    answers = model.execute([request_of(I=np.array([index], "i4")) for index in (0, 7, 2)])

    errors = [answer.only.error for answer in answers]
    assert [error is None for error in errors] == [True, False, True]
    assert "gather index out of bounds" in str(errors[1])
    assert answered([answers[0], answers[2]]) == [{"ROW": [[0, 1]]}, {"ROW": [[4, 5]]}]


def test_variables_belong_to_an_instance(load):
    config = {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}
    model = load("counter", config)

    totals = [ask(model, instance=index, X=np.ones(1, "f4"))["TOTAL"] for index in (0, 0, 1, 0)]

    assert totals == [[1], [2], [1], [3]]


def test_shape_that_the_file_does_not_allow_never_reaches_litert(litert, content):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content("variable"))
    signature = read_signature(interpreter, "", "net")
    call = call_of(interpreter, signature)
    for shape in ((2, 4), (3,), (1, 3, 1)):
        with pytest.raises(InvalidArg, match=r"input 'X' has shape \[[0-9,]+\], the model takes \[-1,3\]"):
            call.run({"X": np.zeros(shape, "f4")}, ["Y"])

    assert call.run({"X": np.ones((2, 3), "f4")}, ["Y"])[0].tolist() == [[-1, -1, -1]] * 2
    check_shape(signature.inputs["X"], (0, 3))


def test_type_that_the_file_does_not_allow_is_an_error_and_not_a_cast(litert, content):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content("variable"))
    call = call_of(interpreter, read_signature(interpreter, "", "net"))

    with pytest.raises(ValueError, match="Got value of type FLOAT64 but expected type FLOAT32"):
        call.run({"X": np.zeros((2, 3))}, ["Y"])


def test_scalar_is_one_dimension_for_clients(load):
    model = load("scalar")

    assert ask(model, X=np.array([2], "f4")) == {"Y": [-2]}


def test_loading_and_unloading_lets_go_of_the_content(load):
    model = load("variable")
    ask(model, X=np.ones((1, 3), "f4"))
    model.close()

    assert model.handle.state is None
    with pytest.raises((IndexError, TritonError)):
        ask(model, X=np.ones((1, 3), "f4"))
