"""What an ensemble may consist of, and how tensors get and lose their batch dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tritonpy.config.validate_ensemble import StepModel, check_steps
from tritonpy.errors import InvalidArg
from tritonpy.scheduler.ensemble.plan import Fit
from tritonpy.tensor import Tensor

from core.tests.scheduler.ensemble.conftest import Ensemble, FakeModel

Steps = list[tuple[FakeModel, dict[str, str], dict[str, str]]]


def one(model: FakeModel, **more: str) -> Steps:
    return [(model, {"X": "IN", **more}, {"Y": "OUT"})]


def two_sources(join: FakeModel, *, both: bool) -> Steps:
    return [
        (FakeModel("s", decoupled=True), {"X": "IN"}, {"Y": "T"}),
        (FakeModel("t", decoupled=both), {"X": "IN"}, {"Y": "U"}),
        (join, {"A": "T", "B": "U"}, {"Y": "OUT"}),
    ]


def mixed_inside() -> Steps:
    *sources, (join, inputs, _) = two_sources(FakeModel("j", ("A", "B")), both=True)
    return [*sources, (join, inputs, {"Y": "V"})]


INCONSISTENT = "in ensemble e, ensemble tensor X: inconsistent"
ORIGINS = "in ensemble e, step of model '{}' receives inputs originated from different decoupled models"
REFUSED: dict[str, tuple[Callable[[], Steps], str]] = {
    "input that is not there": (
        lambda: one(FakeModel("m"), Q="IN"),
        "in ensemble e, ensemble tensor IN is mapping to non-existing input Q in model m",
    ),
    "input without a tensor": (
        lambda: one(FakeModel("m", ("X", "B"))),
        "in ensemble e, input B in model m is not mapped to any ensemble tensors",
    ),
    "output that is not there": (
        lambda: one(FakeModel("m", outputs=("Z",))),
        "in ensemble e, ensemble tensor OUT is mapped from non-existing output Y in model m",
    ),
    "two decoupled sources": (
        lambda: two_sources(FakeModel("j", ("A", "B")), both=True),
        ORIGINS.format("e"),
    ),
    "a decoupled source and the request": (
        lambda: two_sources(FakeModel("j", ("A", "B")), both=False),
        ORIGINS.format("e"),
    ),
    "two decoupled sources of a tensor inside": (
        lambda: [*mixed_inside(), (FakeModel("k"), {"X": "V"}, {"Y": "OUT"})],
        ORIGINS.format("j"),
    ),
    "two decoupled sources of a tensor that was read by a step before": (
        lambda: [(FakeModel("k"), {"X": "V"}, {"Y": "OUT"}), *mixed_inside()],
        ORIGINS.format("k"),
    ),
    "an input that is written": (
        lambda: [*one(FakeModel("m")), (FakeModel("n"), {"X": "OUT"}, {"Y": "IN"})],
        "in ensemble e, ensemble tensor IN is an input of the ensemble and cannot be mapped from output Y in "
        "step 1, too",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_steps_that_do_not_fit_are_refused(case: str) -> None:
    steps, text = REFUSED[case]

    with pytest.raises(InvalidArg) as refusal:
        Ensemble(steps())

    assert refusal.value.message == text


def test_outputs_from_different_decoupled_models_are_refused() -> None:
    steps = two_sources(FakeModel("j", ("A", "B")), both=True)[:2]

    with pytest.raises(InvalidArg, match="different decoupled models"):
        Ensemble(steps, outputs=("T", "U"))


def test_two_outputs_of_one_decoupled_model_may_meet() -> None:
    source = FakeModel("s", outputs=("Y", "Z"), decoupled=True)
    join = FakeModel("j", ("A", "B"))

    Ensemble([(source, {"X": "IN"}, {"Y": "T", "Z": "U"}), (join, {"A": "T", "B": "U"}, {"Y": "OUT"})])


def test_an_optional_input_needs_no_tensor() -> None:
    Ensemble(one(FakeModel("m", ("X", "B"), optional=("B",))))


def config(max_batch_size: int, dims: list[int], data_type: str = "TYPE_INT32") -> dict[str, Any]:
    def tensor(name: str) -> dict[str, Any]:
        return {"name": name, "data_type": data_type, "dims": dims}

    return {
        "max_batch_size": max_batch_size,
        "input": [tensor("X")],
        "output": [tensor("Y")],
        "ensemble_scheduling": {
            "step": [{"model_name": "m", "input_map": {"X": "X"}, "output_map": {"Y": "Y"}}]
        },
    }


@pytest.mark.parametrize(
    ("ensemble", "model"),
    [
        ((4, [2]), (4, [2])),
        ((4, [2]), (8, [2])),
        ((4, [2]), (0, [2])),
        ((4, [2]), (0, [-1, 2])),
        ((4, [2]), (0, [1, 2])),
        ((0, [2]), (4, [2])),
        ((0, [-1, 2]), (4, [2])),
        ((0, [9, 2]), (4, [2])),
        ((4, [-1]), (4, [2])),
        ((0, [2]), (0, [-1])),
    ],
)
def test_shapes_fit_with_or_without_the_batch_dimension(
    ensemble: tuple[int, list[int]], model: tuple[int, list[int]]
) -> None:
    check_steps("e", config(*ensemble), [StepModel("m", config(*model))])


def test_tensors_of_the_ensemble_are_compared_by_the_shape_they_are_reshaped_to() -> None:
    ensemble = config(4, [1, 2])
    for field in ("input", "output"):
        ensemble[field][0]["reshape"] = {"shape": [2]}

    check_steps("e", ensemble, [StepModel("m", config(4, [2]))])
    with pytest.raises(InvalidArg, match=r"shape: \[-1,2\] is inferred from model e while \[-1,1,2\] is"):
        check_steps("e", ensemble, [StepModel("m", config(4, [1, 2]))])


@pytest.mark.parametrize(
    ("ensemble", "model", "text"),
    [
        (
            (4, [2]),
            (2, [2]),
            "ensemble e allows maximum batch size 4, but it contains model m which only allows maximum batch "
            "size to be 2",
        ),
        (
            (4, [3]),
            (4, [2]),
            f"{INCONSISTENT} shape: [-1,3] is inferred from model e while [-1,2] is inferred from model m",
        ),
        (
            (0, [3, 3]),
            (4, [2]),
            f"{INCONSISTENT} shape: [3,3] is inferred from model e while [-1,2] is inferred from model m",
        ),
        (
            (0, [1], "TYPE_FP32"),
            (0, [1]),
            f"{INCONSISTENT} data type: TYPE_FP32 is inferred from model e while TYPE_INT32 is inferred from "
            "model m",
        ),
    ],
)
def test_what_a_model_says_otherwise_of_a_tensor_is_told(
    ensemble: tuple[Any, ...], model: tuple[Any, ...], text: str
) -> None:
    with pytest.raises(InvalidArg) as refusal:
        check_steps("e", config(*ensemble), [StepModel("m", config(*model))])

    assert refusal.value.message == text


@pytest.mark.parametrize(
    ("dims", "batches", "shape", "fitted"),
    [
        ((2,), True, (2,), (1, 2)),
        ((2,), True, (3, 2), (3, 2)),
        ((-1,), True, (5,), (1, 5)),
        ((2,), False, (1, 2), (2,)),
        ((2,), False, (2, 2), (2, 2)),
        ((1, 2), False, (1, 2), (1, 2)),
        ((-1, 2), False, (1, 2), (1, 2)),
    ],
)
def test_a_batch_dimension_comes_and_goes_where_that_makes_the_shape_fit(
    dims: tuple[int, ...], batches: bool, shape: tuple[int, ...], fitted: tuple[int, ...]
) -> None:
    tensor = Tensor.from_numpy("T", np.arange(np.prod(shape)).reshape(shape))

    result = Fit(dims, batches).apply(tensor, "X")

    assert (result.name, result.shape) == ("X", fitted)
    assert bytes(result.wire()) == bytes(tensor.wire())
