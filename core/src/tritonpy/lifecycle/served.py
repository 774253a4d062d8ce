"""What is served, and from what; a load takes over in one step, with all its versions or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from tritonpy.config.versions import missing_versions, select_versions
from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable
from tritonpy.lifecycle.ensembles import Ensembles
from tritonpy.lifecycle.loading.ensemble_load import settle_ensemble
from tritonpy.lifecycle.loading.instance_update import (
    InstanceUpdate,
    is_configured_alike,
    taken_up,
    unchanged_versions,
)
from tritonpy.lifecycle.loading.loader import ModelLoader
from tritonpy.lifecycle.preparation import PreparedModel
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.lifecycle.retirement import Retirement, close_all
from tritonpy.model.model import LoadedModel
from tritonpy.repository.key import ModelKey
from tritonpy.repository.layout import require_versions
from tritonpy.repository.repositories import FoundModel
from tritonpy.repository.source import ModelSource

_log = logging.getLogger("tritonpy.repository")

_BroughtUp: TypeAlias = LoadedModel | InstanceUpdate
"""What becomes of one version: it is loaded, or one that serves is changed in place."""

_STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"


class ServedModels:
    """Brings models into the registry, replaces them and takes them out; on the loop only.

    One model's calls must come one after the other.

    Args:
        loader: loads model versions.
        registry: where loaded versions, and reasons for the others, are kept.

    Attributes:
        ensembles: those that are wanted.
    """

    def __init__(self, loader: ModelLoader, registry: ModelRegistry) -> None:
        self._loader = loader
        self._registry = registry
        self.ensembles = Ensembles(registry, loader.settings)
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

    def source_of(self, key: ModelKey) -> ModelSource | None:
        """What a model is served from; None for one that is not."""
        prepared = self._prepared.get(key)
        return prepared.source if prepared is not None else None

    async def load(self, prepared: PreparedModel, *, anew: bool = False) -> None:
        """Load what the configuration selects, and serve it instead of what serves now.

        Versions that serve and have not changed go on; where instance groups have, with the instances that
        are wanted now.

        Args:
            prepared: the model.
            anew: load every version, whatever has changed.

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
            raise InvalidArg(f"load failed for model '{key}': {error}\n") from None
        if prepared.is_ensemble:
            await self._load_ensemble(prepared, versions)
            return
        served = self._prepared.get(key)
        kept = {} if served is None or anew else await self._kept(served, prepared)
        if served is None or kept.keys().isdisjoint(versions):
            models = await self._load_versions(prepared, versions, {})
            self._prepared[key] = prepared
            self.ensembles.drop(key)  # if that is what it was before
            self._retire(key, self._switch(key, models), served)
        else:
            wanted = taken_up(served, prepared)
            models = await self._load_versions(wanted, versions, kept)
            self._prepared[key] = wanted
            self._retire(key, self._switch(key, models), None)
            self._retirement.follow(prepared.end())  # the files that are loaded are those of before
        _log_loaded(name, models)
        with suppress(asyncio.CancelledError):  # it serves: there is no load to give up any more
            await prepared.loaded()
            await asyncio.gather(*(model.instance_set.see_off() for model in models))

    def retire(self, key: ModelKey) -> None:
        """Serve a model no more; what it has accepted is answered before it is finalised."""
        prepared = self._prepared.pop(key, None)
        self.ensembles.drop(key)
        self._retire(key, self._switch(key, ()), prepared)

    def keeps(self, prepared: PreparedModel) -> bool:
        """Whether a model serves, or is an ensemble that will as soon as its models can."""
        return self._prepared.get(prepared.source.key) is prepared

    def is_brought(self, key: ModelKey) -> bool:
        """Whether the files of a model came with a load request."""
        prepared = self._prepared.get(key)
        return prepared is not None and not prepared.source.root

    async def close(self) -> None:
        """Take everything down; what still waits is answered UNAVAILABLE."""
        error = Unavailable(_STOPPING)
        models = self._registry.all_models()
        left, self._prepared = list(self._prepared.values()), {}
        for ensemble in models:  # before the models that work for them
            if ensemble.steps:
                await self._close_for_good(ensemble, error)
        await asyncio.gather(
            *(prepared.leave() for prepared in left),
            *(self._close_for_good(model, error) for model in models if not model.steps),
            self._retirement.finish(error),
        )
        await asyncio.gather(*(prepared.end() for prepared in left))

    async def _close_for_good(self, model: LoadedModel, error: TritonError) -> None:
        await close_all((model,), error)
        self._closed_count += 1  # the registry keeps it, for whoever still reads its statistics
        _log.info("successfully unloaded '%s' version %d", model.name, model.version)

    async def _load_ensemble(self, prepared: PreparedModel, versions: Sequence[int]) -> None:
        """Serve an ensemble made of the models that serve now.

        Without one of them it waits for that one: from then on it is served, whoever has loaded it.
        """
        key, name = prepared.source.key, prepared.directory.name
        for version in versions:
            _log.info("loading: %s:%d", name, version)
        before = self.ensembles.get(key)
        try:
            ensemble = await asyncio.to_thread(settle_ensemble, prepared, versions)
            self.ensembles.want(ensemble)
            models = self.ensembles.bind(ensemble)
        except TritonError as error:
            _log.error("failed to load '%s': %s", name, error.described())
            if self._registry.versions_of(key):
                self.ensembles.restore(key, before)
            else:
                if self.ensembles.get(key) is not before:
                    self._replace(key, prepared)
                self._registry.refuse(key, error.described())
                self._rebind(key)  # those made of this one fail for the same reason
            raise InvalidArg(f"load failed for model '{key}': {error}\n") from None
        served = self._prepared.get(key)
        self._prepared[key] = prepared
        self._retire(key, self._switch(key, models), served)
        _log_loaded(name, models)
        with suppress(asyncio.CancelledError):
            await prepared.loaded()

    async def _kept(self, served: PreparedModel, wanted: PreparedModel) -> dict[int, LoadedModel]:
        """The versions that serve and have not changed, but perhaps in what is changed in place."""
        unchanged = unchanged_versions(served, wanted)
        is_alike = is_configured_alike(served, wanted)
        return {
            model.version: model
            for model in self._registry.versions_of(wanted.source.key)
            if model.is_ready
            and model.version in unchanged
            and (is_alike or await self._loader.is_settled_alike(model, wanted.config))
        }

    def _replace(self, key: ModelKey, prepared: PreparedModel) -> None:
        """Keep an ensemble that cannot be served yet, in place of one that could not either."""
        served = self._prepared.get(key)
        self._prepared[key] = prepared
        self._retire(key, (), served)

    def _switch(self, key: ModelKey, models: Sequence[LoadedModel]) -> list[LoadedModel]:
        """Serve these versions and no others; ensembles are made of them in the same step."""
        left = self._registry.switch(key, models)
        self._rebind(key)
        return left

    def _rebind(self, key: ModelKey) -> None:
        """Serve the ensembles made of a model with what serves of it now, or no more if they do not fit."""
        for ensemble in self.ensembles.affected_by(key):
            try:
                models = self.ensembles.bind(ensemble)
            except InvalidArg as error:
                _log.error("ensemble '%s' cannot be served: %s", ensemble.key, error)
                self.ensembles.unbind(ensemble.key)
                if self._registry.versions_of(ensemble.key):
                    self._retire(ensemble.key, self._registry.switch(ensemble.key, ()), None)
                elif ensemble.key in self._registry.refusals:
                    self._registry.refuse(ensemble.key, error.described())
                continue
            if models != self._registry.versions_of(ensemble.key):
                self._retire(ensemble.key, self._registry.switch(ensemble.key, models), None)
                _log_loaded(ensemble.key.name, models)

    async def _load_versions(
        self, prepared: PreparedModel, versions: Sequence[int], kept: Mapping[int, LoadedModel]
    ) -> list[LoadedModel]:
        """All versions or none: a model that is half there would answer with the wrong version.

        Those in `kept` are changed in place.
        """
        name, key = prepared.directory.name, prepared.source.key
        for version in versions:
            _log.info("loading: %s:%d", name, version)
            self._registry.note_loading(key, version)
        loads = [
            asyncio.ensure_future(self._bring_up(prepared, version, kept.get(version)))
            for version in versions
        ]
        try:
            await asyncio.wait(loads)
        except asyncio.CancelledError:
            for load in loads:
                load.cancel()
            await asyncio.wait(loads)
            await _give_up(_brought_up(loads), _STOPPING)
            raise
        results = _brought_up(loads)
        if len(results) == len(versions):
            return [_served(result) for result in results]
        failures = ""
        for version, load in zip(versions, loads, strict=True):
            error = load.exception()
            if error is not None:
                reason = logged_reason(f"'{name}' version {version}", error)
                self._registry.note_failed(key, version, reason)
                state = "READY" if version in kept else "UNAVAILABLE"
                failures += f"version {version} is at {state} state: {reason};"
        models = [result for result in results if not isinstance(result, InstanceUpdate)]
        for model in models:
            self._registry.note_leaving(key, model)
        await _give_up(results, "another version of the model failed to load")
        for model in models:
            self._registry.left(key, model)
        raise InvalidArg(f"load failed for model '{key}': {failures}\n")

    async def _bring_up(self, prepared: PreparedModel, version: int, kept: LoadedModel | None) -> _BroughtUp:
        if kept is not None:
            return await self._loader.update(kept, prepared.config)
        return await self._loader.load(
            prepared.directory, version, prepared.config, is_override=prepared.source.is_overridden
        )

    def _retire(self, key: ModelKey, models: Sequence[LoadedModel], prepared: PreparedModel | None) -> None:
        """Have versions closed when they have answered; with the last one ends what was made for its load."""
        remaining = set(models)
        if prepared is not None and not models:  # an ensemble that was not served
            self._retirement.follow(_leave_at_once(prepared))
        elif prepared is not None:
            self._retirement.follow(prepared.leave())

        def on_closed(model: LoadedModel) -> None:
            self._registry.left(key, model)
            remaining.discard(model)
            if not remaining and prepared is not None:
                self._retirement.follow(prepared.end())

        for model in models:
            self._retirement.add(model, partial(on_closed, model))


