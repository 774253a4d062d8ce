from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Internal
from tritonpy.frontends.classification import OutputClasses
from tritonpy.frontends.outputs import Classified, Placed, of_model, treat
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tensor import Tensor

OUTPUTS = [
    Tensor.from_numpy("A", np.array([1, 3, 2], np.int32)),
    Tensor.from_numpy("B", np.array([1, 2], np.uint8)),
    Tensor.from_numpy("C", np.array([b"abc", b""], object)),
]


@pytest.fixture
def regions(shared_file: Any) -> SharedMemoryRegions:
    regions = SharedMemoryRegions(is_allowed=True)
    regions.register_system("r", shared_file(64).key, 0, 64)
    return regions


def test_each_output_is_treated_as_wanted_and_the_others_stay_as_they_are(
    regions: SharedMemoryRegions,
) -> None:
    target = regions.slice("r", 32, 8)

    outputs, placed = treat(OUTPUTS, {"A": Classified(1, OutputClasses()), "C": Placed(target)})

    assert [tensor.name for tensor in outputs] == ["A", "B", "C"]
    assert outputs[0].numpy().tolist() == [b"3:1"]
    assert outputs[1:] == OUTPUTS[1:]
    assert placed == {"C"}
    assert bytes(target.host_view()[:11]) == b"\x03\0\0\0abc\0\0\0\0"


@pytest.mark.parametrize(("max_batch_size", "has_batch"), [(0, False), (4, True)])
def test_classes_are_those_of_the_model_that_answers(
    regions: SharedMemoryRegions, max_batch_size: int, has_batch: bool
) -> None:
    model = SimpleNamespace(max_batch_size=max_batch_size, labels={"A": (b"cat", b"dog")})
    placed = Placed(regions.slice("r", 4))

    treatments = of_model({"A": Classified(1), "B": Classified(2), "C": placed}, model)  # type: ignore[arg-type]

    assert treatments == {
        "A": Classified(1, OutputClasses((b"cat", b"dog"), has_batch)),
        "B": Classified(2, OutputClasses((), has_batch)),
        "C": placed,
    }


def test_an_output_that_the_model_did_not_make_is_not_missed(regions: SharedMemoryRegions) -> None:
    outputs, placed = treat(
        OUTPUTS[1:2], {"A": Classified(1, OutputClasses()), "Z": Placed(regions.slice("r", 1))}
    )

    assert outputs == OUTPUTS[1:2]
    assert placed == frozenset()


def test_an_output_that_does_not_fit_is_refused(regions: SharedMemoryRegions) -> None:
    with pytest.raises(Internal, match=r"for output 'A' \(11 bytes\) should be at least 12 bytes to hold"):
        treat(OUTPUTS, {"A": Placed(regions.slice("r", 11))})
