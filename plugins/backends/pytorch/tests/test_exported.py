"""Exported programs: everything is completed from the file, and every size is checked before the call."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from tritonpy.plugin import Internal, InvalidArg, TritonError
from tritonpy_sdk.testing import ask, request_of

torch = pytest.importorskip("torch")
from torch.export import Dim  # noqa: E402


class Affine(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x)


class Nested(torch.nn.Module):
    def forward(self, x, *, mask, parts):
        return {"masked": x * mask, "parts": (parts["a"][0] + 1, x.sum(1)), "nothing": None, "three": 3}


class Two(torch.nn.Module):
    def forward(self, first, second):
        return torch.cat([first, second], 1)


class Adds(torch.nn.Module):
    def forward(self, x, n):
        return x + n


class Rows(torch.nn.Module):
    def forward(self, x, y):
        return x * 2, y + 1


class Doubles(torch.nn.Module):
    def forward(self, x):
        return torch.cat([x, x])


class Spectrum(torch.nn.Module):
    def forward(self, x):
        return {"spectrum": torch.complex(x, x), "size": x.sum(1, keepdim=True)}


class Reads(torch.nn.Module):
    def forward(self, index):
        return torch.arange(8).index_select(0, index.flatten()).reshape(index.shape)


class Keeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1))

    def forward(self, x):
        self.total.add_(x.sum())
        return x + self.total


def tensors_of(config, key):
    return {
        tensor["name"]: (tensor["data_type"], [int(dim) for dim in tensor["dims"]], "reshape" in tensor)
        for tensor in config[key]
    }


@pytest.fixture(scope="module")
def affine(exported):
    return exported(Affine(), (torch.ones(2, 4),), shapes=({0: Dim("batch", max=64)},))


@pytest.fixture(scope="module")
def nested(exported):
    batch = Dim("batch")
    return exported(
        Nested(),
        (torch.ones(2, 4),),
        {"mask": torch.ones(2, 4), "parts": {"a": [torch.ones(2, dtype=torch.int64)]}},
        shapes={"x": {0: batch}, "mask": {0: batch}, "parts": {"a": [{0: batch}]}},
    )


@pytest.fixture(scope="module")
def two(exported):
    batch, width, length = Dim("batch"), Dim("width", min=3, max=6), Dim("length")
    return exported(
        Two(),
        (torch.ones(2, 4, 5), torch.ones(2, 7, 5)),
        shapes=({0: batch, 1: width, 2: length}, {0: batch, 2: length}),
    )


def test_all_is_completed_from_the_file(load, affine):
    model = load(affine)

    assert model.config["max_batch_size"] == 4
    assert model.config["dynamic_batching"]["preferred_batch_size"] == [4]
    assert tensors_of(model.config, "input") == {"x": ("TYPE_FP32", [4], False)}
    assert tensors_of(model.config, "output") == {"OUTPUT__0": ("TYPE_FP32", [3], False)}
    assert np.shape(ask(model, 2, x=np.ones((2, 4), "f4"))["OUTPUT__0"]) == (2, 3)


def test_nested_values_have_names_that_lead_to_them(load, nested):
    model = load(nested)

    assert tensors_of(model.config, "input") == {
        "x": ("TYPE_FP32", [4], False),
        "mask": ("TYPE_FP32", [4], False),
        "parts[a][0]": ("TYPE_INT64", [1], True),
    }
    assert tensors_of(model.config, "output") == {
        "masked": ("TYPE_FP32", [4], False),
        "parts[0]": ("TYPE_INT64", [1], True),
        "parts[1]": ("TYPE_FP32", [1], True),
    }
    x = np.ones((1, 4), "f4")
    assert ask(model, named={"x": x, "mask": x * 2, "parts[a][0]": np.array([[5]])}) == {
        "masked": [[2, 2, 2, 2]],
        "parts[0]": [[6]],
        "parts[1]": [[4]],
    }


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (["ARGS[0]", "KWARGS[mask]", "KWARGS[parts][a][0]"], ["RESULT[masked]"]),
        (["x", "mask", "parts_a_0"], ["OUTPUT__0"]),
        (["IN__0", "IN__1", "IN__2"], ["OUT__0"]),
        (["one", "two", "three"], ["all"]),
    ],
    ids=["AOTInductor's", "the graph's", "indices", "order"],
)
def test_values_may_be_called_otherwise(load, nested, inputs, outputs):
    first, second, third = inputs

    def of(name, datatype="TYPE_FP32", **more):
        return {"name": name, "data_type": datatype, "dims": [4], **more}

    config = {
        "max_batch_size": 4,
        "input": [of(first), of(second), of(third, "TYPE_INT64", dims=[1], reshape={"shape": []})],
        "output": [of(name) for name in outputs],
    }
    model = load(nested, config)
    x = np.ones((1, 4), "f4")

    assert ask(model, named={first: x, second: x * 3, third: np.array([[0]])}) == {outputs[0]: [[3, 3, 3, 3]]}


def test_the_bound_of_the_batch_is_the_model_s(load, exported):
    small = exported(Affine(), (torch.ones(2, 4),), shapes=({0: Dim("batch", max=3)},))

    assert load(small).config["max_batch_size"] == 3
    with pytest.raises(TritonError, match="specified max-batch 9 but the model only supports max-batch 3"):
        load(small, {"max_batch_size": 9}, name="incomplete")
    whole = {
        "max_batch_size": 9,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [3]}],
    }
    with pytest.raises(TritonError, match="specified max-batch 9 but the model only supports max-batch 3"):
        load(small, whole, name="whole")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((1, 4, 5), (1, 7, 5), None),
        ((1, 4, 1), (1, 7, 1), None),
        (
            (1, 2, 5),
            (1, 7, 5),
            "input 'first' of model 'net' has size 2 in dimension 1, the model takes 3 to 6",
        ),
        (
            (1, 7, 5),
            (1, 7, 5),
            "input 'first' of model 'net' has size 7 in dimension 1, the model takes 3 to 6",
        ),
        (
            (1, 4, 5),
            (1, 7, 6),
            "input 'second' of model 'net' has size 6 in dimension 2, expected 5 as in input 'first'",
        ),
    ],
)
def test_sizes_that_no_configuration_can_say_are_checked_before_the_call(load, two, first, second, message):
    model = load(two)
    assert tensors_of(model.config, "input")["first"] == ("TYPE_FP32", [-1, -1], False)
    inputs = {"first": np.ones(first, "f4"), "second": np.ones(second, "f4")}

    if message is None:
        assert np.shape(ask(model, **inputs)["OUTPUT__0"]) == (1, first[1] + second[1], first[2])
        return
    with pytest.raises(TritonError) as refused:
        ask(model, **inputs)
    assert refused.value.message == message


@pytest.fixture(scope="module")
def following(exported):
    """Sizes that are computed from another one, by which each of them can be checked."""
    batch, size = Dim("batch"), Dim("size", min=3, max=10)
    return exported(
        Rows(),
        (torch.ones(2, 16), torch.ones(2, 5)),
        shapes=({0: batch, 1: 4 * size}, {0: batch, 1: size + 1}),
    )


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (12, 4, None),
        (13, 4, "input 'x' of model 'net' has size 13 in dimension 1, the model takes sizes of the form 4*n"),
        (8, 3, "input 'x' of model 'net' has size 8 in dimension 1, the model takes 12 to 40"),
        (
            12,
            5,
            "input 'y' of model 'net' has size 5 in dimension 1, expected 4 which follows from input 'x'",
        ),
    ],
)
def test_sizes_that_follow_from_others_are_checked_before_the_call(load, following, x, y, message):
    model = load(following)
    inputs = {"x": np.ones((1, x), "f4"), "y": np.ones((1, y), "f4")}

    if message is None:
        assert np.shape(ask(model, **inputs)["OUTPUT__0"]) == (1, x)
        return
    with pytest.raises(TritonError) as refused:
        ask(model, **inputs)
    assert refused.value.message == message


def test_an_input_without_a_datatype_is_refused_and_an_output_left_out(load, exported, caplog):
    with pytest.raises(TritonError) as refused:
        load(exported(Doubles(), (torch.ones(2, 3, dtype=torch.complex64),)))
    model = load(exported(Spectrum(), (torch.ones(2, 3),), shapes=({0: Dim("batch")},)), name="spectrum")

    assert refused.value.message == (
        "model 'net': input 'x' is of torch.complex64, for which there is no datatype"
    )
    assert ask(model, x=np.ones((1, 3), "f4")) == {"size": [[3]]}
    assert "'spectrum' is left out" in caplog.text


def test_a_ragged_input_has_one_dimension_in_the_model(load, affine):
    tensors = {
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1], "allow_ragged_batch": True}],
        "output": [{"name": "OUTPUT__0", "data_type": "TYPE_FP32", "dims": [3]}],
    }

    with pytest.raises(TritonError, match=r"for ragged input 'x', model provides \[-1,4\]"):
        load(affine, {"max_batch_size": 4} | tensors)


@pytest.mark.parametrize(
    ("module", "args", "shapes"),
    [
        (Rows(), (torch.ones(2, 3), torch.ones(5, 3)), ({0: Dim("one")}, {0: Dim("other")})),
        (Doubles(), (torch.ones(2, 3),), ({0: Dim("batch")},)),
    ],
    ids=["two sizes", "twice the size"],
)
def test_first_dimensions_that_differ_are_no_batch(load, exported, module, args, shapes):
    file = exported(module, args, shapes=shapes)

    model = load(file)

    assert model.config["max_batch_size"] == 0
    assert [int(tensor["dims"][0]) for tensor in model.config["input"]] == [-1] * len(args)
    with pytest.raises(TritonError, match="model does not support batching while non-zero max_batch_size"):
        load(file, {"max_batch_size": 2}, name="batched")


@pytest.mark.parametrize(
    ("config", "module", "runs"),
    [
        ({}, Affine(), True),
        ({"parameters": {"WARM_UP_WITH_SAMPLE": {"string_value": "false"}}}, Affine(), False),
        ({"model_warmup": [{"name": "own", "batch_size": 1}]}, Affine(), False),
        ({}, Keeps(), False),  # the sample would stay in its state
    ],
    ids=["by itself", "switched off", "one of its own", "with a state"],
)
def test_instances_run_the_sample_in_the_file_first(load, exported, caplog, config, module, runs):
    file = exported(module, (torch.ones(2, 4),), shapes=({0: Dim("batch")},))

    with caplog.at_level(logging.DEBUG, "tritonpy.backend.pytorch"):
        model = load(file, config)

    assert ("net_0 has run the sample in the file of model 'net'" in caplog.text) is runs
    assert "fails" not in caplog.text
    assert len(ask(model, x=np.ones((1, 4), "f4"))["OUTPUT__0"]) == 1


def test_the_sample_may_be_nested(load, nested, caplog):
    with caplog.at_level(logging.DEBUG, "tritonpy.backend.pytorch"):
        load(nested)

    assert "has run the sample" in caplog.text


def test_what_became_a_constant_is_no_input(load, exported):
    model = load(exported(Adds(), (torch.ones(2, 4), 3), shapes=({0: Dim("batch")}, None)))

    assert list(tensors_of(model.config, "input")) == ["x"]
    assert ask(model, x=np.ones((1, 4), "f4")) == {"OUTPUT__0": [[4, 4, 4, 4]]}


def test_a_program_has_one_method_and_is_not_compiled_anew(load, affine, caplog):
    model = load(affine, {"parameters": {"TORCH_COMPILE_OPTIONAL_PARAMETERS": {"string_value": "{}"}}})
    assert "'TORCH_COMPILE_OPTIONAL_PARAMETERS' has no effect on a file of kind PT2 archive" in caplog.text
    model.close()

    with pytest.raises(
        InvalidArg, match=r"'MODULE_METHOD_NAME' of model 'other' is 'encode', and a PT2 archive"
    ):
        load(affine, {"parameters": {"MODULE_METHOD_NAME": {"string_value": "encode"}}}, name="other")


def test_a_file_that_pytorch_cannot_read_is_told(load, affine):
    broken = affine.replace(b"graph_module", b"craft_module")

    with pytest.raises(Internal, match="failed to load model 'net': "):
        load(broken)


def test_a_request_that_only_the_model_can_refuse_fails_alone(load, exported):
    model = load(exported(Reads(), (torch.ones(2, 3, dtype=torch.int64),), shapes=({0: Dim("batch")},)))

    answers = model.execute([request_of(index=np.array([[0, 1, index]])) for index in (1, 99, 2)])

    assert [answer.only.error is None for answer in answers] == [True, False, True]
    assert answers[1].only.error.message.startswith("PyTorch execute failure: ")


def test_instances_share_a_program_unless_it_has_a_state(load, exported, affine):
    groups = {"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}
    shared = load(affine, groups)
    own = load(exported(Keeps(), (torch.ones(2, 4),)), groups, name="own")

    assert [
        len({id(instance.state._call.__self__) for instance in model.instances}) for model in (shared, own)
    ] == [1, 2]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            {"name": "x", "data_type": "TYPE_INT32", "dims": [4]},
            "datatype TYPE_INT32 for input 'x', model provides",
        ),
        ({"name": "x", "data_type": "TYPE_FP32", "dims": [5]}, r"complete shape \[-1,5\]"),
        ({"name": "x", "data_type": "TYPE_FP32", "dims": [4, 1]}, "the model expects 2 dimensions"),
    ],
)
def test_a_configuration_that_does_not_fit_the_file_is_refused(load, affine, tensor, message):
    config = {
        "max_batch_size": 4,
        "input": [tensor],
        "output": [{"name": "OUTPUT__0", "data_type": "TYPE_FP32", "dims": [3]}],
    }

    with pytest.raises(TritonError, match=message):
        load(affine, config)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("OUTPUT__3", "output 'OUTPUT__3' of model 'net' is None in every result of the model"),
        (
            "OUTPUT__9",
            "The output OUTPUT__9 in the model configuration refers to an output index which doesn't exist",
        ),
        ("parts[7]", r"unexpected inference output 'parts\[7\]', allowed outputs are: masked, parts\[0\]"),
    ],
)
def test_an_output_that_the_program_has_not_is_refused_when_it_is_loaded(load, nested, output, message):
    names = ["masked", output] if output.startswith("parts") else [output]
    config = {
        "max_batch_size": 4,
        "output": [{"name": name, "data_type": "TYPE_FP32", "dims": [4]} for name in names],
    }

    with pytest.raises(TritonError, match=message):
        load(nested, config)
