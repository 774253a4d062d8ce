"""What is served, and from what; a load takes over in one step, with all its versions or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from tritonpy.config.versions import missing_versions, select_versions
from tritonpy.errors import InvalidArg, TritonError, Unavailable
from tritonpy.model.model import LoadedModel
from tritonpy.repository.key import ModelKey
from tritonpy.repository.layout import require_versions
from tritonpy.repository.loader import ModelLoader
from tritonpy.repository.preparation import PreparedModel
from tritonpy.repository.registry import ModelRegistry
from tritonpy.repository.repositories import FoundModel
from tritonpy.repository.retirement import Retirement, close_all

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
        self._prepared: dict[ModelKey, PreparedModel] = {}
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
        served = self._prepared.get(found.key)
        models = self._registry.versions_of(found.key)
        return (
            served is not None
            and served.source.serves(found, config_override)
            and bool(models)
            and all(model.is_ready for model in models)
        )

    async def load(self, prepared: PreparedModel) -> None:
        """Load what the configuration selects, and serve it instead of what serves now.

        Raises:
            InvalidArg: in Triton's words; nothing has changed.
        """
        config, directory = prepared.config, prepared.directory
        name, key = directory.name, prepared.source.key
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
                self._registry.refuse(key, error.described(), has_versions=False)
            raise InvalidArg(f"load failed for model '{name}': {error}\n") from None
        models = await self._load_versions(prepared, versions)
        replaced, self._prepared[key] = self._prepared.get(key), prepared
        self._retire(key, self._registry.switch(key, models), replaced)
        for model in models:
            _log.info("successfully loaded '%s' version %d", name, model.version)
        with suppress(asyncio.CancelledError):  # it serves: there is no load to give up any more
            await prepared.loaded()

    def retire(self, key: ModelKey) -> None:
        """Serve a model no more; what it has accepted is answered before it is finalised."""
        prepared = self._prepared.pop(key, None)
        self._retire(key, self._registry.switch(key, ()), prepared)

    async def close(self) -> None:
        """Take everything down; what still waits is answered UNAVAILABLE."""
        error = Unavailable(_STOPPING)
        models = self._registry.all_models()
        left, self._prepared = list(self._prepared.values()), {}
        await asyncio.gather(
            *(prepared.leave() for prepared in left),
            *(self._close_for_good(model, error) for model in models),
            self._retirement.finish(error),
        )
        await asyncio.gather(*(prepared.end() for prepared in left))

    async def _close_for_good(self, model: LoadedModel, error: TritonError) -> None:
        await close_all((model,), error)
        self._closed_count += 1  # the registry keeps it, for whoever still reads its statistics
        _log.info("successfully unloaded '%s' version %d", model.name, model.version)

    async def _load_versions(self, prepared: PreparedModel, versions: Sequence[int]) -> list[LoadedModel]:
        """All versions or none: a model that is half there would answer with the wrong version."""
        source, directory, config = prepared.source, prepared.directory, prepared.config
        name, key = directory.name, source.key
        for version in versions:
            _log.info("loading: %s:%d", name, version)
            self._registry.note_loading(key, version)
        loads = [
            asyncio.ensure_future(
                self._loader.load(directory, version, config, is_override=source.is_overridden)
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

    def _retire(self, key: ModelKey, models: Sequence[LoadedModel], prepared: PreparedModel | None) -> None:
        """Have versions closed when they have answered; with the last one ends what was made for its load."""
        remaining = set(models)
        if prepared is not None:
            self._retirement.follow(prepared.leave())

        def on_closed(model: LoadedModel) -> None:
            self._registry.left(key, model)
            remaining.discard(model)
            if not remaining and prepared is not None:
                self._retirement.follow(prepared.end())

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
