"""The composition root: builds everything from the options, starts it, and takes it down in order."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from functools import partial

from prometheus_client import CollectorRegistry

from tritonpy.admission import Admission
from tritonpy.cache.finder import make_cache
from tritonpy.devices.device import DeviceFinder
from tritonpy.devices.gpus import Gpus
from tritonpy.devices.host_policy import HostPolicies
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.flow import flow_limits
from tritonpy.frontends.frontends import Frontends
from tritonpy.frontends.local import EXTENSIONS, LocalDataplane
from tritonpy.frontends.server_questions import ServerQuestions
from tritonpy.frontends.services import FrontendServices
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents
from tritonpy.lifecycle.load import ModelLoad
from tritonpy.lifecycle.loading.loader import LoaderSettings, ModelLoader
from tritonpy.lifecycle.manager import ModelManager
from tritonpy.lifecycle.metrics_feed import MetricsFeed
from tritonpy.lifecycle.model_control import ModelControl, WorkerModelControl
from tritonpy.lifecycle.polling import RepositoryPolling, RepositoryWatcher
from tritonpy.lifecycle.record import ModelState
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.lifecycle.replacement import Replacement
from tritonpy.lifecycle.shutdown import drain_and_unload, end_sequences
from tritonpy.lifecycle.start_table import backends_table, models_table, options_table
from tritonpy.metrics.custom import CustomMetrics
from tritonpy.metrics.exposition import MetricsPage
from tritonpy.metrics.loop_watch import LoopWatch
from tritonpy.metrics.machine import machine_metrics
from tritonpy.metrics.models import ModelMetrics
from tritonpy.metrics.server import CacheMetrics, PoolMetrics, ServerMetrics, WorkerMemory
from tritonpy.metrics.settings import read_settings
from tritonpy.model.bridge import LoopBridge
from tritonpy.options import ServerOptions
from tritonpy.own_thread import on_own_thread
from tritonpy.plugin_manager import KINDS, PluginManager, installed_plugins
from tritonpy.repository.repositories import Look, Repositories
from tritonpy.repository.stores.opener import open_store, secret_variables
from tritonpy.scheduler.rate_limiter import make_rate_limiter
from tritonpy.scheduler.strategy_finder import StrategyFinder
from tritonpy.secret_variables import keep_secret
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.store import StoreOptions
from tritonpy.temporary import OF_THIS_PROCESS
from tritonpy.tracing.configuration import make_tracing
from tritonpy.workers.calls import ServerAccess
from tritonpy.workers.worker_services import Services

_log = logging.getLogger("tritonpy.server")

CREATING = "error: creating server"
"""What the log says first when a server cannot be made, in Triton's words."""

_RELOAD_INTERVAL_S = 1.0

Plugins = Mapping[str, Mapping[str, object]]
"""Plugin objects by kind and name, beside those that are installed."""


