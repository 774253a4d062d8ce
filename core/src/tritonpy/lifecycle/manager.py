"""Loads and unloads of all models: at the start, on request, after changes of files, for ensembles.

Loads and unloads of one model run one after the other (each name has a lock); different models do not wait
for each other, but an ensemble waits for the models it is made of. Once begun, a load goes on even if the
client that asked for it has gone away. A load itself stands in `load.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tritonpy.errors import AlreadyExists, ErrorCode, Internal, InvalidArg, NotFound, TritonError
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.background import Background
from tritonpy.lifecycle.load import ModelLoad, logged_reason
from tritonpy.lifecycle.prepared_model import PreparedModel
from tritonpy.lifecycle.record import DueReload, ModelRecord, Want
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.lifecycle.replacement import Replacement
from tritonpy.model.model import LoadedModel
from tritonpy.own_thread import StoreThreads
from tritonpy.repository.layout import ModelKey, check_model_name, shown
from tritonpy.repository.repositories import FoundModel, Look, Repositories
from tritonpy.repository.source import ModelSource, fetch_source, lay_out_source

_log = logging.getLogger("tritonpy.repository")

ALL_MODELS = "*"
"""Stands for every model of the repositories where names of models to load at the start are given."""


class ModelManager:
    """Loads and unloads models; owned by the loop.

    Args:
        repositories: where models lie.
        registry: the records of all models.
        replacement: switches models to other versions, and ends them.
        load: loads one model.
        load_thread_count: how many models are prepared at once at the start.

    Attributes:
        repositories: as given.
        registry: as given.
    """

    def __init__(
        self,
        repositories: Repositories,
        registry: ModelRegistry,
        replacement: Replacement,
        load: ModelLoad,
        *,
        load_thread_count: int = 4,
    ) -> None:
        self.repositories = repositories
        self.registry = registry
        self._replacement = replacement
        self._load = load
        self._background = Background()
        self._threads = StoreThreads()
        self._start_gate = asyncio.Semaphore(load_thread_count)

    # At the start.

    async def load_all(self, look: Look | None = None) -> bool:
        """Load every model of every repository; whether all of them could be loaded.

        Args:
            look: the repositories, if they have been looked at already.

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
            self.registry.record(ModelKey(name)).refuse(reason)
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
        self.registry.named(name).want = Want.BY_NAME
        async with self._start_gate:
            try:
                await self.load(name)
            except TritonError:  # logged where it happened
                return False
            return True

    async def _load_at_start(self, found: FoundModel) -> bool:
        async with self.registry.turn(found.key.name) as named:
            named.want = Want.BY_NAME
            try:
                async with self._start_gate:
                    prepared = await self._prepare_found(found)
                    if prepared is not None and not prepared.is_ensemble:
                        await self._run(prepared)
                if prepared is not None and prepared.is_ensemble:  # it waits for others, which need the gate
                    await self._run(prepared)
            except TritonError:  # logged where it happened
                return False
            return True

    # On request.

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
            config_override: its configuration as JSON; None for the one in its directory.
            files: contents by path, such as `file:1/model.py`; with any, these are all the files there are.
            force: load it even if nothing has changed; what an earlier load brought is dropped.

        Raises:
            TritonError: in Triton's words; what served before still does.
        """
        check_model_name(name)
        work = (
            self._load_sent(name, config_override, files)
            if files
            else self._load_lying(name, config_override, force)
        )
        if not await self._background.finish(work):
            _log.info("'%s' is loaded and has not changed", name)

    async def _load_sent(self, name: str, config_override: str | None, files: Mapping[str, bytes]) -> bool:
        """Load files that came with a request."""
        async with self.registry.turn(name) as named:
            named.want_by_name(only_implied=True)
            await self._load_from(name, partial(lay_out_source, name, config_override, files), anew=True)
            named.want = Want.NOT  # changes in the repository are none of its own
            return True

    async def offer(self, name: str, config: JsonObject, files: Mapping[str, bytes], backend: object) -> None:
        """Serve a model that lies in no repository; see `Dataplane.offer_model`."""
        check_model_name(name)
        await self._background.finish(self._offer(name, config, files, backend))

    async def _offer(
        self, name: str, config: JsonObject, files: Mapping[str, bytes], backend: object
    ) -> None:
        async with self.registry.turn(name) as named:
            record = self.registry.record(ModelKey(name))
            for claimed in named.claimed:
                served = claimed.served
                if claimed is not record or (
                    served is not None
                    and not (claimed.is_sent and served.config.backend == config.get("backend"))
                ):
                    raise AlreadyExists(
                        f"model '{name}' is served already, from a model repository or a load request; "
                        f"unload it, or take another name"
                    )
            try:
                prepared = await self._load.prepare(
                    name, partial(lay_out_source, name, json.dumps(config), files)
                )
                await self._adopt(prepared, backend)
                await self._run(prepared, anew=True)
            except TritonError:
                if not record.models:
                    record.excuse()  # who offered it knows; the server may be ready without it
                raise
            named.want = Want.NOT

    async def _adopt(self, prepared: PreparedModel, backend: object) -> None:
        try:
            self._load.adopt_backend(prepared.config.backend, backend)
        except TritonError:
            await prepared.discard()
            raise

    async def withdraw(self, name: str, backend: str) -> None:
        """Take an offered model out of service; see `Dataplane.withdraw_model`."""
        await self._background.finish(self._withdraw(name, backend))

    async def _withdraw(self, name: str, backend: str) -> None:
        async with self.registry.turn(name) as named:
            for record in named.known:
                served = record.served
                if served is not None and record.is_sent and served.config.backend == backend:
                    self._retire(name)
                    return

    async def _load_lying(self, name: str, config_override: str | None, force: bool) -> bool:
        """Load a model of the repositories; whether there was anything to do."""
        async with self.registry.turn(name) as named:
            named.want_by_name(only_implied=True)
            try:
                models = await self._threads.call(self.repositories.find, name)
            except Exception as error:
                raise _not_polled(name, error) from None
            named.want = Want.BY_NAME
            changed = []
            for found in models:
                record = self.registry.record(found.key)
                if record.ensemble is not None:  # also if its own files have not changed
                    await self._await_steps(record, record.ensemble.model_names, loads=True)
            for found in models:
                record = self.registry.record(found.key)
                if force or not record.serves(found, config_override):
                    changed.append(found)
                elif config_override is None:
                    await self._check_overridden(name, record)
            for found in changed:
                await self._load_from(name, partial(fetch_source, found, config_override), anew=force)
            return bool(changed)

    async def _check_overridden(self, name: str, record: ModelRecord) -> None:
        """Refuse to keep a configuration sent before, without a word, if the model's own cannot be tried."""
        if record.served is None or not record.served.source.is_overridden:
            return
        try:
            await self._load.check(record.served.source.directory)
        except Exception as error:
            raise _not_polled(name, error) from None

    async def unload(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service, after a load of it that is under way.

        Returns before the requests it has accepted are answered; it is finalised after that. A name that
        nothing is loaded under is no error, as in Triton.

        Args:
            name: the model.
            unload_dependents: the models that an ensemble is made of, too; not those that were loaded by
                name, or that another ensemble is made of.
        """
        await self._background.finish(self._unload(name, unload_dependents))

    def unload_soon(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service now or, while a load of it is under way, after that."""
        if unload_dependents or self.registry.is_busy(name):
            self._background.start(self._unload(name, unload_dependents))
        else:
            self._retire(name)

    async def _unload(self, name: str, unload_dependents: bool) -> None:
        async with self.registry.turn(name):
            step_names = self._retire(name)
        for step_name in step_names if unload_dependents else ():
            named = self.registry.lookup(step_name)
            is_implied = named is not None and named.want is Want.AS_STEP
            if is_implied and not self._replacement.ensembles.is_needed(step_name):
                await self._unload(step_name, unload_dependents)

    def _retire(self, name: str) -> list[str]:
        """Returns the names of the models that it was made of."""
        named = self.registry.lookup(name)
        if named is None:
            return []
        named.want = Want.NOT
        ensembles = [record.ensemble for record in named.known if record.ensemble is not None]
        for record in named.known:
            self._replacement.stop_serving(record)
            record.excuse()
        return list(dict.fromkeys(step for ensemble in ensembles for step in ensemble.model_names))

    # When files change.

    def reload_soon(self, found: FoundModel, *, only_wanted: bool) -> asyncio.Task[bool]:
        """Load a model whose files have changed, in the background; the result is logged.

        Args:
            found: the model, where it lies now.
            only_wanted: leave a model alone that was never asked for, or that was unloaded, or whose files
                came with a load request. One that could not be loaded is wanted: it may have been mended.

        Returns:
            Whether the model was tried; not if its files could not be had for now.
        """
        record = self.registry.record(found.key)
        # One that still waits for its turn will see what has changed.
        task = (
            record.due.task
            if record.due is not None
            else self._background.start(self._reload(record, only_wanted))
        )
        record.due = DueReload(task, found)
        return task

    def remove_soon(self, key: ModelKey, reason: str = "") -> None:
        """Take a model out of service that lies in no repository any more; after a load that is under way.

        Args:
            key: the model.
            reason: why it is not served any more, if it still lies there.
        """
        record = self.registry.record(key)
        record.due = None  # one that waits has nothing to load; one from now on comes after this
        if self.registry.is_busy(key.name):
            self._background.start(self._remove_later(record, reason))
        else:
            self._remove(record, reason)

    async def _reload(self, record: ModelRecord, only_wanted: bool) -> bool:
        key = record.key
        async with self.registry.turn(key.name) as named:
            due = record.due
            if due is None or due.task is not asyncio.current_task():
                return True
            record.due = None
            if only_wanted and not named.is_wanted:
                return True
            try:
                if await self._load_changed(record, due.found, loads_steps=only_wanted):
                    _log.info("reloaded '%s', whose files have changed", key)
            except TritonError as error:  # logged where it happened
                if record.models:
                    reason = f"the files have changed; what was loaded before goes on serving: {error}"
                    record.note_stale(reason.strip())
                    _log.warning(
                        "the files of '%s' have changed; what was loaded before goes on serving", key
                    )
                return error.code is not ErrorCode.UNAVAILABLE
            return True

    async def _load_changed(self, record: ModelRecord, found: FoundModel, *, loads_steps: bool) -> bool:
        """Load the files as they are now; whether that took the place of something else.

        Only this one repository is asked: the others may not answer.
        """
        record.named.want_by_name()
        try:
            fingerprint = await self._threads.call(found.store.look, record.key.name)
        except Exception as error:
            raise self._refused(record, error) from None
        if fingerprint is None:  # gone again; the next look tells
            return False
        found = replace(found, fingerprint=fingerprint)
        if record.serves(found, None):
            record.note_stale("")  # what was wrong with the files has been taken back
            return False
        is_new = not record.models
        prepared = await self._prepare_found(found)
        if prepared is not None:
            await self._run(prepared, loads_steps=loads_steps)
        return not is_new

    async def _remove_later(self, record: ModelRecord, reason: str) -> None:
        async with self.registry.turn(record.key.name):
            self._remove(record, reason)

    def _remove(self, record: ModelRecord, reason: str) -> None:
        self._replacement.stop_serving(record)
        record.forget()
        if reason:
            record.refuse(reason)

    # At the end.

    @property
    def live_models(self) -> list[LoadedModel]:
        """Every version that may still have requests to answer."""
        return self._replacement.live_models

    @property
    def live_count(self) -> int:
        """The number of versions that are not taken down yet."""
        return self._replacement.live_count

    async def stop_loading(self) -> None:
        """Give up loads that are under way; there must be no new ones."""
        await self._background.stop()

    async def unload_all(self) -> None:
        """Take down every loaded version; what still waits is answered UNAVAILABLE."""
        await self._replacement.close()

    # One load.

    async def _load_from(self, name: str, fetch: Callable[[], ModelSource], *, anew: bool) -> None:
        try:
            prepared = await self._load.prepare(name, fetch)
        except Exception as error:
            raise _not_polled(name, error) from None
        await self._run(prepared, anew=anew, loads_steps=True)

    async def _run(self, prepared: PreparedModel, *, anew: bool = False, loads_steps: bool = False) -> None:
        """Load what was prepared, and for an ensemble with `loads_steps` the models it is made of, too."""
        await self._load.run(prepared, partial(self._await_steps, loads=loads_steps), anew=anew)

    async def _prepare_found(self, found: FoundModel) -> PreparedModel | None:
        try:
            return await self._load.prepare(found.key.name, partial(fetch_source, found, None))
        except Exception as error:  # no fault of one model ends the start or the polling
            if isinstance(error, NotFound) and not await self._is_there(found):
                return None  # gone again; the next look tells
            raise self._refused(self.registry.record(found.key), error) from None

    async def _is_there(self, found: FoundModel) -> bool:
        try:
            return await self._threads.call(found.store.look, found.key.name) is not None
        except Exception:
            return True  # it cannot be told; the first error says more

    def _refused(self, record: ModelRecord, error: Exception) -> TritonError:
        """Tell the log, and the index unless something else serves, why a model cannot even be tried."""
        reason = logged_reason(f"'{record.key}'", error)
        if not record.models:
            record.refuse(reason)
        return TritonError(reason, error.code if isinstance(error, TritonError) else ErrorCode.UNAVAILABLE)

    # The models that ensembles are made of.

    async def _await_steps(self, ensemble: ModelRecord, names: Iterable[str], *, loads: bool) -> None:
        """Wait for loads and unloads of the models of an ensemble.

        Args:
            ensemble: the ensemble.
            names: of the models in its steps.
            loads: load them, where they are missing or their files have changed. One that cannot be loaded is
                no error here: whether the ensemble can do without is seen when it is bound.
        """
        waits = (self._see_to_step(ensemble.key, name, loads) for name in dict.fromkeys(names))
        await asyncio.gather(*waits)

    async def _see_to_step(self, ensemble: ModelKey, name: str, loads: bool) -> None:
        registry = self.registry
        if registry.wait_chain(name, ensemble.name) or not (loads or registry.is_busy(name)):
            return  # one that waits for this very ensemble will be found missing
        with registry.waiting(ensemble.name, name):
            async with registry.turn(name) as named:
                if not loads:
                    return
                try:
                    models = await self._threads.call(self.repositories.find, name)
                except Exception:  # the ensemble says that the model is missing
                    return
                if not named.is_wanted:
                    named.want = Want.AS_STEP
                own = [found for found in models if found.key.namespace == ensemble.namespace]
                for found in own or models:
                    await self._load_step(found)

    async def _load_step(self, found: FoundModel) -> None:
        record = self.registry.record(found.key)
        if record.ensemble is not None:  # what it is made of may have changed
            await self._await_steps(record, record.ensemble.model_names, loads=True)
        if record.serves(found, None) or record.is_sent:
            return
        try:
            await self._load_from(found.key.name, partial(fetch_source, found, None), anew=False)
        except TritonError:  # logged where it happened
            return


def _not_polled(name: str, error: Exception) -> Internal:
    name = shown(name)
    reason = logged_reason(f"model '{name}'", error, "poll")
    return Internal(f"failed to load '{name}', failed to poll from model repository: {reason}")
