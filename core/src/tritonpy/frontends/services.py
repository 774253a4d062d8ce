"""The parts of one server that all its frontends share, beside the data plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from tritonpy.admission import Admission
from tritonpy.dataplane import Frontend
from tritonpy.errors import InvalidArg
from tritonpy.metrics.exposition import MetricsPage
from tritonpy.options import ServerOptions
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tracing.tracing import Tracing


@dataclass(frozen=True, slots=True)
class FrontendServices:
    """One of each for all frontends together; on the loop only.

    Attributes:
        admission: the bytes of requests that are held.
        regions: the shared memory that clients have registered.
        model_metrics: gives labels and values of a family of metrics that models keep, by its name.
        tracing: says which requests are traced.
        page: the metrics of the server.
    """

    admission: Admission
    regions: SharedMemoryRegions
    model_metrics: Callable[[str], list[tuple[tuple[tuple[str, str], ...], float]]] = lambda name: []
    tracing: Tracing = field(default_factory=Tracing)
    page: MetricsPage = field(default_factory=lambda: MetricsPage(CollectorRegistry()))


@dataclass(slots=True, kw_only=True)
class BuiltInFrontend(Frontend):
    """A frontend of the server's own: it has flags, and knows more of the server than plugins are shown.

    Attributes:
        options: of the server, with the values of its flags.
        services: what it shares with the others.
    """

    options: ServerOptions
    services: FrontendServices

    def refuse_settings(self) -> None:
        """Refuse what `--frontend-config` says beside the flags; `corectl serve` takes it for these.

        Raises:
            InvalidArg: there is something.
        """
        if self.settings:
            raise InvalidArg(
                f"frontend '{self.name}' has no setting '{next(iter(self.settings))}': the options of the "
                f"server say what it does, such as --{self.name}-port"
            )
