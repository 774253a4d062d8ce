"""Settings of loading, and the tools that every load works with."""

from __future__ import annotations

from dataclasses import dataclass, field

from tritonpy.cache.response_cache import ResponseCache
from tritonpy.devices.gpus import NO_GPUS, Gpus
from tritonpy.devices.host_policy import HostPolicies
from tritonpy.handles import JsonObject, Model
from tritonpy.latencies import Latencies
from tritonpy.lifecycle.loading.gate import LoadGate
from tritonpy.lifecycle.loading.op_plugins import OpPlugins
from tritonpy.lifecycle.loading.progress import INTERVAL_S
from tritonpy.metrics.server import ServerMetrics
from tritonpy.metrics.settings import MetricsSettings
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.placement import Slot, place_instances
from tritonpy.scheduler.rate_limiter import RateLimiter
from tritonpy.scheduler.strategy_finder import StrategyFinder
from tritonpy.workers.calls import ServerAccess


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """The few options that loading needs.

    Attributes:
        auto_complete_config: let backends fill in what a configuration leaves out.
        backend_config: `(backend, key, value)` each; the backend is "" for all of them.
        backend_directory: where backends lie that are files.
        worker_start_timeout_s: how long a worker's program may take to start.
        worker_finalize_timeout_s: how long it may take to finalize before it is killed.
        debugged_models: names of models that run on threads of the server, where a debugger reaches them.
        load_thread_count: how many versions are loaded at once.
        load_retry_count: how often a version whose load failed is tried again.
        progress_interval_s: how often a load that takes long is mentioned in the log; 0 for never.
        gpus: where models can be placed beside the CPU.
        host_policies: which processors instances keep to.
        cache: keeps the responses of models that want it.
        rate_limiter: has the resources that instances share; None lets them execute whenever they are free.
        metrics: which latencies of models are kept.
    """

    auto_complete_config: bool = True
    backend_config: tuple[tuple[str, str, str], ...] = ()
    backend_directory: str = "/opt/tritonserver/backends"
    worker_start_timeout_s: float = 30.0
    worker_finalize_timeout_s: float = 10.0
    debugged_models: frozenset[str] = frozenset()
    load_thread_count: int = 4
    load_retry_count: int = 0
    progress_interval_s: float = INTERVAL_S
    gpus: Gpus = NO_GPUS
    host_policies: HostPolicies = field(default_factory=HostPolicies)
    cache: ResponseCache | None = None
    rate_limiter: RateLimiter | None = None
    metrics: MetricsSettings = field(default_factory=MetricsSettings)

    def latencies(self, config: JsonObject) -> Latencies | None:
        """The latencies kept of a model with this configuration; None for none.

        Raises:
            InvalidArg: see `MetricsSettings.latencies`.
        """
        wants_cache = config.get("response_cache", {}).get("enable", False)
        return self.metrics.latencies(config, is_cached=wants_cache)

    def for_backend(self, *names: str) -> dict[str, str]:
        """The settings of one backend; its own win over those of all backends.

        A backend of several names is one that another runs: the last name's settings win.
        """
        return {
            key: value
            for name in ("", *names)
            for backend, key, value in self.backend_config
            if backend == name
        }


@dataclass(frozen=True, slots=True)
class LoadTools:
    """The tools that every load works with.

    Attributes:
        settings: of all loads.
        gate: limits the loads at once, as the settings say.
        strategies: finds batching strategies.
        bridge: the way back from instance threads.
        server_metrics: counts restarts, unanswered requests and slow strategies.
        access: what models in workers can reach.
        op_plugins: bring libraries of custom operators.
    """

    settings: LoaderSettings
    gate: LoadGate
    strategies: StrategyFinder
    bridge: LoopBridge
    server_metrics: ServerMetrics
    access: ServerAccess
    op_plugins: OpPlugins

    def slots(self, handle: Model) -> list[Slot]:
        """The slots for the instances of a model, by its configuration."""
        slots = place_instances(handle.config, self.settings.gpus.capabilities())
        # A breakpoint in a model is to stop one instance only.
        return slots[:1] if handle.name in self.settings.debugged_models else slots
