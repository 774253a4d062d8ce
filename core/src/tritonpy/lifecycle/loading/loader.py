"""Bring one model version from its files to the point where it takes requests, and change it in place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tritonpy.errors import AlreadyExists, TritonError, Unavailable
from tritonpy.handles import BackendAttributes, JsonObject, Model
from tritonpy.lifecycle.loading.backend_files import BackendFiles, find_backend_files
from tritonpy.lifecycle.loading.gate import LoadGate
from tritonpy.lifecycle.loading.instance_update import (
    InstanceUpdate,
    copied_config,
    is_settled_alike,
    updated_config,
)
from tritonpy.lifecycle.loading.op_plugins import OpPlugins
from tritonpy.lifecycle.loading.settings import LoaderSettings as LoaderSettings
from tritonpy.lifecycle.loading.settings import LoadTools
from tritonpy.lifecycle.loading.version_load import Loading
from tritonpy.lifecycle.resolved_config import proposed_config
from tritonpy.metrics.server import ServerMetrics
from tritonpy.model.backend import BoundBackend
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.model import LoadedModel
from tritonpy.own_thread import on_own_thread
from tritonpy.plugin_manager import PluginManager
from tritonpy.protos import ModelConfig
from tritonpy.repository.layout import ModelDirectory
from tritonpy.scheduler.strategy_finder import StrategyFinder
from tritonpy.workers.calls import ServerAccess

_log = logging.getLogger("tritonpy.repository")

Loaded = TypeVar("Loaded")


class ModelLoader:
    """Loads model versions; on the loop, with everything that blocks on loading threads.

    Args:
        backends: installed backends.
        strategies: finds batching strategies.
        settings: see `LoaderSettings`.
        bridge: the way back from instance threads.
        server_metrics: counts restarts, unanswered requests and slow strategies.
        access: what models in workers can reach.
        op_libraries: plugins that bring libraries of custom operators.
        loaders: what opens shared objects.

    Attributes:
        settings: as given.
        gate: limits the loads at once, as the settings say.
    """

    def __init__(
        self,
        backends: PluginManager,
        strategies: StrategyFinder,
        settings: LoaderSettings,
        bridge: LoopBridge,
        server_metrics: ServerMetrics,
        access: ServerAccess,
        op_libraries: PluginManager,
        loaders: PluginManager,
    ) -> None:
        self._backends = backends
        self._loaders = loaders
        self.settings = settings
        self.gate = LoadGate(settings.load_thread_count)
        self._tools = LoadTools(
            settings, self.gate, strategies, bridge, server_metrics, access, OpPlugins(op_libraries)
        )
        self._bound: dict[tuple[str, BackendFiles | None], BoundBackend] = {}

    def bind_backend(self, config: ModelConfig, *model_directories: Path) -> BoundBackend:
        """The backend of a model, its hooks bound once for all its models.

        Args:
            config: its `runtime` is filled in for a backend that is a file of Python.
            model_directories: of the version and the model.
        """
        name = config.backend
        directory = Path(self.settings.backend_directory)
        disabled = [plugin.name for plugin in self._backends.info() if plugin.state == "disabled"]
        files = find_backend_files(config, directory, self._backends.names(), model_directories, disabled)
        if files is not None and files.library is None:  # as Triton shows them
            config.runtime = files.runtime
        bound = self._bound.get((name, files))
        if bound is None:
            runner = (files.runner if files is not None else "") or name
            bound = BoundBackend(
                name,
                self._backends,
                self.settings.for_backend(runner, name),
                runner=runner,
                directory=files.directory if files is not None else None,
                completes_config=self.settings.auto_complete_config,
                library=files.library if files is not None else None,
                loaders=self._loaders,
            )
            self._bound[name, files] = bound
        return bound

    def adopt_backend(self, name: str, plugin: object) -> None:
        """Know a backend by a name from now on; nothing happens where it is known.

        Raises:
            AlreadyExists: another one has the name.
            Internal: it is no backend, or the name is disabled.
        """
        if name not in self._backends.names():
            self._backends.register(name, plugin)
        elif self._backends.load(name) is not plugin:
            raise AlreadyExists(f"the name '{name}' is that of another backend, which is installed")

    def backends_in_use(self) -> list[tuple[str, str, Mapping[str, str]]]:
        """Name, file and settings of each backend that models have asked for so far, sorted by name."""
        in_use = [
            (
                name,
                str(files.directory / files.runtime) if files and not files.library else bound.source,
                bound.handle.settings,
            )
            for (name, files), bound in self._bound.items()
        ]
        return sorted(in_use, key=lambda backend: backend[:2])

    async def load(
        self, directory: ModelDirectory, version: int, config: ModelConfig, *, is_override: bool = False
    ) -> LoadedModel:
        """Load one version whose configuration has been read and found sound.

        A load that fails, for any reason, is tried again at once as often as the settings say, as in Triton.

        Args:
            directory: the model.
            version: which of its versions.
            config: its configuration.
            is_override: the configuration came with a load request; it may name no file outside the model.

        Raises:
            TritonError: why it cannot be served; everything begun has been taken down again.
        """
        return await self._tried(
            directory.name, version, lambda: self._load(directory, version, config, is_override)
        )

    async def _tried(self, name: str, version: int, load: Callable[[], Awaitable[Loaded]]) -> Loaded:
        """Load through the gate, and again after failures as often as the settings allow."""
        most = 1 + self.settings.load_retry_count
        async with self.gate.enter((name, version)):
            for attempt in range(1, most):
                try:
                    return await load()
                except Exception as error:
                    reason = error.described() if isinstance(error, TritonError) else repr(error)
                    _log.error(
                        "failed to load '%s' version %d, attempt %d of %d: %s",
                        name,
                        version,
                        attempt,
                        most,
                        reason,
                    )
            return await load()

    async def _load(
        self, directory: ModelDirectory, version: int, config: ModelConfig, is_override: bool
    ) -> LoadedModel:
        loading = await self._begin(directory, version, config, is_override)
        try:
            return await loading.run()
        except asyncio.CancelledError:
            await loading.take_down(Unavailable("the load was given up"))
            raise
        except BaseException:
            await loading.take_down()
            raise

    def _bound_alike(self, config: ModelConfig, model: LoadedModel) -> BoundBackend:
        """The backend of a changed configuration of a loaded version."""
        return self.bind_backend(config, model.handle.version_directory, model.handle.directory)

    async def is_settled_alike(self, model: LoadedModel, config: ModelConfig) -> bool:
        """True if a configuration settles on that of a loaded version, except for what `update` changes."""
        own = copied_config(config)
        try:
            attributes = await _attributes_of(self._bound_alike(own, model))
        except TritonError:  # its load says why
            return False
        return await asyncio.to_thread(is_settled_alike, own, model.handle, attributes, self.settings.gpus)

    async def update(self, model: LoadedModel, config: ModelConfig) -> InstanceUpdate:
        """Bring up what a loaded version lacks to have the instances that a changed configuration asks for.

        Args:
            model: goes on as it is until the update is applied.
            config: differs from that of the model in its instance groups and its version policy only.

        Raises:
            TritonError: why it cannot be done; nothing has changed.
        """
        return await self._tried(model.name, model.version, lambda: self._update(model, config))

    async def _update(self, model: LoadedModel, config: ModelConfig) -> InstanceUpdate:
        handle, own = model.handle, copied_config(config)
        attributes = await _attributes_of(self._bound_alike(own, model))
        settled = await asyncio.to_thread(updated_config, own, handle, attributes, self.settings.gpus)
        before, handle.config = handle.config, settled  # what new instances are to see
        try:
            change = await model.instance_set.prepare(self._tools.slots(handle))
        except BaseException:
            handle.config = before
            raise
        return InstanceUpdate(model, settled, change, before)

    async def settle(self, directory: ModelDirectory, version: int, config: ModelConfig) -> JsonObject:
        """The configuration that `load` would serve this version with; nothing is left of the model.

        The backend completes it as in a load: it may read the model's files, and a Python model's
        `auto_complete_config` runs in a worker. No instance is made and nothing is executed.

        Args:
            directory: the model.
            version: which of its versions.
            config: its configuration.

        Raises:
            TritonError: why it cannot be served.
        """
        loading = await self._begin(directory, version, config, is_override=False)
        try:
            return await loading.settle()
        finally:
            await loading.take_down()

    async def _begin(
        self, directory: ModelDirectory, version: int, config: ModelConfig, is_override: bool
    ) -> Loading:
        own = copied_config(config)  # it is filled in
        backend = self.bind_backend(own, directory.path / str(version), directory.path)
        attributes = await _attributes_of(backend)
        # On a thread, as all that reads a configuration whole: one of a megabyte takes a second.
        document = await asyncio.to_thread(proposed_config, own, attributes, self.settings.gpus)
        handle = Model(directory.name, version, document, directory.path, backend.handle)
        return Loading(self._tools, backend, handle, own, is_override)


async def _attributes_of(backend: BoundBackend) -> BackendAttributes:
    return await on_own_thread(lambda: backend.attributes, "hook")
