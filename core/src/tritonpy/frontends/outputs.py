"""What becomes of outputs with which a client wants something else than their bytes.

Most requests want nothing of the kind, and cost one look at an empty mapping.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tritonpy.dataplane import ServedModel
from tritonpy.frontends.classification import OutputClasses, top_classes
from tritonpy.shared_memory.region import RegionSlice
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tensor import Tensor

_UNKNOWN = OutputClasses()


@dataclass(frozen=True, slots=True)
class Placed:
    """The output's bytes go into a region of shared memory, and not into the response.

    Attributes:
        target: where.
    """

    target: RegionSlice


@dataclass(frozen=True, slots=True)
class Classified:
    """Only the largest elements travel; see `classification`.

    Attributes:
        count: how many, at least 1.
        classes: what the elements stand for; `of_model` fills it in.
    """

    count: int
    classes: OutputClasses = _UNKNOWN


Treatments: TypeAlias = Mapping[str, Placed | Classified]
"""By output; those it does not name travel as they are."""

UNTREATED: Treatments = {}


class References:
    """The regions of shared memory that a request may name, and how much its JSON may become.

    Args:
        regions: those that clients have registered.
        most_json_bytes: the largest tensor that may be made of JSON.
    """

    def __init__(self, regions: SharedMemoryRegions, most_json_bytes: int = sys.maxsize) -> None:
        self.regions = regions
        self.most_json_bytes = most_json_bytes

    def placed(self, region: str, byte_size: int, offset: int) -> Placed:
        """Put an output into a region.

        Raises:
            TritonError: there is no such region, or it is not that large.
        """
        return Placed(self.regions.slice(region, byte_size, offset))


def of_model(treatments: Treatments, model: ServedModel) -> Treatments:
    """The same treatments, with what the elements of a model's outputs stand for."""
    has_batch = model.max_batch_size > 0
    return {
        output: Classified(treatment.count, OutputClasses(model.labels.get(output, ()), has_batch))
        if isinstance(treatment, Classified)
        else treatment
        for output, treatment in treatments.items()
    }


def treat(outputs: Sequence[Tensor], treatments: Treatments) -> tuple[list[Tensor], frozenset[str]]:
    """Do with outputs what the client wants.

    Args:
        outputs: of one response.
        treatments: not empty.

    Returns:
        The outputs as the response shows them, and the names of those whose bytes it leaves out because they
        are in a region now.

    Raises:
        TritonError: an output cannot be classified, or does not fit into its region.
    """
    treated: list[Tensor] = []
    placed: list[str] = []
    for tensor in outputs:
        treatment = treatments.get(tensor.name)
        if isinstance(treatment, Classified):
            tensor = top_classes(tensor, treatment.count, treatment.classes)
        elif treatment is not None:
            treatment.target.write(tensor.name, tensor.wire())
            placed.append(tensor.name)
        treated.append(tensor)
    return treated, frozenset(placed)