async def _leave_at_once(prepared: PreparedModel) -> None:
    await prepared.leave()
    await prepared.end()


def _served(result: _BroughtUp) -> LoadedModel:
    """Put a change in force, if it is one."""
    if isinstance(result, InstanceUpdate):
        result.apply()
        return result.model
    return result


async def _give_up(results: Sequence[_BroughtUp], reason: str) -> None:
    """Take down what was brought up for nothing."""
    models = [result for result in results if not isinstance(result, InstanceUpdate)]
    updates = [result for result in results if isinstance(result, InstanceUpdate)]
    await asyncio.gather(close_all(models, Unavailable(reason)), *(update.discard() for update in updates))


def _brought_up(loads: Sequence[asyncio.Future[_BroughtUp]]) -> list[_BroughtUp]:
    return [load.result() for load in loads if not load.cancelled() and load.exception() is None]


def _log_loaded(name: str, models: Sequence[LoadedModel]) -> None:
    """One line for a load, however many versions it has brought up."""
    if models:
        versions = ", ".join(str(model.version) for model in models)
        _log.info("successfully loaded '%s' version%s %s", name, "s" if len(models) > 1 else "", versions)


def logged_reason(what: str, error: BaseException, action: str = "load") -> str:
    """Why something could not be loaded, as the index and clients are told; the log is told here."""
    if isinstance(error, TritonError):
        reason = error.described()
    elif isinstance(error, OSError):
        reason = f"Internal: {error}"
    else:
        _log.error("failed to %s %s", action, what, exc_info=error)
        return f"Internal: {type(error).__name__}: {error}"
    # What a plugin or the server did not expect: its author has to see where.
    cause = error.__cause__ if isinstance(error, Internal) else None
    if isinstance(cause, TritonError):  # somebody has said it in words
        cause = None
    _log.error("failed to %s %s: %s", action, what, reason, exc_info=cause)
    return reason
