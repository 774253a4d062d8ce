"""TorchScript files: what goes in by which name, and what comes out."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035  # TorchScript reads these

import numpy as np
import pytest
from tritonpy.plugin import Tensor, TritonError
from tritonpy_sdk.testing import ask, request_of

torch = pytest.importorskip("torch")


class Difference(torch.nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first - second


class Pair(NamedTuple):
    total: torch.Tensor
    half: torch.Tensor


class Named(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x.sum(1, keepdim=True), x / 2)


class Keys(torch.nn.Module):
    def forward(self, d: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:  # noqa: UP006
        return {"sum": d["a"] + d["b"], "product": d["a"] * d["b"]}


class Lists(torch.nn.Module):
    def forward(self, xs: List[torch.Tensor]) -> List[torch.Tensor]:  # noqa: UP006
        return [x * 2 for x in xs]


class Sums(torch.nn.Module):
    def forward(self, x: torch.Tensor, xs: Optional[List[torch.Tensor]] = None):  # noqa: UP006, UP045
        return x if xs is None else x + torch.stack(xs).sum(0)


class Deep(torch.nn.Module):
    def forward(self, parts: Dict[str, List[torch.Tensor]]):  # noqa: UP006
        return parts["a"][0] * parts["b"][0] + parts["b"][1]


class MayAdd(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: Optional[torch.Tensor], factor: int = 2):  # noqa: UP045
        return x * factor if y is None else x * factor + y


class Numbers(torch.nn.Module):
    def forward(
        self,
        x: torch.Tensor,
        n: int,
        f: float,
        b: bool,
        z: Optional[torch.Tensor] = None,  # noqa: UP045
    ) -> Tuple[torch.Tensor, int, float, bool]:  # noqa: UP006
        y = x * n + f
        if z is not None:
            y = y + z
        return y, n, f, b


class Shouts(torch.nn.Module):
    def forward(self, text: List[str]) -> List[str]:  # noqa: UP006
        return [element.upper() for element in text]


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += x.sum()
        return self.count


class InPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


class Looks(torch.nn.Module):
    def forward(self, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.take(table[:1], index)

    @torch.jit.export
    def double(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def tensors(inputs, outputs, datatype="TYPE_FP32", dims=(2,), **more):
    def each(names):
        return [{"name": name, "data_type": datatype, "dims": list(dims)} for name in names]

    return {"max_batch_size": 4, "input": each(inputs), "output": each(outputs)} | more


def unbatched(inputs, outputs, **more):
    return tensors(inputs, outputs, **more) | {"max_batch_size": 0}


ONE, TEN = np.ones((1, 2), "f4"), np.full((1, 2), 10, "f4")


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [(("first", "second"), 9), (("second", "first"), -9), (("IN__1", "IN__0"), -9), (("a", "b"), 9)],
)
def test_arguments_are_fed_by_name_by_index_or_in_order(load, scripted, inputs, expected):
    model = load(scripted(Difference()), tensors(inputs, ["OUT"]))

    assert ask(model, named=dict(zip(inputs, (TEN, ONE), strict=True))) == {"OUT": [[expected, expected]]}


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (("OUTPUT__1",), {"OUTPUT__1": [[0.5, 0.5]]}),
        (("half", "total"), {"half": [[0.5, 0.5]], "total": [[2]]}),
        (("RESULT[total]",), {"RESULT[total]": [[2]]}),
        (("RESULT[1]",), {"RESULT[1]": [[0.5, 0.5]]}),
        (("one", "two"), {"one": [[2]], "two": [[0.5, 0.5]]}),
        (("total", "other"), {"total": [[2]], "other": [[0.5, 0.5]]}),
    ],
)
def test_outputs_are_found_by_index_by_field_or_in_order(load, scripted, outputs, expected):
    model = load(scripted(Named()), tensors(["x"], outputs, dims=[-1]))

    assert ask(model, x=ONE) == expected


@pytest.mark.parametrize(
    ("module", "inputs", "outputs", "known"),
    [
        (Named, ["x"], ["half", "other"], "total, half"),
        (Keys, ["b", "a"], ["sum", "produkt"], "sum, product"),
    ],
)
def test_an_output_beside_those_that_are_found_by_name_gets_nothing_else(
    load, scripted, module, inputs, outputs, known
):
    model = load(scripted(module()), tensors(inputs, outputs, dims=[-1]))

    with pytest.raises(TritonError) as failed:
        ask(model, named=dict.fromkeys(inputs, ONE))

    assert failed.value.message == (
        f"output '{outputs[1]}' leads to nothing in the result of the model, which has {known}"
    )


def test_a_dictionary_goes_in_and_comes_out_by_its_keys(load, scripted):
    model = load(scripted(Keys()), tensors(["b", "a"], ["product", "sum"]))

    assert ask(model, a=ONE * 3, b=TEN) == {"product": [[30, 30]], "sum": [[13, 13]]}


def test_a_list_of_tensors_goes_in_and_comes_out_by_its_indices(load, scripted):
    model = load(scripted(Lists()), tensors(["xs[1]", "xs[0]"], ["OUTPUT__1"]))

    assert ask(model, named={"xs[0]": ONE, "xs[1]": TEN}) == {"OUTPUT__1": [[20, 20]]}


def test_lists_inside_of_a_dictionary_are_fed_by_their_places(load, scripted):
    model = load(scripted(Deep()), tensors(["parts[a][0]", "parts[b][1]", "parts[b][0]"], ["OUTPUT__0"]))
    named = {"parts[a][0]": ONE, "parts[b][0]": ONE, "parts[b][1]": TEN}

    assert ask(model, named=named) == {"OUTPUT__0": [[11, 11]]}


def test_an_optional_list_may_only_lack_its_last_values(load, scripted):
    config = tensors(["x", "xs[0]", "xs[1]"], ["OUTPUT__0"])
    for entry in config["input"][1:]:
        entry["optional"] = True
    model = load(scripted(Sums()), config)

    assert ask(model, x=ONE) == {"OUTPUT__0": [[1, 1]]}
    assert ask(model, x=ONE, named={"xs[0]": TEN}) == {"OUTPUT__0": [[11, 11]]}
    with pytest.raises(
        TritonError, match="values 1 of a list; optional ones may be left out at its end only"
    ):
        ask(model, x=ONE, named={"xs[1]": TEN})


def test_an_optional_argument_without_a_default_is_none_where_nothing_comes(load, scripted):
    config = tensors(["x", "y"], ["OUTPUT__0"])
    config["input"][1]["optional"] = True
    model = load(scripted(MayAdd()), config)

    assert ask(model, x=ONE) == {"OUTPUT__0": [[2, 2]]}
    assert ask(model, x=ONE, y=TEN) == {"OUTPUT__0": [[12, 12]]}


class Mirrors(torch.nn.Module):
    def forward(self, x):
        return torch.arange(3.0).index_select(0, 3 - x)


def test_a_model_that_fails_with_its_sample_is_served_all_the_same(load, scripted, caplog):
    model = load(scripted(Mirrors(), torch.tensor([1, 2])), unbatched(["x"], ["OUTPUT__0"]) | INDICES)

    assert "the sample in its file fails, so that net_0 is not warmed up" in caplog.text
    assert "index out of range" in caplog.text
    assert ask(model, x=np.array([1, 3])) == {"OUTPUT__0": [2, 0]}


INDICES = {"input": [{"name": "x", "data_type": "TYPE_INT64", "dims": [2]}]}


def numbers(**more):
    def one(name, datatype):
        return {"name": name, "data_type": datatype, "dims": [1]}

    return {
        "max_batch_size": 0,
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": [2]},
            one("n", "TYPE_INT64"),
            one("f", "TYPE_FP32"),
            one("b", "TYPE_BOOL"),
            {"name": "z", "data_type": "TYPE_FP32", "dims": [2], "optional": True},
        ],
        "output": [
            {"name": "Y__0", "data_type": "TYPE_FP32", "dims": [2]},
            one("N__1", "TYPE_INT64"),
            one("F__2", "TYPE_FP32"),
            one("B__3", "TYPE_BOOL"),
        ],
    } | more


def test_numbers_are_tensors_of_one_element_and_what_has_a_default_may_be_left_out(load, scripted):
    model = load(scripted(Numbers()), numbers())
    x = np.ones(2, "f4")

    alone = ask(model, x=x, n=np.array([3]), f=np.array([0.5], "f4"), b=np.array([True]))
    whole = ask(model, x=x, n=np.array([3]), f=np.array([0.5], "f4"), b=np.array([False]), z=x)

    assert alone == {"Y__0": [3.5, 3.5], "N__1": [3], "F__2": [0.5], "B__3": [True]}
    assert whole == {"Y__0": [4.5, 4.5], "N__1": [3], "F__2": [0.5], "B__3": [False]}


def test_requests_of_a_batch_that_ask_for_different_numbers_are_run_alone(load, scripted):
    config = numbers(max_batch_size=4)
    config["output"] = config["output"][:1]
    model = load(scripted(Numbers()), config)

    def request(n):
        return request_of(x=ONE, n=np.array([[n]]), f=np.zeros((1, 1), "f4"), b=np.array([[True]]))

    answers = model.execute([request(2), request(5), request(2)])

    assert [answer.only.outputs[0].numpy()[0, 0] for answer in answers] == [2, 5, 2]


def test_strings_are_one_list(load, scripted):
    model = load(scripted(Shouts()), unbatched(["text"], ["LOUD"], datatype="TYPE_STRING", dims=[-1]))

    assert ask(model, text=np.array([b"one", b"zwei"], object)) == {"LOUD": [b"ONE", b"ZWEI"]}


def test_a_batch_of_strings_is_one_string_for_each_row(load, scripted):
    model = load(scripted(Shouts()), tensors(["text"], ["LOUD"], datatype="TYPE_STRING", dims=[1]))

    answers = model.execute([request_of(text=np.array([[word]], object)) for word in (b"one", b"two")])

    assert [answer.only.outputs[0].numpy().tolist() for answer in answers] == [[[b"ONE"]], [[b"TWO"]]]


def test_more_strings_than_rows_are_refused_in_triton_s_words(load, scripted):
    model = load(scripted(Shouts()), tensors(["text"], ["LOUD"], datatype="TYPE_STRING", dims=[2]))

    with pytest.raises(TritonError, match="Triton only supports 1 dimensional List of String as input for"):
        ask(model, text=np.array([[b"a", b"b"]], object))


@pytest.mark.parametrize(
    "datatype",
    [
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "FP16",
        "FP32",
        "FP64",
        "BOOL",
    ],
)
def test_every_datatype_goes_in_and_comes_out(load, scripted, datatype):
    model = load(
        scripted(torch.nn.Identity()), tensors(["input"], ["OUT"], datatype=f"TYPE_{datatype}", dims=[3])
    )
    values = [[1, 0, 1]]

    out = ask(
        model, input=np.array(values).astype(Tensor.from_numpy.__globals__["DATATYPES"][datatype].numpy)
    )

    assert out == {"OUT": values}


def test_bfloat16_goes_in_and_comes_out_as_bits(load, scripted):
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model = load(
        scripted(Double(), torch.ones(1, 2, dtype=torch.bfloat16)), tensors(["x"], ["Y"], "TYPE_BF16")
    )

    one, two = 0x3F80, 0x4000
    x = Tensor.from_numpy("x", np.array([[one, two]], np.uint16), "BF16")
    assert ask(model, x=x) == {"Y": [[two, 0x4080]]}


def test_a_batch_is_one_call_and_everyone_gets_their_own(load, scripted):
    model = load(scripted(Difference()), tensors(["first", "second"], ["OUT"]))
    state, sizes = model.instances[0].state, []
    call = state._call

    def counted(first, second):
        sizes.append(first.shape[0])
        return call(first, second)

    state._call = counted
    answers = model.execute(
        [
            request_of(rows, first=np.full((rows, 2), rows, "f4"), second=np.ones((rows, 2), "f4"))
            for rows in (1, 2)
        ]
    )

    assert sizes == [3]
    assert [answer.only.outputs[0].numpy().tolist() for answer in answers] == [[[0, 0]], [[1, 1], [1, 1]]]


class Kept(torch.nn.Module):
    """A state in a tensor that is no buffer, and in a container."""

    def __init__(self):
        super().__init__()
        self.last = torch.zeros(1)
        self.sums: List[torch.Tensor] = [torch.zeros(1)]  # noqa: UP006

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sums[0].add_(x)

    @torch.jit.export
    def add(self, x: torch.Tensor) -> torch.Tensor:
        return self.last.add_(x)


@pytest.mark.parametrize(("module", "method"), [(Counter, "forward"), (Kept, "forward"), (Kept, "add")])
def test_an_output_in_the_memory_of_the_model_is_copied(load, scripted, module, method):
    config = unbatched(
        ["x"], ["COUNT"], dims=[1], parameters={"MODULE_METHOD_NAME": {"string_value": method}}
    )
    model = load(scripted(module()), config)

    first, second = (
        model.execute([request_of(x=np.array([value], "f4"))])[0].only.outputs[0].numpy() for value in (1, 2)
    )

    assert (first.tolist(), second.tolist()) == ([1], [3])


def test_an_input_that_the_model_writes_to_is_copied(load, scripted):
    model = load(scripted(InPlace()), tensors(["x"], ["Y"]))
    x = ONE.copy()
    x.flags.writeable = False

    assert ask(model, x=x) == {"Y": [[2, 2]]}
    assert x.tolist() == [[1, 1]]


def test_outputs_and_inputs_are_not_copied(load, scripted):
    model = load(scripted(torch.nn.Identity()), tensors(["input"], ["OUT"]))
    x = ONE.copy()

    (answer,) = model.execute([request_of(input=x)])

    assert np.shares_memory(answer.only.outputs[0].numpy(), x)


def test_a_request_that_only_the_model_can_refuse_fails_alone(load, scripted):
    config = tensors(["table"], ["OUT"], dims=[2])
    config["input"].append({"name": "index", "data_type": "TYPE_INT64", "dims": [2]})
    model = load(scripted(Looks()), config)

    answers = model.execute([request_of(table=TEN, index=np.array([[0, index]])) for index in (1, 99, 0)])

    assert [answer.only.error is None for answer in answers] == [True, False, True]
    assert answers[1].only.error.message.startswith("PyTorch execute failure: ")


class Raises(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            raise ValueError("too large")
        return x


def test_an_error_of_torchscript_begins_as_triton_s(load, scripted):
    with pytest.raises(TritonError) as failed:
        ask(load(scripted(Raises()), tensors(["x"], ["Y"])), x=ONE)

    assert failed.value.message.startswith(
        "PyTorch execute failure: The following operation failed in the TorchScript interpreter."
    )


def test_another_method_than_forward_can_be_called(load, scripted):
    config = tensors(["x"], ["Y"], parameters={"MODULE_METHOD_NAME": {"string_value": "double"}})
    assert ask(load(scripted(Looks()), config), x=TEN) == {"Y": [[20, 20]]}

    config["parameters"]["MODULE_METHOD_NAME"]["string_value"] = "triple"
    with pytest.raises(TritonError, match=r"no method 'triple', expected one of: double, forward"):
        load(scripted(Looks()), config, name="other")


@pytest.mark.parametrize(
    ("module", "config", "message"),
    [
        (
            Named,
            tensors(["x"], ["OUT__2"], dims=[-1]),
            "The output OUT__2 in the model configuration refers to an output index which doesn't "
            "exist. This "
            "model has 2 outputs",
        ),
        (
            Named,
            tensors(["x"], ["OUT__1"], dims=[2]) | {"output": [
                {"name": "OUT__1", "data_type": "TYPE_INT32", "dims": [2]}
            ]},
            "configuration expects datatype TYPE_INT32 for output 'OUT__1', model provides TYPE_FP32",
        ),
    ],
)  # fmt: skip
def test_outputs_that_are_not_as_configured_are_told_in_triton_s_words(
    load, scripted, module, config, message
):
    with pytest.raises(TritonError) as failed:
        ask(load(scripted(module()), config), x=ONE)

    assert failed.value.message == message


class Total(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


def test_a_scalar_is_one_element_without_batches_and_refused_with_them(load, scripted):
    config = unbatched(["x"], ["SUM"], dims=[2])
    config["output"][0]["dims"] = [1]
    assert ask(load(scripted(Total()), config), x=np.ones(2, "f4")) == {"SUM": [2]}

    with pytest.raises(TritonError, match=r"output 'SUM' is a scalar which is not supported\."):
        ask(load(scripted(Total()), tensors(["x"], ["SUM"]), name="batched"), x=ONE)


class Normal(torch.nn.Module):
    """Counts its batches in training, and writes to what it has made itself."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.norm(x))


