"""The lifetimes of all models: loaded at the start or on request, reloaded beside themselves, taken down.

A load never disturbs what serves. All versions of a model are brought up beside those that serve; when every
one is ready the registry switches in one step, and the old ones answer what they have accepted and are then
finalised in the background. When one of them fails, the others are taken down and nothing has changed.

Loads and unloads of one model run one after the other (a lock for each name); different models do not wait
for each other, but an ensemble waits for the models it is made of. Once begun, a load goes on though whoever
asked for it has gone away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tritonpy.errors import ErrorCode, Internal, InvalidArg, NotFound, TritonError
from tritonpy.lifecycle.composing import ComposingModels
from tritonpy.lifecycle.loading.loader import ModelLoader
from tritonpy.lifecycle.preparation import ModelPreparation, PreparedModel
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.lifecycle.served import ServedModels, logged_reason
from tritonpy.lifecycle.turns import Turns
from tritonpy.model.model import LoadedModel
from tritonpy.repository.key import ModelKey
from tritonpy.repository.layout import check_model_name, shown
from tritonpy.repository.repositories import FoundModel, Look, Repositories
from tritonpy.repository.source import ModelSource, fetch_source, lay_out_source
from tritonpy.repository.store_threads import StoreThreads

_log = logging.getLogger("tritonpy.repository")

ALL_MODELS = "*"
"""Stands for every model of the repositories where names of models to load at the start are given."""


class RepositoryManager:
    """Loads and unloads models; owned by the loop.

    Args:
        repositories: where models lie.
        loader: loads model versions.
        registry: where loaded versions, and reasons for the others, are kept.
        preparation: gets models' files and reads their configurations.
        load_thread_count: how many models are prepared at once at the start.

    Attributes:
        repositories: as given.
        composing: sees to the models that ensembles are made of.
    """

    def __init__(
        self,
        repositories: Repositories,
        loader: ModelLoader,
        registry: ModelRegistry,
        preparation: ModelPreparation,
        *,
        load_thread_count: int = 4,
    ) -> None:
        self.repositories = repositories
        self._registry = registry
        self._served = ServedModels(loader, registry)
        self._preparation = preparation
        self._wanted: set[str] = set()
        self._due: dict[ModelKey, _Due] = {}
        self._turns = Turns()
        self.composing = ComposingModels(
            self._served, self._turns, self._wanted, repositories.find, self._load_step
        )
        self._threads = StoreThreads()
        self._start_gate = asyncio.Semaphore(load_thread_count)

    # At the start.

    async def load_all(self, look: Look | None = None) -> bool:
        """Load every model of every repository; whether all of them could be loaded.

        Args:
            look: what lies there, if somebody has looked already.

        Raises:
            Internal, InvalidArg, Unavailable: a repository does not exist, is no directory, or cannot be
                reached.
        """
        if look is None:
            look = await self._threads.call(self.repositories.look)
        for error in look.unread.values():
            raise error
        for name, reason in look.refused.items():
            _log.error("failed to load '%s': %s", name, reason)
            self._registry.refuse(ModelKey(name), reason)
        loaded = await asyncio.gather(*map(self._load_at_start, look.found.values()))
        return all(loaded) and not look.refused

    async def load_named(self, names: Sequence[str]) -> bool:
        """Load these models, or with `*` alone every one; whether all of them could be loaded.

        Raises:
            InvalidArg: `*` stands beside other names.
            Internal, InvalidArg, Unavailable: a repository does not exist, is no directory, or cannot be
                reached.
        """
        if ALL_MODELS in names and len(names) > 1:
            raise InvalidArg("Wildcard model name '*' must be the ONLY startup model if specified at all.")
        if ALL_MODELS in names:
            return await self.load_all()
        # The repositories are read even without a name: one that does not exist is an error at any start.
        await self._threads.call(self.repositories.check)
        return all(await asyncio.gather(*map(self._load_named, dict.fromkeys(names))))

    async def _load_named(self, name: str) -> bool:
        self._wanted.add(name)
        async with self._start_gate:
            try:
                await self.load(name)
            except TritonError:  # logged where it happened
                return False
            return True

    async def _load_at_start(self, found: FoundModel) -> bool:
        name = found.key.name
        self._wanted.add(name)
        async with self._turns.lock(name):
            try:
                async with self._start_gate:
                    prepared = await self._prepare_found(found)
                    if prepared is not None and not prepared.is_ensemble:
                        await self._serve(prepared)
                if prepared is not None and prepared.is_ensemble:  # it waits for others, which need the gate
                    await self._serve(prepared)
            except TritonError:  # logged where it happened
                return False
            return True

    # While the server runs.

    async def load(
        self,
        name: str,
        config_override: str | None = None,
        files: Mapping[str, bytes] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Load a model, or load it anew; returns when it serves.

        Nothing is done for a model that serves what a load would give: its files have not changed, and the
        request brings nothing.

        Args:
            name: the model.
            config_override: its configuration as JSON; None for what lies in its directory.
            files: contents by path, such as `file:1/model.py`; with any, these are all the files there are.
            force: load it even if nothing has changed; what an earlier load brought is dropped.

        Raises:
            TritonError: in Triton's words; what served before still does.
        """
        check_model_name(name)
        if not await self._turns.see_through(self._load(name, config_override, files, force)):
            _log.info("'%s' is loaded and has not changed", name)

    async def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service, after a load of it that is under way.

        Returns before the requests it has accepted are answered; it is finalised after that. A name that
        nothing is loaded under is no error, as in Triton.

        Args:
            name: the model.
            unload_dependents: the models that an ensemble is made of, too; not those that somebody has
                loaded by name, or that another ensemble is made of.
        """
        await self._turns.see_through(self._unload(name, unload_dependents))

    def unload_soon(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service now or, while a load of it is under way, after that."""
        if unload_dependents or self._turns.is_taken(name):
            self._turns.start(self._unload(name, unload_dependents))
        else:
            self._retire(name)

    def reload_soon(self, found: FoundModel, *, only_wanted: bool) -> asyncio.Task[bool]:
        """Load a model whose files have changed, in the background; what comes of it is logged.

        Args:
            found: the model, where it lies now.
            only_wanted: leave a model alone that nobody asked for, or that was unloaded, or whose files came
                with a load request. One that could not be loaded is wanted: it may have been mended.

        Returns:
            Whether the model was tried; not if its files could not be had for now.
        """
        due = self._due.get(found.key)
        # One that still waits for its turn will see what has changed.
        task = due.task if due is not None else self._turns.start(self._reload(found.key, only_wanted))
        self._due[found.key] = _Due(task, found)
        return task

    def remove_soon(self, key: ModelKey, reason: str = "") -> None:
        """Take a model out of service that lies in no repository any more; after a load that is under way.

        Args:
            key: the model.
            reason: why it is not served any more, if it still lies there.
        """
        self._due.pop(key, None)  # one that waits has nothing to load; one from now on comes after this
        if self._turns.is_taken(key.name):
            self._turns.start(self._remove_later(key, reason))
        else:
            self._remove(key, reason)

    # At the end.

    @property
    def live_models(self) -> list[LoadedModel]:
        """Every version that may still have requests to answer."""
        return self._served.live_models

    async def stop_loading(self) -> None:
        """Give up loads that are under way; there must be no new ones."""
        await self._turns.stop()

    @property
    def live_count(self) -> int:
        """How many versions are not taken down yet."""
        return self._served.live_count

    async def unload_all(self) -> None:
        """Take down every loaded version; what still waits is answered UNAVAILABLE."""
        await self._served.close()

    # Inside.

    async def _reload(self, key: ModelKey, only_wanted: bool) -> bool:
        async with self._turns.lock(key.name):
            due = self._due.get(key)
            if due is None or due.task is not asyncio.current_task():
                return True
            del self._due[key]
            if only_wanted and key.name not in self._wanted:
                return True
            try:
                if await self._load_changed(due.found, loads_steps=only_wanted):
                    _log.info("reloaded '%s', whose files have changed", key)
            except TritonError as error:  # logged where it happened
                if self._registry.versions_of(key):
                    reason = f"the files have changed; what was loaded before goes on serving: {error}"
                    self._registry.note_stale(key, reason.strip())
                    _log.warning(
                        "the files of '%s' have changed; what was loaded before goes on serving", key
                    )
                return error.code is not ErrorCode.UNAVAILABLE
            return True

    async def _load_changed(self, found: FoundModel, *, loads_steps: bool) -> bool:
        """Load what lies there now; whether that took the place of something else.

        Only this one repository is asked: the others may not answer.
        """
        key = found.key
        self._wanted.add(key.name)
        try:
            fingerprint = await self._threads.call(found.store.look, key.name)
        except Exception as error:
            raise self._refused(key, error) from None
        if fingerprint is None:  # gone again; the next look tells
            return False
        found = replace(found, fingerprint=fingerprint)
        if self._served.serves(found, None):
            self._registry.note_stale(key, "")  # what was wrong with the files has been taken back
            return False
        is_new = not self._registry.versions_of(key)
        prepared = await self._prepare_found(found)
        if prepared is not None:
            await self._serve(prepared, loads_steps=loads_steps)
        return not is_new

    async def _prepare_found(self, found: FoundModel) -> PreparedModel | None:
        try:
            return await self._preparation.prepare(found.key.name, partial(fetch_source, found, None))
        except Exception as error:  # whatever is wrong with one model ends neither the start nor the polling
            if isinstance(error, NotFound) and not await self._is_there(found):
                return None  # gone again; the next look tells
            raise self._refused(found.key, error) from None

    async def _is_there(self, found: FoundModel) -> bool:
        try:
            return await self._threads.call(found.store.look, found.key.name) is not None
        except Exception:
            return True  # nobody knows; the first error says more

    def _refused(self, key: ModelKey, error: Exception) -> TritonError:
        """Tell the log, and the index unless something else serves, why a model cannot even be tried."""
        reason = logged_reason(f"'{key}'", error)
        if not self._registry.versions_of(key):
            self._registry.refuse(key, reason)
        return TritonError(reason, error.code if isinstance(error, TritonError) else ErrorCode.UNAVAILABLE)

    async def _load(
        self, name: str, config_override: str | None, files: Mapping[str, bytes] | None, force: bool
    ) -> bool:
        """See `load`; whether there was anything to do."""
        async with self._turns.lock(name):
            return await self._load_now(name, config_override, files, force)

    async def _load_now(
        self, name: str, config_override: str | None, files: Mapping[str, bytes] | None, force: bool
    ) -> bool:
        self.composing.implied.discard(name)
        if files:
            await self._prepare_and_serve(name, partial(lay_out_source, name, config_override, files))
            self._wanted.discard(name)  # changes in the repository are none of its own
            return True
        try:
            models = await self._threads.call(self.repositories.find, name)
        except Exception as error:
            raise _not_polled(name, error) from None
        self._wanted.add(name)
        for found in models:
            ensemble = self._served.ensembles.get(found.key)
            if ensemble is not None:  # also if its own files have not changed
                await self.composing.see_to(found.key, ensemble.model_names, loads=True)
        changed = [found for found in models if force or not self._served.serves(found, config_override)]
        for found in models if config_override is None else ():
            if found not in changed:
                await self._check_overridden(name, found)
        for found in changed:
            await self._prepare_and_serve(name, partial(fetch_source, found, config_override), anew=force)
        return bool(changed)

    async def _check_overridden(self, name: str, found: FoundModel) -> None:
        """Tell whoever loads a model that keeps a configuration sent before, if its own cannot be tried."""
        source = self._served.source_of(found.key)
        if source is None or not source.is_overridden:
            return
        try:
            await self._preparation.check(source.directory)
        except Exception as error:
            raise _not_polled(name, error) from None

    async def _prepare_and_serve(
        self, name: str, fetch: Callable[[], ModelSource], *, anew: bool = True
    ) -> None:
        try:
            prepared = await self._preparation.prepare(name, fetch)
        except Exception as error:
            raise _not_polled(name, error) from None
        await self._serve(prepared, anew=anew, loads_steps=True)

    async def _serve(self, prepared: PreparedModel, *, anew: bool = False, loads_steps: bool = False) -> None:
        """Load what was prepared, and for an ensemble with `loads_steps` what it is made of, too."""
        try:
            if prepared.is_ensemble:
                names = [step.model_name for step in prepared.config.ensemble_scheduling.step]
                await self.composing.see_to(prepared.source.key, names, loads=loads_steps)
            await self._served.load(prepared, anew=anew)
        except BaseException:
            if not self._served.keeps(prepared):
                await prepared.discard()
            raise

    async def _load_step(self, found: FoundModel) -> None:
        await self._prepare_and_serve(found.key.name, partial(fetch_source, found, None), anew=False)

    async def _unload(self, name: str, unload_dependents: bool) -> None:
        async with self._turns.lock(name):
            step_names = self._retire(name)
        for needless in self.composing.needless(step_names) if unload_dependents else ():
            await self._unload(needless, unload_dependents)

    def _retire(self, name: str) -> list[str]:
        """Returns the models that it was made of."""
        step_names: dict[str, None] = {}
        for key in self._registry.keys_of(name):
            ensemble = self._served.ensembles.get(key)
            step_names.update(dict.fromkeys(ensemble.model_names if ensemble is not None else ()))
        self.composing.implied.discard(name)
        self._wanted.discard(name)
        for key in self._registry.keys_of(name):
            self._served.retire(key)
            self._registry.excuse(key)
        return list(step_names)

    async def _remove_later(self, key: ModelKey, reason: str) -> None:
        async with self._turns.lock(key.name):
            self._remove(key, reason)

    def _remove(self, key: ModelKey, reason: str) -> None:
        self._served.retire(key)
        self._registry.forget(key)
        if reason:
            self._registry.refuse(key, reason)


@dataclass(frozen=True, slots=True)
class _Due:
    """A reload that waits for its turn, and where the model was seen last."""

    task: asyncio.Task[bool]
    found: FoundModel


def _not_polled(name: str, error: Exception) -> Internal:
    name = shown(name)
    reason = logged_reason(f"model '{name}'", error, "poll")
    return Internal(f"failed to load '{name}', failed to poll from model repository: {reason}")
