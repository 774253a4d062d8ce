"""What all frontends of one server share beside the data plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tritonpy.frontends.admission import Admission
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tracing.tracing import Tracing


@dataclass(frozen=True, slots=True)
class FrontendServices:
    """One of each for HTTP and gRPC together; on the loop only.

    Attributes:
        admission: the bytes of requests that are held.
        regions: the shared memory that clients have registered.
        model_metrics: gives labels and values of a family of metrics that models keep, by its name.
        tracing: says which requests are traced.
    """

    admission: Admission
    regions: SharedMemoryRegions
    model_metrics: Callable[[str], list[tuple[tuple[tuple[str, str], ...], float]]] = lambda name: []
    tracing: Tracing = field(default_factory=Tracing)