@pytest.mark.parametrize(
    ("module", "told", "count"),
    [
        (Normal(), None, 1),
        (Counter(), None, 2),
        (Kept(), None, 2),
        (Counter(), "true", 1),
        (Normal(), "false", 2),
    ],
)
def test_instances_share_a_module_unless_it_has_a_state(load, scripted, module, told, count):
    config = tensors(["x"], ["OUT"], instance_group=[{"count": 2, "kind": "KIND_CPU"}])
    if told is not None:
        config["parameters"] = {"ENABLE_WEIGHT_SHARING": {"string_value": told}}

    model = load(scripted(module), config)

    assert len({id(instance.state._call) for instance in model.instances}) == count


def test_a_model_that_is_loaded_later_changes_nobody_s_threads(load, scripted):
    config = tensors(["input"], ["Y"])
    models = [
        load(
            scripted(torch.nn.Identity()),
            config | {"parameters": {"INTRA_OP_THREAD_COUNT": {"string_value": str(count)}}},
            name=f"net{count}",
        )
        for count in (2, 3, 1)
    ]

    assert [model._threads[0].submit(torch.get_num_threads).result() for model in models] == [2, 3, 1]


def test_threads_and_modes_are_those_of_the_model_only(load, scripted):
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    config = tensors(["x"], ["Y"])

    def modes():
        seen.append(
            (
                torch.get_num_threads(),
                torch.is_inference_mode_enabled(),
                torch.is_grad_enabled(),
                torch._C._get_graph_executor_optimize(),
            )
        )

    given = {
        "INTRA_OP_THREAD_COUNT": "3",
        "INFERENCE_MODE": "false",
        "DISABLE_OPTIMIZED_EXECUTION": "true",
    }
    parameters = {key: {"string_value": value} for key, value in given.items()}
    before = torch.is_inference_mode_enabled(), torch._C._get_graph_executor_optimize()
    for name, more in (("plain", {}), ("odd", {"parameters": parameters})):
        model = load(scripted(Spy()), config | more, name=name)
        model._threads[0].submit(modes).result()

    assert seen[0][1:] == (True, False, True)
    assert seen[1] == (3, False, False, False)
    assert (torch.is_inference_mode_enabled(), torch._C._get_graph_executor_optimize()) == before


