"""The load of a model, top to bottom: fetch, read, agents, steps, versions, bring up, switch, retire.

A load never disturbs what serves. All versions of a model are brought up beside those that serve; when every
one is ready the record switches in one step, and the old ones answer what they have accepted and are then
finalised in the background. When one of them fails, the others are taken down and nothing has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tritonpy.config.load import MAX_CONFIG_BYTE_SIZE, check_config_name, find_config
from tritonpy.config.named_files import check_model_files, check_sent_files, named_files
from tritonpy.config.versions import missing_versions, select_versions
from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable
from tritonpy.lifecycle.agents.chain import AgentChain, AgentSteps
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents
from tritonpy.lifecycle.loading.ensemble_load import settle_ensemble
from tritonpy.lifecycle.loading.instance_update import (
    InstanceUpdate,
    is_configured_alike,
    taken_up,
    unchanged_versions,
)
from tritonpy.lifecycle.loading.loader import ModelLoader
from tritonpy.lifecycle.loading.progress import INTERVAL_S, LoadProgress
from tritonpy.lifecycle.prepared_model import PreparedModel, discard
from tritonpy.lifecycle.record import ModelRecord
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.lifecycle.replacement import STOPPING, Replacement, close_all
from tritonpy.lifecycle.resolved_config import check_config, read_given_config
from tritonpy.model.model import LoadedModel
from tritonpy.own_thread import StoreThreads
from tritonpy.protos import ModelConfig
from tritonpy.repository.layout import ModelDirectory, read_model, require_versions
from tritonpy.repository.source import ModelSource

_log = logging.getLogger("tritonpy.repository")

_WORTH_TELLING_S = 1.0

_PATIENCE_S = 5.0
"""Wait of a load that is given up for the files that it fetches."""

_BroughtUp: TypeAlias = LoadedModel | InstanceUpdate
"""What becomes of one version: it is loaded, or one that serves is changed in place."""


class ModelLoad:
    """Loads models; on the loop, with everything that blocks on threads.

    Loads of one model must come one after the other.

    Args:
        registry: the records of all models.
        replacement: switches to what was loaded.
        loader: loads versions.
        agents: finds repository agents.
        auto_complete_config: a model may do without a configuration file.
        config_name: models that have a configuration of this name are configured by it; "" for none.
        max_config_byte_size: how large a configuration may be.
        progress_interval_s: how often a model that takes long is mentioned in the log; 0 for never.

    Raises:
        InvalidArg: `config_name` could lead out of the models' directories.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        replacement: Replacement,
        loader: ModelLoader,
        agents: RepositoryAgents,
        *,
        auto_complete_config: bool,
        config_name: str = "",
        max_config_byte_size: int = MAX_CONFIG_BYTE_SIZE,
        progress_interval_s: float = INTERVAL_S,
    ) -> None:
        if config_name:
            check_config_name(config_name)
        self._registry = registry
        self._replacement = replacement
        self._loader = loader
        self._agents = agents
        self._is_strict = not auto_complete_config
        self._config_name = config_name
        self._max_config_byte_size = max_config_byte_size
        self._progress_interval_s = progress_interval_s
        self._threads = StoreThreads()

    async def prepare(self, name: str, fetch: Callable[[], ModelSource]) -> PreparedModel:
        """Get a model's files, let its repository agents see them, and read its configuration.

        Args:
            name: the model, for the log.
            fetch: gets the files; blocking.

        Raises:
            TritonError, OSError: why the model cannot even be tried; nothing is left behind.
        """
        with LoadProgress(name, interval_s=self._progress_interval_s, least_s=_WORTH_TELLING_S) as progress:
            progress.begin("files")
            source, config = await self._fetch(fetch, progress)
            directory, agents = source.directory, None
            if not config.model_repository_agents.agents:
                return PreparedModel(source, directory, config)
            try:
                agents = AgentSteps(self._agent_chain(source, config))
                progress.begin("repository agents")
                await agents.load()
                progress.begin("configuration")
                config = agents.chain.config
                directory = await asyncio.to_thread(_moved, directory, agents.chain.directory)
                await asyncio.to_thread(check_config, config, directory, is_strict=self._is_strict)
                return PreparedModel(source, directory, config, agents)
            except BaseException:
                await discard(source, agents)
                raise

    async def run(
        self,
        prepared: PreparedModel,
        see_to_steps: Callable[[ModelRecord, Sequence[str]], Awaitable[None]],
        *,
        anew: bool = False,
    ) -> None:
        """Load what the configuration selects, and serve it instead of what serves now.

        Versions that serve and have not changed go on; where instance groups have, with the instances that
        are wanted now.

        Args:
            prepared: the model; what was made for it is given up if this fails.
            see_to_steps: waits for loads of the models that an ensemble is made of, given their names.
            anew: load every version, changed or not.

        Raises:
            InvalidArg: in Triton's words; nothing has changed.
        """
        record = self._registry.record(prepared.source.key)
        try:
            if prepared.is_ensemble:
                names = [step.model_name for step in prepared.config.ensemble_scheduling.step]
                await see_to_steps(record, names)
            versions = self._select(record, prepared)
            if prepared.is_ensemble:
                models = await self._settle_and_bind(record, prepared, versions)
            else:
                kept = {} if anew else await self._kept(record, prepared)
                models = await self._bring_up(record, prepared, versions, kept)
        except BaseException:
            if record.served is not prepared:  # an ensemble may wait for its models
                await prepared.discard()
            raise
        with suppress(asyncio.CancelledError):  # it serves: there is no load to give up any more
            await prepared.loaded()
            await asyncio.gather(*(model.instance_set.wait_for_left_out() for model in models))

    def adopt_backend(self, name: str, plugin: object) -> None:
        """See `ModelLoader.adopt_backend`."""
        self._loader.adopt_backend(name, plugin)

    async def check(self, directory: ModelDirectory) -> None:
        """Look at the configuration in a model's own directory, which another one stands in for.

        Raises:
            TritonError, OSError: why the model could not be tried with it.
        """
        config = await asyncio.to_thread(self._read, directory, None)
        await asyncio.to_thread(check_config, config, directory, is_strict=self._is_strict)

    # Files and configuration.

    async def _fetch(
        self, fetch: Callable[[], ModelSource], progress: LoadProgress
    ) -> tuple[ModelSource, ModelConfig]:
        """Fetch and read on a thread; cancelled, it leaves no directory behind, unless the disk hangs."""
        fetching = asyncio.ensure_future(self._threads.call(self._fetch_and_read, fetch, progress))
        try:
            return await asyncio.shield(fetching)
        except asyncio.CancelledError:
            await asyncio.wait((fetching,), timeout=_PATIENCE_S)
            if not fetching.done():
                fetching.cancel()  # the stop of the server must not wait for a disk that hangs
            elif fetching.exception() is None:
                await asyncio.to_thread(fetching.result()[0].remove)
            raise

    def _fetch_and_read(
        self, fetch: Callable[[], ModelSource], progress: LoadProgress
    ) -> tuple[ModelSource, ModelConfig]:
        """The configuration is checked unless repository agents are to see it before; blocking."""
        source = fetch()
        try:
            progress.begin("configuration")
            config = self._read(source.directory, source.config_override)
            if not config.model_repository_agents.agents:
                check_config(config, source.directory, is_strict=self._is_strict)
            return source, config
        except BaseException:
            source.remove()
            raise

    def _read(self, directory: ModelDirectory, override: str | None) -> ModelConfig:
        config = self._read_given(directory, override, is_strict=self._is_strict)
        check_model_files(config, directory.name)
        if override is not None:
            check_sent_files(config, directory.path, directory.versions, self._own_files(directory))
        return config

    def _read_given(self, directory: ModelDirectory, override: str | None, *, is_strict: bool) -> ModelConfig:
        return read_given_config(
            directory,
            is_strict=is_strict,
            override=override,
            config_name=self._config_name,
            max_byte_size=self._max_config_byte_size,
        )

    def _own_files(self, directory: ModelDirectory) -> set[str]:
        """Every path that stands in the model's own configuration, if that can be read."""
        try:
            config = self._read_given(directory, None, is_strict=False)
        except TritonError:
            return set()
        return {file.path for file in named_files(config)}

    def _agent_chain(self, source: ModelSource, config: ModelConfig) -> AgentChain:
        directory = source.directory
        return AgentChain(
            self._agents, directory.name, directory.path, config, partial(self._read_handed_over, source)
        )

    def _read_handed_over(self, source: ModelSource, path: Path) -> ModelConfig | None:
        """The configuration where an agent has put the files; one that came with a load request wins."""
        if source.config_override is not None or find_config(path, self._config_name) is None:
            return None
        return self._read(replace(source.directory, path=path), None)

    # Versions.

    def _select(self, record: ModelRecord, prepared: PreparedModel) -> list[int]:
        config, directory = prepared.config, prepared.directory
        for version in missing_versions(config, directory.versions):
            _log.error(
                "version %d is specified for model '%s', but the version directory is not present",
                version,
                directory.name,
            )
        versions = select_versions(config, directory.versions)
        try:
            require_versions(directory, versions)
        except InvalidArg as error:
            _log.error("failed to load '%s': %s", directory.name, error)
            if not record.models:
                record.refuse(error.described(), lacks_versions=True)
            raise InvalidArg(f"load failed for model '{record.key}': {error}\n") from None
        return versions

    async def _kept(self, record: ModelRecord, wanted: PreparedModel) -> dict[int, LoadedModel]:
        """The versions that serve and need no load: unchanged, or to be changed in place."""
        served = record.served
        if served is None:
            return {}
        unchanged = unchanged_versions(served, wanted)
        is_alike = is_configured_alike(served, wanted)
        return {
            model.version: model
            for model in record.models
            if model.is_ready
            and model.version in unchanged
            and (is_alike or await self._loader.is_settled_alike(model, wanted.config))
        }

    async def _settle_and_bind(
        self, record: ModelRecord, prepared: PreparedModel, versions: Sequence[int]
    ) -> Sequence[LoadedModel]:
        """Serve an ensemble: there is nothing to bring up."""
        name = prepared.directory.name
        for version in versions:
            _log.info("loading: %s:%d", name, version)
        try:
            ensemble = await asyncio.to_thread(settle_ensemble, prepared, versions)
            return self._replacement.serve_ensemble(record, prepared, ensemble)
        except TritonError as error:
            _log.error("failed to load '%s': %s", name, error.described())
            if not record.models:
                self._replacement.refuse(record, error.described())
            raise InvalidArg(f"load failed for model '{record.key}': {error}\n") from None

    async def _bring_up(
        self,
        record: ModelRecord,
        prepared: PreparedModel,
        versions: Sequence[int],
        kept: Mapping[int, LoadedModel],
    ) -> list[LoadedModel]:
        """All versions or none: a model that is half there would answer with the wrong version.

        Those in `kept` are changed in place.
        """
        served = record.served
        is_update = served is not None and not kept.keys().isdisjoint(versions)
        wanted = taken_up(served, prepared) if served is not None and is_update else prepared
        for version in versions:
            _log.info("loading: %s:%d", record.key.name, version)
            record.note_loading(version)
        loads = [
            asyncio.ensure_future(self._bring_up_one(wanted, version, kept.get(version)))
            for version in versions
        ]
        try:
            await asyncio.wait(loads)
        except asyncio.CancelledError:
            for load in loads:
                load.cancel()
            await asyncio.wait(loads)
            await _give_up(_brought_up(loads), STOPPING)
            raise
        results = _brought_up(loads)
        if len(results) < len(versions):
            raise await self._failed(record, versions, loads, kept)
        models = [_in_force(result) for result in results]
        if is_update:
            self._replacement.serve_updated(record, wanted, models)
            self._replacement.follow(prepared.end())  # the files that are loaded are those of before
        else:
            self._replacement.serve(record, prepared, models)
        return models

    async def _bring_up_one(
        self, prepared: PreparedModel, version: int, kept: LoadedModel | None
    ) -> _BroughtUp:
        if kept is not None:
            return await self._loader.update(kept, prepared.config)
        return await self._loader.load(
            prepared.directory, version, prepared.config, is_override=prepared.source.is_overridden
        )

    async def _failed(
        self,
        record: ModelRecord,
        versions: Sequence[int],
        loads: Sequence[asyncio.Future[_BroughtUp]],
        kept: Mapping[int, LoadedModel],
    ) -> TritonError:
        """Take down what could be loaded; the error of the load."""
        failures = ""
        for version, load in zip(versions, loads, strict=True):
            error = load.exception()
            if error is not None:
                reason = logged_reason(f"'{record.key.name}' version {version}", error)
                record.note_failed(version, reason)
                state = "READY" if version in kept else "UNAVAILABLE"
                failures += f"version {version} is at {state} state: {reason};"
        results = _brought_up(loads)
        models = [result for result in results if not isinstance(result, InstanceUpdate)]
        for model in models:
            record.note_leaving(model)
        await _give_up(results, "another version of the model failed to load")
        for model in models:
            record.left(model)
        return InvalidArg(f"load failed for model '{record.key}': {failures}\n")