class ServerRuntime:
    """Everything that lives on the server's loop, from start to stop.

    Args:
        options: what the server was told.
        plugins: plugin objects to register beside the installed ones.
        discover: look for installed plugins.
        gpu_finder: finds GPUs; None asks NVIDIA's driver.

    Attributes:
        registry: the models that are loaded.
        admission: counts the bytes of requests that are held.
        dataplane: what frontends are answered with.
        page: the metrics.
        frontends: the ways in.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        plugins: Plugins | None = None,
        discover: bool = True,
        gpu_finder: DeviceFinder | None = None,
    ) -> None:
        self._options = options
        managers = _plugin_managers(options, plugins or {}, discover=discover)
        self._stores = managers["stores"]
        self._gpus = Gpus(
            gpu_finder,
            min_compute_capability=options.min_compute_capability,
            load_limits=options.model_load_gpu_limits,
        )
        self._host_policies = HostPolicies(options.host_policies)
        self.registry = ModelRegistry()
        metrics_registry = CollectorRegistry()
        self._server_metrics = ServerMetrics(metrics_registry)
        self._watch = LoopWatch(self._server_metrics.observe_loop_lag)
        custom_metrics = CustomMetrics(metrics_registry)
        self._services = Services()
        self._services.add("metrics", custom_metrics)
        self._cache = make_cache(options, managers["caches"], managers["loaders"])
        self._loader = self._make_loader(managers)
        self._repository = self._make_repository(managers)
        self._watcher: RepositoryWatcher | None = None
        control = ModelControl(self._repository, is_explicit=options.model_control_mode == "explicit")
        worker_control = WorkerModelControl(control, self._loader.gate)
        self._services.add("models", worker_control)
        self.dataplane = LocalDataplane(
            self.registry,
            control,
            server_id=options.server_id,
            strict_readiness=options.strict_readiness,
            allow_sent_code=options.allow_sent_code,
        )
        self.admission = Admission(options.max_inflight_byte_size)
        self.tracing = make_tracing(options.trace_config)
        self.page = self._make_page(metrics_registry, custom_metrics)
        self._services.add("server", ServerQuestions(self.dataplane, control, worker_control, self.page))
        services = FrontendServices(
            self.admission,
            SharedMemoryRegions(options.allow_client_shm, most=options.max_region_count),
            custom_metrics.series_of,
            self.tracing,
            self.page,
        )
        given = (plugins or {}).get("frontends", {})
        self.frontends = Frontends(managers["frontends"], options, self.dataplane, services, given)

    def _make_loader(self, managers: Mapping[str, PluginManager]) -> ModelLoader:
        """The loader, which brings models up and takes them down."""
        options, loop = self._options, asyncio.get_running_loop()
        return ModelLoader(
            managers["backends"],
            StrategyFinder(
                managers["batching"],
                managers["loaders"],
                is_strict=options.strategy_path_policy == "strict",
                backend_directory=options.backend_directory,
            ),
            LoaderSettings(
                options.auto_complete_config,
                options.backend_config,
                options.backend_directory,
                debugged_models=frozenset(options.debugged_models),
                load_thread_count=options.model_load_thread_count,
                load_retry_count=options.model_load_retry_count,
                gpus=self._gpus,
                host_policies=self._host_policies,
                cache=self._cache,
                metrics=read_settings(options.metrics_config),
                rate_limiter=make_rate_limiter(
                    options.rate_limit, options.rate_limit_resources, loop.call_soon
                ),
            ),
            LoopBridge(loop),
            self._server_metrics,
            ServerAccess(
                self.registry, self._services, flow_limits(options), frozenset(options.worker_environment)
            ),
            managers["op_libraries"],
            managers["loaders"],
        )

    def _make_repository(self, managers: Mapping[str, PluginManager]) -> ModelManager:
        """The manager, which finds models and keeps them loaded."""
        options = self._options
        stores = StoreOptions(os.environ, options.repository_timeout_s)
        replacement = Replacement(self.registry, self._loader.settings)
        return ModelManager(
            Repositories(
                options.model_repositories,
                namespacing=options.model_namespacing,
                open_store=partial(open_store, stores=managers["stores"], options=stores),
            ),
            self.registry,
            replacement,
            ModelLoad(
                self.registry,
                replacement,
                self._loader,
                RepositoryAgents(managers["repo_agents"], managers["loaders"], options.repo_agent_directory),
                auto_complete_config=options.auto_complete_config,
                config_name=options.model_config_name,
                max_config_byte_size=options.max_model_config_byte_size,
            ),
            load_thread_count=options.model_load_thread_count,
        )

    def _make_page(self, registry: CollectorRegistry, custom_metrics: CustomMetrics) -> MetricsPage:
        """All metrics of the server; the page has them in this order, which is Triton's."""
        feed = MetricsFeed(self.registry, self._gpus)
        models = ModelMetrics(registry, feed.models, self._loader.settings.metrics)
        PoolMetrics(registry)
        self._machine_metrics = machine_metrics(self._options, registry, self._gpus)
        before_scrape = [models.take, custom_metrics.take, WorkerMemory(registry, feed.workers).take]
        if self._cache is not None:
            before_scrape.append(CacheMetrics(registry, self._cache).take)
        return MetricsPage(registry, before_scrape)

    @property
    def begun(self) -> str:
        """The beginning of the log line when `start` fails, in Triton's words."""
        return self.frontends.begun or CREATING

    async def start(self) -> None:
        """Load the models, then let requests in.

        Raises:
            TritonError: a model failed to load and the options say that this is the end, a frontend has a
                setting that is wrong, or an address cannot be had.
        """
        await on_own_thread(self._open_stores, "model-repository")
        await self.frontends.initialize()
        self._watch.start()
        await asyncio.to_thread(OF_THIS_PROCESS.remove_abandoned)
        look = await self._start_polling()  # before anything is loaded: no change is missed
        await asyncio.to_thread(self._gpus.discover)
        self._host_policies.log_missing_cores()
        if self._machine_metrics is not None and "metrics" in self.frontends.by_name:
            await asyncio.to_thread(self._machine_metrics.start)
        if self._cache is not None:
            await self._cache.open()
        all_loaded = await self._load_models(look)
        _log.info("backends:", extra={"table": backends_table(self._loader.backends_in_use(), self._options)})
        _log.info("models:", extra={"table": models_table(self.registry.index())})
        options = self._options
        _log.info("options:", extra={"table": options_table(options, EXTENSIONS, self._gpus.ids)})
        if not all_loaded and options.exit_on_error:
            raise TritonError(f"failed to load all models{self._first_failure()}")
        await self.frontends.start()
        if self.registry.failure is None:
            self.dataplane.set_serving()

    def _open_stores(self) -> None:
        keep_secret(secret_variables(self._stores))
        self._repository.repositories.open()

    def _first_failure(self) -> str:
        unavailable = str(ModelState.UNAVAILABLE)
        failed = [row for row in self.registry.index() if row["state"] == unavailable and "reason" in row]
        if not failed:
            return ""
        row, more = failed[0], f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        version = f" version {row['version']}" if "version" in row else ""
        return f": '{row['name']}'{version}: {row['reason']}{more}"

    async def _load_models(self, look: Look | None) -> bool:
        mode, names = self._options.model_control_mode, self._options.load_models
        if names and mode != "explicit":
            raise InvalidArg("models to load at the start can be named in model control mode 'explicit' only")
        try:
            match mode:
                case "none" | "poll":
                    return await self._repository.load_all(look)
                case "explicit":
                    return await self._repository.load_named(names)
        except TritonError as error:
            if self._options.exit_on_error:
                raise
            await self._go_on_without_models(error)
            return False

    async def _go_on_without_models(self, error: TritonError) -> None:
        """Serve no models because a repository is not there; only a restart of the server mends that."""
        _log.error("%s: the server listens and serves no model, for --exit-on-error=false", error.described())
        self.registry.failure = error
        if self._watcher is not None:
            await asyncio.to_thread(self._watcher.stop)

    async def stop(self) -> None:
        """Stop accepting, drain, answer the rest UNAVAILABLE, finalise instances, models and backends."""
        await self._become_unready()
        self._repository.repositories.stop()
        if self._watcher is not None:
            await asyncio.to_thread(self._watcher.stop)
        left_s = await end_sequences(self._repository, self._options.exit_timeout_s)
        async with self.frontends.stopping(left_s):
            await self._repository.stop_loading()
            await drain_and_unload(self._repository, left_s)
            if self._cache is not None:
                await self._cache.close()
            await asyncio.to_thread(self._repository.repositories.close)
        if self._machine_metrics is not None:
            await asyncio.to_thread(self._machine_metrics.stop)
        await asyncio.to_thread(self.tracing.close)
        self._watch.stop()
        _log.info("Server stopped")

    async def _become_unready(self) -> None:
        """Say that the server is not ready, and go on serving until those who ask have heard."""
        delay_s = self._options.drain_delay_s if self.dataplane.is_serving else 0
        self.dataplane.set_stopping()
        if delay_s:
            _log.info(
                "Not ready any more; requests are accepted for %g s more (--drain-delay-secs).", delay_s
            )
            await asyncio.sleep(delay_s)

    async def _start_polling(self) -> Look | None:
        """Poll the repositories if the options say so; returns the first look."""
        options, repositories = self._options, self._repository.repositories
        is_polling = options.model_control_mode == "poll"
        interval_s = _RELOAD_INTERVAL_S if options.reload else options.repository_poll_s if is_polling else 0
        if not interval_s:
            return None
        loop = asyncio.get_running_loop()
        first = await asyncio.to_thread(repositories.look)
        polling = RepositoryPolling(
            self._repository,
            first,
            only_wanted=options.model_control_mode == "explicit",
            unloads=is_polling,
        )

        def on_look(look: Look) -> None:  # on the watcher's thread
            loop.call_soon_threadsafe(polling.follow, look)

        self._watcher = RepositoryWatcher(repositories.look, on_look, interval_s)
        self._watcher.start()
        return first


def _plugin_managers(options: ServerOptions, given: Plugins, *, discover: bool) -> dict[str, PluginManager]:
    """The plugins of each kind: those that are installed, unless they are disabled, and those given.

    Raises:
        InvalidArg: there is no such kind.
        Internal: a name is taken, or a hook does not fit.
    """
    installed = installed_plugins() if discover else None
    managers = {
        kind: PluginManager(
            kind,
            discover=discover,
            installed=installed,
            disabled=[name for disabled_kind, name in options.disabled_plugins if disabled_kind == kind],
        )
        for kind in KINDS
        if kind != "cli"
    }
    for kind, manager in managers.items():
        for info in manager.info():
            if info.state == "failed":  # before anything was imported: its name is offered twice
                _log.warning("plugin '%s' of kind '%s' cannot be used: %s", info.name, kind, info.reason)
    for kind, named in given.items():
        if kind not in managers:
            raise InvalidArg(f"plugins of kind '{kind}' are not known; expected {', '.join(managers)}")
        for name, plugin in named.items():
            managers[kind].register(name, plugin)
    return managers
