"""Batches that go well: what a model sees of its requests, and what comes out."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from tritonpy.ipc import frame

ECHO = """
    return [
        pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUT" + tensor.name()[2:], tensor.as_numpy()) for tensor in request.inputs()]
        )
        for request in requests
    ]
"""

SEE = """
    import json
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([json.dumps(VALUE)], object))])
        for request in requests
    ]
"""


def see(load_execute, expression, **request):
    """What `expression` is worth inside `execute`."""
    worker = load_execute(SEE.replace("VALUE", expression))
    [outputs] = worker.infer(worker.request(id=request.pop("id", ""), **request))
    return json.loads(outputs["OUTPUT0"][0])


DATATYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}


def test_every_datatype_comes_in_and_goes_out(load_execute):
    worker = load_execute(ECHO, outputs={f"OUT{name}": f"TYPE_{name}" for name in DATATYPES})
    arrays = {f"IN{name}": np.arange(6).reshape(2, 3).astype(kind) for name, kind in DATATYPES.items()}

    _, [response], error = worker.execute(worker.request(**arrays))

    assert error is None
    assert [output[1] for output in response[0]] == list(DATATYPES)
    answered = worker.arrays(response)
    for name, array in arrays.items():
        assert answered["OUT" + name[2:]].tolist() == array.tolist()


def test_strings_come_as_bytes_and_leave_as_they_are(load_execute):
    worker = load_execute(ECHO, outputs={"OUT": "TYPE_STRING"})
    array = np.array([["a", "ü"], ["", "x" * 300]], object)

    [outputs] = worker.infer(worker.request(IN=array))

    assert outputs["OUT"].tolist() == [[b"a", "ü".encode()], [b"", b"x" * 300]]


def test_bf16_is_raw_bits_inside_and_bf16_outside(load_execute):
    worker = load_execute(ECHO, outputs={"OUT": "TYPE_BF16"})
    bits = np.array([0x3F80, 0xC020], np.uint16)

    _, [response], _ = worker.execute(worker.request(IN=bits, datatypes={"IN": "BF16"}))

    [(_, datatype, shape, data)] = response[0]
    assert (datatype, shape, data) == ("BF16", (2,), bits.tobytes())


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1, 2)])
def test_shapes_survive(load_execute, shape):
    worker = load_execute(ECHO, outputs={"OUT": "TYPE_FP32"})

    [outputs] = worker.infer(worker.request(IN=np.ones(shape, np.float32)))

    assert outputs["OUT"].shape == shape


def test_a_tensor_nobody_looked_into_is_passed_on(load_execute):
    worker = load_execute(
        """
        for request in requests:
            request.inputs()[0]._name = "OUTPUT0"
        return [pb_utils.InferenceResponse(request.inputs()) for request in requests]
        """,
        outputs={"OUTPUT0": "TYPE_FP32"},
    )
    small, large = np.arange(4, dtype=np.float32), np.arange(40_000, dtype=np.float32)

    answers = worker.infer(worker.request(0, X=small), worker.request(1, X=large))

    assert [outputs["OUTPUT0"].tolist() for outputs in answers] == [small.tolist(), large.tolist()]


@pytest.mark.parametrize("count", [4, 40_000])
def test_inputs_may_be_changed_in_place(load_execute, count):
    worker = load_execute(
        """
        array = pb_utils.get_input_tensor_by_name(requests[0], "X").as_numpy()
        array *= 2
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)])]
        """
    )

    [outputs] = worker.infer(worker.request(X=np.full(count, 4, np.float32)))

    assert outputs["OUTPUT0"].tolist() == [8] * count


@pytest.mark.parametrize("size", [6, 60_000])
def test_an_output_in_another_order_arrives_in_c_order(load_execute, size):
    worker = load_execute(
        f"""
        array = np.arange({size}, dtype=np.float32).reshape(2, -1)
        transposed, strided = array.T, array[:, ::2]
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("T", transposed), pb_utils.Tensor("S", strided)])
        ]
        """,
        outputs={"T": "TYPE_FP32", "S": "TYPE_FP32"},
    )
    array = np.arange(size, dtype=np.float32).reshape(2, -1)

    [outputs] = worker.infer(worker.request())

    assert (outputs["T"] == array.T).all()
    assert (outputs["S"] == array[:, ::2]).all()


def test_an_object_output_in_another_order_arrives_in_c_order(load_execute):
    worker = load_execute(
        """
        array = np.array([["a", "b"], ["c", "d"]], object).T
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)])]
        """
    )

    [outputs] = worker.infer(worker.request())

    assert outputs["OUTPUT0"].tolist() == [[b"a", b"c"], [b"b", b"d"]]


def test_requests_are_answered_in_their_order(load_execute):
    worker = load_execute(ECHO, outputs={"OUT": "TYPE_INT32"})
    requests = [worker.request(slot, IN=np.array([slot], np.int32)) for slot in (7, 3, 5)]

    answers = worker.infer(*requests)

    assert [outputs["OUT"].tolist() for outputs in answers] == [[7], [3], [5]]


def test_the_next_batch_may_wait_while_one_runs(load_execute):
    worker = load_execute(ECHO, outputs={"OUT": "TYPE_INT32"})
    numbers = [worker.start(worker.request(slot, IN=np.array([slot], np.int32))) for slot in range(20)]

    answered = [worker.expect(frame.EXECUTED) for _ in numbers]

    assert [batch for batch, *_ in answered] == numbers
    assert [worker.arrays(responses[0])["OUT"][0] for _, _, responses, _ in answered] == list(range(20))


def test_a_request_shows_what_the_client_sent(load_execute):
    seen = see(
        load_execute,
        "[request.request_id(), request.correlation_id(), request.flags(), request.timeout(), "
        "request.parameters(), sorted(request.requested_output_names())]",
        id="rid7",
        correlation_id="seq",
        flags=3,
        timeout_us=2_000_000,
        parameters={"b": True, "p": "v", "n": 3, "d": 1.5},
        outputs=("OUTPUT0", "OTHER"),
    )

    assert seen == ["rid7", "seq", 3, 2_000_000, '{"b":true,"p":"v","n":3,"d":1.5}', ["OTHER", "OUTPUT0"]]


def test_a_request_that_names_no_outputs_wants_all(load_execute):
    worker = load_execute(
        SEE.replace("VALUE", "sorted(request.requested_output_names())"),
        outputs={"OUTPUT0": "TYPE_STRING", "Z": "TYPE_FP32"},
    )

    [outputs] = worker.infer(worker.request())

    assert outputs["OUTPUT0"].tolist() == [b'["OUTPUT0", "Z"]']


def test_an_input_that_was_left_out_is_none(load_execute):
    assert see(load_execute, 'pb_utils.get_input_tensor_by_name(request, "NOPE")') is None


def test_a_request_is_not_cancelled_until_the_server_says_so(load_execute):
    worker = load_execute(SEE.replace("VALUE", "request.is_cancelled()"))

    def seen(slot):
        return json.loads(worker.infer(worker.request(slot))[0]["OUTPUT0"][0])

    assert seen(5) is False
    worker.cancel_flags[5] = 1
    assert seen(5) is True
    assert seen(4) is False
    worker.cancel_flags[5] = 0
    assert seen(5) is False


def test_a_cancellation_is_seen_while_the_model_computes(load_execute):
    worker = load_execute(
        """
        pb_utils.Logger.log_info("running")
        while not requests[0].is_cancelled():
            time.sleep(0.001)
        error = pb_utils.TritonError("stopped", pb_utils.TritonError.CANCELLED)
        return [pb_utils.InferenceResponse(error=error)]
        """
    )
    worker.start(worker.request(9))

    worker.cancel_flags[9] = 1

    _, _, [response], _ = worker.expect(frame.EXECUTED)
    assert response[2] == (7, "stopped")
    assert worker.logs == [(0, "running", "")]


def test_outputs_the_configuration_does_not_know_are_dropped(load_execute):
    worker = load_execute(
        """
        tensors = [pb_utils.Tensor(name, np.ones(1)) for name in ("NOPE", "OUTPUT0")]
        return [pb_utils.InferenceResponse(tensors)]
        """
    )

    [outputs] = worker.infer(worker.request())

    assert list(outputs) == ["OUTPUT0"]


def test_outputs_nobody_asked_for_are_dropped(load_execute):
    worker = load_execute(
        'return [pb_utils.InferenceResponse([pb_utils.Tensor(name, np.ones(1)) for name in "AB"])]',
        outputs={"A": "TYPE_FP64", "B": "TYPE_FP64"},
    )

    [outputs] = worker.infer(worker.request(outputs=("B",)))

    assert list(outputs) == ["B"]


def test_an_output_of_another_type_or_shape_is_delivered_as_it_is(load_execute):
    worker = load_execute(
        'return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.ones((2, 2), np.int64))])]'
    )

    [outputs] = worker.infer(worker.request())

    assert outputs["OUTPUT0"].dtype == np.int64
    assert outputs["OUTPUT0"].shape == (2, 2)


def test_parameters_of_a_response_travel(load_execute):
    worker = load_execute(
        'return [pb_utils.InferenceResponse([], parameters={"a": 1, "b": "s", "c": True, "d": 1.5})]'
    )

    _, [response], _ = worker.execute(worker.request())

    assert response == ([], {"a": 1, "b": "s", "c": True, "d": 1.5}, None)


@pytest.mark.parametrize(
    ("code", "number"),
    [("NOT_FOUND", 2), ("INVALID_ARG", 3), ("UNAVAILABLE", 4), ("ALREADY_EXISTS", 6), ("CANCELLED", 7)],
)
def test_an_error_response_keeps_code_and_text_and_leaves_the_others_alone(load_execute, code, number):
    worker = load_execute(
        f"""
        error = pb_utils.TritonError("bad", pb_utils.TritonError.{code})
        return [pb_utils.InferenceResponse(error=error), answer(5)]
        """
    )

    _, [bad, good], failure = worker.execute(worker.request(0), worker.request(1))

    assert failure is None
    assert bad == ([], None, (number, "bad"))
    assert worker.arrays(good)["OUTPUT0"].tolist() == [5]


def test_the_times_are_in_order_and_on_the_clock_all_processes_share(load_execute):
    worker = load_execute("time.sleep(0.02); return [answer()]")

    before = time.monotonic_ns()
    times, _, _ = worker.execute(worker.request())
    after = time.monotonic_ns()

    assert [before, *times, after] == sorted([before, *times, after])
    _, compute_start, compute_end, _ = times
    assert compute_end - compute_start >= 20_000_000


def test_log_lines_go_to_the_server(load_execute):
    worker = load_execute(
        """
        pb_utils.Logger.log_info("one")
        pb_utils.Logger.log("two", pb_utils.Logger.WARNING)
        pb_utils.Logger.log_error("three")
        pb_utils.Logger.log_verbose("four")
        return [answer()]
        """
    )

    worker.infer(worker.request())

    assert worker.logs == [(0, "one", ""), (1, "two", ""), (2, "three", ""), (3, "four", "")]


def test_text_that_no_client_could_read_is_spelled_out(load_execute):
    worker = load_execute(
        """
        pb_utils.Logger.log_info("\\udcff")
        error = pb_utils.TritonError("\\udcff")
        return [
            pb_utils.InferenceResponse(error=error),
            pb_utils.InferenceResponse(parameters={"a": "\\udcff"}),
        ]
        """
    )

    _, [error, parameters], _ = worker.execute(worker.request(0), worker.request(1))

    assert error[2] == (1, "\\udcff")
    assert parameters[1] == {"a": "\\udcff"}
    assert worker.logs == [(0, "\\udcff", "")]


def test_subclasses_of_tensors_and_responses_are_taken(load_execute):
    worker = load_execute(
        """
        class MyTensor(pb_utils.Tensor): pass
        class MyResponse(pb_utils.InferenceResponse): pass
        return [MyResponse([MyTensor("OUTPUT0", np.ones(1))])]
        """
    )

    assert worker.infer(worker.request())[0]["OUTPUT0"].tolist() == [1]


def test_what_a_model_prints_is_seen_at_once(load_execute):
    worker = load_execute('print("hello"); import os; os._exit(1)')

    worker.start(worker.request())

    with pytest.raises(AssertionError, match="the worker closed its channel"):
        worker.receive()
    assert worker.logs == [(0, "hello", "")]
