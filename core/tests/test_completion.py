"""What backends complete from a model's file, and what they refuse, whatever the framework."""

from __future__ import annotations

import logging
from typing import NamedTuple

import pytest
from tritonpy.errors import InvalidArg, Unsupported
from tritonpy.handles import Backend, JsonObject
from tritonpy.plugin import can_batch, check_datatype, check_dims, complete_config, default_max_batch_size


class Described(NamedTuple):
    """What a framework tells of a tensor."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    type_name: str = "float32"


X = Described("X", "FP32", (-1, 3, -1))
Y = Described("Y", "INT64", (-1,))
FIXED_X = Described("X", "BYTES", (1, 3))
SCALAR_Y = Described("Y", "FP32", ())
MAPS = Described("M", "", (), "seq(map)")

DYNAMIC = ([X], [Y])
FIXED = ([FIXED_X], [Described("Y", "FP32", (1,))])
SCALAR = ([X], [SCALAR_Y])


def complete(
    config: JsonObject, tensors: tuple[list[Described], list[Described]] = DYNAMIC, **options: int
) -> JsonObject:
    """Complete the configuration of model `net`."""
    return complete_config({"name": "net", **config}, *tensors, **{"batch_size": 4, **options})


def refusal(config: JsonObject, tensors: tuple[list[Described], list[Described]], **options: int) -> str:
    """The text with which it is refused."""
    with pytest.raises(InvalidArg) as refused:
        complete(config, tensors, **options)
    return refused.value.message


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ([X, Y], True),
        ([], True),
        ([X, FIXED_X], False),
        ([X, SCALAR_Y], False),
        ([Described("X", "FP32", (4, -1))], False),
    ],
)
def test_a_model_can_batch_when_every_first_dimension_may_have_any_size(
    tensors: list[Described], expected: bool
) -> None:
    assert can_batch(tensors) is expected


@pytest.mark.parametrize(
    ("given", "default", "size", "scheduler"),
    [
        ({}, 4, 4, "dynamic_batching"),
        ({}, 16, 16, "dynamic_batching"),
        ({}, 1, 1, None),
        ({}, 0, 0, None),
        ({"max_batch_size": 0}, 4, 4, "dynamic_batching"),
        ({"max_batch_size": 8}, 4, 8, "dynamic_batching"),
        ({"max_batch_size": 8}, 0, 8, "dynamic_batching"),
        ({"max_batch_size": 1}, 4, 1, None),
        ({"sequence_batching": {"x": 1}}, 4, 4, "sequence_batching"),
        ({"dynamic_batching": {"preserve_ordering": True}}, 4, 4, "dynamic_batching"),
    ],
)
def test_a_model_that_can_batch_does_unless_it_is_told_otherwise(
    given: JsonObject, default: int, size: int, scheduler: str | None
) -> None:
    completed = complete(given, batch_size=default)

    schedulers = {key: completed[key] for key in completed if key.endswith("_batching")}
    assert completed["max_batch_size"] == size
    assert schedulers == ({scheduler: given.get(scheduler, {})} if scheduler else {})


def test_what_is_filled_in_leaves_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tritonpy.backend"):
        complete({})
        complete({"max_batch_size": 2})

    assert [record.getMessage() for record in caplog.records] == [
        "model 'net' can form batches and its configuration does not say how large: "
        "max_batch_size is set to 4"
    ]


@pytest.mark.parametrize("tensors", [FIXED, SCALAR])
def test_a_model_that_cannot_batch_stays_without_batching(
    tensors: tuple[list[Described], list[Described]],
) -> None:
    completed = complete({}, tensors)

    assert completed.get("max_batch_size", 0) == 0
    assert "dynamic_batching" not in completed


def test_dims_are_completed_without_the_dimension_of_the_batch() -> None:
    assert complete({})["input"] == [{"name": "X", "data_type": "TYPE_FP32", "dims": [3, -1]}]
    assert complete({})["output"] == [
        {"name": "Y", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}
    ]


def test_dims_of_a_model_without_batching_are_those_of_its_file() -> None:
    assert complete({}, FIXED)["input"] == [{"name": "X", "data_type": "TYPE_STRING", "dims": [1, 3]}]
    assert complete({}, SCALAR)["output"] == [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}]
    assert complete({}, batch_size=0)["input"][0]["dims"] == [-1, 3, -1]


def test_the_side_that_is_configured_stays_and_the_other_is_filled_in() -> None:
    mine = [{"name": "Y", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}}]

    completed = complete({"max_batch_size": 2, "output": mine})

    assert completed["output"] == mine
    assert [tensor["name"] for tensor in completed["input"]] == ["X"]


def test_dims_that_spell_out_the_dimension_of_the_batch_mean_no_batching() -> None:
    completed = complete({"input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1, 3, 5]}]})

    assert completed["max_batch_size"] == 0
    assert "dynamic_batching" not in completed
    assert completed["output"] == [{"name": "Y", "data_type": "TYPE_INT64", "dims": [-1]}]


def test_dims_that_leave_the_dimension_of_the_batch_out_mean_batching() -> None:
    completed = complete({"input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [3, 5]}]})

    assert completed["max_batch_size"] == 4
    assert completed["output"][0]["dims"] == [1]


@pytest.mark.parametrize("tensors", [FIXED, SCALAR])
def test_batches_that_the_model_cannot_form_are_refused_in_tritons_words(
    tensors: tuple[list[Described], list[Described]],
) -> None:
    assert refusal({"max_batch_size": 1}, tensors) == (
        "autofill failed for model 'net': model does not support batching while non-zero max_batch_size is "
        "specified"
    )


def test_batches_larger_than_the_file_allows_are_refused_in_tritons_words() -> None:
    assert complete({"max_batch_size": 8}, largest=8)["max_batch_size"] == 8
    assert refusal({"max_batch_size": 9}, DYNAMIC, largest=8) == (
        "autofill failed for model 'net': configuration specified max-batch 9 but the model only supports "
        "max-batch 8"
    )


def test_first_dimensions_of_any_size_that_differ_are_no_batch() -> None:
    assert complete({}, has_batch=False) == {
        "name": "net",
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1, 3, -1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT64", "dims": [-1]}],
    }
    assert refusal({"max_batch_size": 2}, DYNAMIC, has_batch=False) == (
        "autofill failed for model 'net': model does not support batching while non-zero max_batch_size is "
        "specified"
    )


def test_what_has_no_datatype_is_left_out_with_a_warning_and_does_not_keep_from_batching(
    caplog: pytest.LogCaptureFixture,
) -> None:
    completed = complete({}, ([X], [Y, MAPS]))

    assert [tensor["name"] for tensor in completed["output"]] == ["Y"]
    assert completed["max_batch_size"] == 4
    assert "model 'net': 'M' is left out, there is no datatype for seq(map)" in caplog.text


def test_the_configuration_given_is_not_changed() -> None:
    given: JsonObject = {"name": "net", "max_batch_size": 0}

    complete_config(given, *DYNAMIC, batch_size=4)

    assert given == {"name": "net", "max_batch_size": 0}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 4),
        ({"default-max-batch-size": "0"}, 0),
        ({"default-max-batch-size": "64"}, 64),
        ({"default-max-batch-size": "2147483647"}, 2147483647),
    ],
)
def test_the_default_is_four_or_what_backend_config_says(settings: dict[str, str], expected: int) -> None:
    assert default_max_batch_size(Backend("net", settings)) == expected


@pytest.mark.parametrize("value", ["", "-1", "four", "4.0", "2147483648", "9" * 5000, "²"])
def test_a_default_that_is_no_number_is_refused_with_its_flag(value: str) -> None:
    with pytest.raises(InvalidArg) as refused:
        default_max_batch_size(Backend("onnxruntime", {"default-max-batch-size": value}))

    assert refused.value.message == (
        f"--backend-config=onnxruntime,default-max-batch-size: got '{value[:40]}', expected a whole number "
        f"from 0 to 2147483647"
    )


@pytest.mark.parametrize(
    ("shape", "dims", "max_batch_size"),
    [
        ((1, 3), (1, 3), 0),
        ((-1, 3), (-1, 3), 0),
        ((-1, 3), (7, 3), 0),
        ((-1, 3), (3,), 1),
        ((-1, -1), (-1,), 8),
        ((), (), 0),
    ],
)
def test_dims_that_fit_are_accepted(
    shape: tuple[int, ...], dims: tuple[int, ...], max_batch_size: int
) -> None:
    check_dims("net", Described("X", "FP32", shape), dims, max_batch_size)


@pytest.mark.parametrize(
    ("shape", "dims", "max_batch_size", "text"),
    [
        (
            (1, 3),
            (3,),
            4,
            "for the model to support batching the shape should have at least 1 dimension and the first "
            "dimension must be -1; but shape expected by the model is [1,3]",
        ),
        (
            (),
            (),
            1,
            "for the model to support batching the shape should have at least 1 dimension and the first "
            "dimension must be -1; but shape expected by the model is []",
        ),
        (
            (1, 3),
            (-1, 3),
            0,
            "the model expects 2 dimensions (shape [1,3]) but the model configuration specifies 2 dimensions "
            "(shape [-1,3])",
        ),
        (
            (1, 3),
            (2, 3),
            0,
            "the model expects 2 dimensions (shape [1,3]) but the model configuration specifies 2 dimensions "
            "(shape [2,3])",
        ),
        (
            (-1, 3),
            (1, 3),
            4,
            "the model expects 2 dimensions (shape [-1,3]) but the model configuration specifies 3 "
            "dimensions (an initial batch dimension because max_batch_size > 0 and then the configured dims, "
            "complete shape [-1,1,3])",
        ),
    ],
)
def test_dims_that_do_not_fit_are_refused_in_tritons_words(
    shape: tuple[int, ...], dims: tuple[int, ...], max_batch_size: int, text: str
) -> None:
    with pytest.raises(InvalidArg) as refused:
        check_dims("net", Described("X", "FP32", shape), dims, max_batch_size)

    assert refused.value.message == f"model 'net', tensor 'X': {text}"


def test_a_datatype_is_compared_with_that_of_the_file_in_tritons_words() -> None:
    check_datatype("net", "input", "TYPE_FP32", X)

    with pytest.raises(InvalidArg) as refused:
        check_datatype("net", "input", "TYPE_INT32", X)

    assert refused.value.message == (
        "unable to load model 'net', configuration expects datatype TYPE_INT32 for input 'X', model provides "
        "TYPE_FP32"
    )


def test_a_type_that_the_protocol_cannot_carry_is_refused_by_its_name() -> None:
    with pytest.raises(Unsupported) as refused:
        check_datatype("net", "output", "TYPE_FP32", MAPS)

    assert refused.value.message == ("model 'net': output 'M' is of seq(map), for which there is no datatype")
