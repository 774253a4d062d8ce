"""What is served, and from what; a load takes over in one step, with all its versions or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from tritonpy.config.schema import ModelConfig
from tritonpy.config.versions import missing_versions, select_versions
from tritonpy.errors import InvalidArg, TritonError, Unavailable
from tritonpy.model.model import LoadedModel
from tritonpy.repository.key import ModelKey
from tritonpy.repository.layout import require_versions
from tritonpy.repository.loader import ModelLoader
from tritonpy.repository.registry import ModelRegistry
from tritonpy.repository.repositories import FoundModel
from tritonpy.repository.retirement import Retirement, close_all
from tritonpy.repository.source import ModelSource

_log = logging.getLogger("tritonpy.repository")

_STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


class ServedModels:
    """Brings models into the registry, replaces them and takes them out; on the loop only.

    One model's calls must come one after the other.

    Args:
        loader: loads model versions.
        registry: where loaded versions, and reasons for the others, are kept.
    """

    def __init__(self, loader: ModelLoader, registry: ModelRegistry) -> None:
        self._loader = loader
        self._registry = registry
        self._retirement = Retirement()
        self._sources: dict[ModelKey, ModelSource] = {}
        self._closed_count = 0

    @property
    def live_count(self) -> int:
        """How many versions are not taken down yet, also while `close` takes them down."""
        return len(self.live_models) - self._closed_count

    @property
    def live_models(self) -> list[LoadedModel]:
        """Every version that may still have requests to answer."""
        return self._registry.all_models() + self._retirement.models

    def serves(self, found: FoundModel, config_override: str | None) -> bool:
        """Whether what is served is what a load of `found` would give, and takes requests."""
        served = self._sources.get(found.key)
        models = self._registry.versions_of(found.key)
        return (
            served is not None
            and served.serves(found, config_override)
            and bool(models)
            and all(model.is_ready for model in models)
        )

    async def load(self, source: ModelSource, config: ModelConfig) -> None:
        """Load what the configuration selects, and serve it instead of what serves now.

        Raises:
            InvalidArg: in Triton's words; nothing has changed.
        """
        directory = source.directory
        name, key = directory.name, source.key
        for version in missing_versions(config, directory.versions):
            _log.error(
                "version %d is specified for model '%s', but the version directory is not present",
                version,
                name,
            )
        versions = select_versions(config, directory.versions)
        try:
            require_versions(directory, versions)
        except InvalidArg as error:
            _log.error("failed to load '%s': %s", name, error)
            if not self._registry.versions_of(key):
                self._registry.refuse(key, error.described())
            raise InvalidArg(f"load failed for model '{name}': {error}\n") from None
        models = await self._load_versions(source, versions, config)
        replaced, self._sources[key] = self._sources.get(key), source
        self._retire(key, self._registry.switch(key, models), replaced)
        for model in models:
            _log.info("successfully loaded '%s' version %d", name, model.version)

    def retire(self, key: ModelKey) -> None:
        """Serve a model no more; what it has accepted is answered before it is finalised."""
        source = self._sources.pop(key, None)
        self._retire(key, self._registry.switch(key, ()), source)

    async def close(self) -> None:
        """Take everything down; what still waits is answered UNAVAILABLE."""
        error = Unavailable(_STOPPING)
        models = self._registry.all_models()
        await asyncio.gather(
            *(self._close_for_good(model, error) for model in models), self._retirement.finish(error)
        )
        sources, self._sources = list(self._sources.values()), {}
        for source in sources:
            await asyncio.to_thread(source.remove)

    async def _close_for_good(self, model: LoadedModel, error: TritonError) -> None:
        await close_all((model,), error)
        self._closed_count += 1  # the registry keeps it, for whoever still reads its statistics
        _log.info("successfully unloaded '%s' version %d", model.name, model.version)

    async def _load_versions(
        self, source: ModelSource, versions: Sequence[int], config: ModelConfig
    ) -> list[LoadedModel]:
        """All versions or none: a model that is half there would answer with the wrong version."""
        name, key = source.directory.name, source.key
        for version in versions:
            _log.info("loading: %s:%d", name, version)
            self._registry.note_loading(key, version)
        loads = [
            asyncio.ensure_future(
                self._loader.load(source.directory, version, config, is_override=source.is_overridden)
            )
            for version in versions
        ]
        try:
            await asyncio.wait(loads)
        except asyncio.CancelledError:
            for load in loads:
                load.cancel()
            await asyncio.wait(loads)
            await close_all(_loaded(loads), Unavailable(_STOPPING))
            raise
        models = _loaded(loads)
        if len(models) == len(versions):
            return models
        failures = ""
        for version, load in zip(versions, loads, strict=True):
            error = load.exception()
            if error is not None:
                reason = logged_reason(f"'{name}' version {version}", error)
                self._registry.note_failed(key, version, reason)
                failures += f"version {version} is at UNAVAILABLE state: {reason};"
        for model in models:
            self._registry.note_leaving(key, model)
        await close_all(models, Unavailable("another version of the model failed to load"))
        for model in models:
            self._registry.left(key, model)
        raise InvalidArg(f"load failed for model '{name}': {failures}\n")

    def _retire(self, key: ModelKey, models: Sequence[LoadedModel], source: ModelSource | None) -> None:
        """Have versions closed when they have answered; the last one takes its temporary directory along."""
        remaining = set(models)

        def on_closed(model: LoadedModel) -> None:
            self._registry.left(key, model)
            remaining.discard(model)
            if not remaining and source is not None:
                asyncio.get_running_loop().run_in_executor(None, source.remove)

        for model in models:
            self._retirement.add(model, partial(on_closed, model))


def _loaded(loads: Sequence[asyncio.Future[LoadedModel]]) -> list[LoadedModel]:
    return [load.result() for load in loads if not load.cancelled() and load.exception() is None]


def logged_reason(what: str, error: BaseException, action: str = "load") -> str:
    """Why something could not be loaded, as the index and clients are told; the log is told here."""
    if isinstance(error, TritonError):
        reason = error.described()
    elif isinstance(error, OSError):
        reason = f"Internal: {error}"
    else:
        _log.error("failed to %s %s", action, what, exc_info=error)
        return f"Internal: {type(error).__name__}: {error}"
    _log.error("failed to %s %s: %s", action, what, reason)
    return reason
