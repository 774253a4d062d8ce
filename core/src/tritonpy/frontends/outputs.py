"""What becomes of outputs with which a client wants something else than their bytes.

Most requests want nothing of the kind, and cost one look at an empty mapping.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tritonpy.frontends.classification import OutputClasses, top_classes
from tritonpy.frontends.dataplane import Dataplane
from tritonpy.shared_memory.region import RegionSlice
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tensor import Tensor


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
        classes: what the elements stand for.
    """

    count: int
    classes: OutputClasses


Treatments: TypeAlias = Mapping[str, Placed | Classified]
"""By output; those it does not name travel as they are."""

UNTREATED: Treatments = {}


class References:
    """What a request may name beside its own bytes: regions of shared memory, and classes of outputs.

    Args:
        dataplane: knows the classes.
        regions: those that clients have registered.
        most_json_bytes: the largest tensor that may be made of JSON.
    """

    def __init__(
        self, dataplane: Dataplane, regions: SharedMemoryRegions, most_json_bytes: int = sys.maxsize
    ) -> None:
        self._dataplane = dataplane
        self.regions = regions
        self.most_json_bytes = most_json_bytes

    def placed(self, region: str, byte_size: int, offset: int) -> Placed:
        """Put an output into a region.

        Raises:
            TritonError: there is no such region, or it is not that large.
        """
        return Placed(self.regions.slice(region, byte_size, offset))

    def classified(self, model_name: str, model_version: str, output: str, count: int) -> Classified:
        """Keep the largest elements of an output.

        Raises:
            TritonError: there is no such model.
        """
        return Classified(count, self._dataplane.output_classes(model_name, model_version, output))


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