def _moved(directory: ModelDirectory, path: Path) -> ModelDirectory:
    """A model whose files are elsewhere now, in a directory that may be called otherwise; blocking."""
    return directory if path == directory.path else replace(read_model(path), name=directory.name)


def _brought_up(loads: Sequence[asyncio.Future[_BroughtUp]]) -> list[_BroughtUp]:
    return [load.result() for load in loads if not load.cancelled() and load.exception() is None]


def _in_force(result: _BroughtUp) -> LoadedModel:
    """Apply an update; a version that was loaded anew is returned as it is."""
    if isinstance(result, InstanceUpdate):
        result.apply()
        return result.model
    return result


async def _give_up(results: Sequence[_BroughtUp], reason: str) -> None:
    """Take down versions that will not serve."""
    models = [result for result in results if not isinstance(result, InstanceUpdate)]
    updates = [result for result in results if isinstance(result, InstanceUpdate)]
    await asyncio.gather(close_all(models, Unavailable(reason)), *(update.discard() for update in updates))


def logged_reason(what: str, error: BaseException, action: str = "load") -> str:
    """The reason of a failed load for the index and clients; writes it to the log."""
    if isinstance(error, TritonError):
        reason = error.described()
    elif isinstance(error, OSError):
        reason = f"Internal: {error}"
    else:
        _log.error("failed to %s %s", action, what, exc_info=error)
        return f"Internal: {type(error).__name__}: {error}"
    # What a plugin or the server did not expect: its author has to see where.
    cause = error.__cause__ if isinstance(error, Internal) else None
    if isinstance(cause, TritonError):  # its text is meant for people
        cause = None
    _log.error("failed to %s %s: %s", action, what, reason, exc_info=cause)
    return reason