def test_switches_of_the_executor_are_thrown(load, scripted):
    before = torch._C._jit_texpr_fuser_enabled()
    given = {"ENABLE_TENSOR_FUSER": str(not before).lower()}
    config = tensors(["input"], ["Y"])
    try:
        load(
            scripted(torch.nn.Identity()),
            config | {"parameters": {key: {"string_value": value} for key, value in given.items()}},
        )
        assert torch._C._jit_texpr_fuser_enabled() is not before
    finally:
        torch._C._jit_set_texpr_fuser_enabled(before)


@pytest.mark.parametrize(
    ("config", "size", "x", "outputs"),
    [
        (None, 0, [1, 2], {"OUTPUT__0": [1, 1], "OUTPUT__1": [1, 2]}),
        ({"max_batch_size": 8}, 8, [2], {"OUTPUT__0": [1], "OUTPUT__1": [2]}),
    ],
)
def test_a_trace_is_completed_by_its_sample(load, scripted, config, size, x, outputs):
    model = load(scripted(Named(), torch.ones(1, 2)), config)

    assert model.config["max_batch_size"] == size
    assert ("dynamic_batching" in model.config) is (size > 0)
    assert [(entry["name"], entry["data_type"], entry["dims"]) for entry in model.config["input"]] == [
        ("x", "TYPE_FP32", x)
    ]
    assert {entry["name"]: entry["dims"] for entry in model.config["output"]} == outputs
    assert ask(model, x=ONE) == {"OUTPUT__0": [[2]], "OUTPUT__1": [[0.5, 0.5]]}


def test_a_trace_says_no_more_than_its_configuration(load, scripted):
    model = load(scripted(Named(), torch.ones(1, 2)), tensors(["x"], ["half__1"], dims=[3]))

    assert ask(model, x=np.ones((1, 3), "f4")) == {"half__1": [[0.5, 0.5, 0.5]]}


def test_a_trace_with_a_state_is_not_run_to_see_its_outputs(load, scripted):
    with pytest.raises(TritonError, match="must contain at least one input"):
        load(scripted(Counter(), torch.ones(1)))


def test_without_a_configuration_it_is_said_what_would_tell(load, scripted, caplog):
    with pytest.raises(TritonError, match="must contain at least one input"):
        load(scripted(torch.nn.Linear(2, 2)))

    assert "an exported program says it" in caplog.text
