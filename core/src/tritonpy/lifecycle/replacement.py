"""The switch of a model to other versions, one step for clients and ensembles, and the end of the old."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from tritonpy.errors import InvalidArg, TritonError, Unavailable
from tritonpy.lifecycle.ensembles import Ensembles
from tritonpy.lifecycle.loading.ensemble_load import SettledEnsemble
from tritonpy.lifecycle.loading.settings import LoaderSettings
from tritonpy.lifecycle.prepared_model import PreparedModel
from tritonpy.lifecycle.record import ModelRecord
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.model.malloc_trim import give_memory_back
from tritonpy.model.model import LoadedModel

_log = logging.getLogger("tritonpy.repository")

STOPPING = "Server is stopping, scheduler for model has stopped accepting new inference requests"

_FINISH_S = 15.0


class Replacement:
    """Switches models to other versions, and closes the old ones when they have answered; on the loop only.

    Args:
        registry: the records of all models.
        settings: of the server.

    Attributes:
        ensembles: binds ensembles to the models that serve.
    """

    def __init__(self, registry: ModelRegistry, settings: LoaderSettings) -> None:
        self._registry = registry
        self.ensembles = Ensembles(registry, settings)
        self._retirements: dict[LoadedModel, asyncio.Task[None]] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._stop: asyncio.Future[TritonError] = asyncio.get_running_loop().create_future()
        self._closed_count = 0

    # While the server runs.

    def serve(self, record: ModelRecord, prepared: PreparedModel, models: Sequence[LoadedModel]) -> None:
        """Serve versions that were loaded anew; what was made for the load before ends with its versions."""
        before, record.served = record.served, prepared
        if not prepared.is_ensemble:
            record.ensemble = record.binding = None
            record.binding_failure = ""
        self._switch(record, models, before)
        _log_loaded(record, models)

    def serve_updated(
        self, record: ModelRecord, prepared: PreparedModel, models: Sequence[LoadedModel]
    ) -> None:
        """Serve versions of which some go on as they were; they keep the files that they were loaded from."""
        record.served = prepared
        self._switch(record, models, None)
        _log_loaded(record, models)

    def serve_ensemble(
        self, record: ModelRecord, prepared: PreparedModel, ensemble: SettledEnsemble
    ) -> Sequence[LoadedModel]:
        """Serve an ensemble, made of the models that serve now.

        Without one of them it waits for that one, and is served as soon as that one is.

        Raises:
            TritonError: it cannot be served now; what served before goes on.
        """
        before, record.ensemble = record.ensemble, ensemble
        try:
            models = self.ensembles.bind(record)
        except TritonError:
            if record.models:
                record.ensemble, record.binding_failure = before, ""
            else:
                left, record.served = record.served, prepared
                self._retire(record, (), left)
            raise
        self.serve(record, prepared, models)
        return models

    def refuse(self, record: ModelRecord, reason: str) -> None:
        """Record that a model cannot be served; ensembles made of it fail for the same reason."""
        record.refuse(reason)
        self._rebind(record)

    def stop_serving(self, record: ModelRecord) -> None:
        """Serve a model no more; what it has accepted is answered before it is finalised."""
        served, record.served = record.served, None
        record.ensemble = record.binding = None
        record.binding_failure = ""
        self._switch(record, (), served)

    def follow(self, work: Coroutine[object, object, None]) -> None:
        """Do bounded work for the end of a model in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ended)

    # At the end of the server.

    @property
    def live_models(self) -> list[LoadedModel]:
        """Every version that may still have requests to answer."""
        return self._registry.all_models() + list(self._retirements)

    @property
    def live_count(self) -> int:
        """The number of versions that are not taken down yet, also while `close` takes them down."""
        return len(self.live_models) - self._closed_count

    async def close(self) -> None:
        """Take everything down; what still waits is answered UNAVAILABLE."""
        error = Unavailable(STOPPING)
        models = self._registry.all_models()
        left = [record.served for record in self._registry.records() if record.served is not None]
        for record in self._registry.records():
            record.served = None
        for ensemble in models:  # before the models that work for them
            if ensemble.steps:
                await self._close_for_good(ensemble, error)
        await asyncio.gather(
            *(prepared.leave() for prepared in left),
            *(self._close_for_good(model, error) for model in models if not model.steps),
            self._finish_retirements(error),
        )
        await asyncio.gather(*(prepared.end() for prepared in left))

    async def _close_for_good(self, model: LoadedModel, error: TritonError) -> None:
        await close_all((model,), error)
        self._closed_count += 1  # its record keeps it: its statistics may still be read
        _log.info("successfully unloaded '%s' version %d", model.name, model.version)

    async def _finish_retirements(self, error: TritonError) -> None:
        if not self._stop.done():
            self._stop.set_result(error)
        tasks = list(self._retirements.values())
        # Each has nothing left to wait for; a backend that never answers must not hold the server up.
        _, late = await asyncio.wait(tasks, timeout=_FINISH_S) if tasks else ((), ())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        while self._ends:
            await asyncio.wait(self._ends)

    # One step.

    def _switch(
        self, record: ModelRecord, models: Sequence[LoadedModel], prepared: PreparedModel | None
    ) -> None:
        """Serve these versions and no others; ensembles are made of them in the same step.

        Args:
            record: the model.
            models: its versions from now on.
            prepared: what ends with the versions that served until now; None for nothing.
        """
        left = record.switch(models)
        self._rebind(record)
        self._retire(record, left, prepared)

    def _rebind(self, record: ModelRecord) -> None:
        """Serve the ensembles made of a model with what serves of it now, or no more if they do not fit."""
        for affected in self.ensembles.affected_by(record.key):
            try:
                models = self.ensembles.bind(affected)
            except InvalidArg as error:
                _log.error("ensemble '%s' cannot be served: %s", affected.key, error)
                affected.binding = None
                if affected.models:
                    self._retire(affected, affected.switch(()), None)
                elif affected.refusal:
                    affected.refuse(error.described())
                continue
            if models != affected.models:
                self._retire(affected, affected.switch(models), None)
                _log_loaded(affected, models)
            if affected.served is not None and not affected.served.has_served:
                self.follow(affected.served.loaded())

    def _retire(
        self, record: ModelRecord, models: Sequence[LoadedModel], prepared: PreparedModel | None
    ) -> None:
        """Have versions closed when they have answered; with the last one ends what was made for its load."""
        remaining = set(models)
        if prepared is not None and not models:  # an ensemble that was not served
            self.follow(_leave_at_once(prepared))
        elif prepared is not None:
            self.follow(prepared.leave())

        def on_closed(model: LoadedModel) -> None:
            record.left(model)
            remaining.discard(model)
            if not remaining and prepared is not None:
                self.follow(prepared.end())

        for model in models:
            task = asyncio.get_running_loop().create_task(self._close_when_answered(model, on_closed))
            self._retirements[model] = task
            task.add_done_callback(partial(self._closed, model))

    async def _close_when_answered(
        self, model: LoadedModel, on_closed: Callable[[LoadedModel], None]
    ) -> None:
        answered = asyncio.ensure_future(_answered(model))
        try:
            await asyncio.wait((answered, self._stop), return_when=asyncio.FIRST_COMPLETED)
            unloaded = Unavailable(f"model '{model.name}' version {model.version} was unloaded")
            await _close(model, self._stop.result() if self._stop.done() else unloaded)
            _log.info("successfully unloaded '%s' version %d", model.name, model.version)
        finally:
            answered.cancel()
            on_closed(model)

    def _closed(self, model: LoadedModel, task: asyncio.Task[None]) -> None:
        del self._retirements[model]
        if not self._retirements:
            # A model's parts refer to each other, and what it holds (weights, shared memory) may be large: it
            # would stay until the collector comes by, which an idle server may not see for hours. What was
            # there when the server started is frozen, so this takes a moment only.
            asyncio.get_running_loop().call_soon(_tidy_up)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ends.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the end of a model failed", exc_info=error)


async def close_all(models: Sequence[LoadedModel], error: TritonError) -> None:
    """Close versions at once; what they have not answered is answered with `error`."""
    await asyncio.gather(*(_close(model, error) for model in models))


async def _answered(model: LoadedModel) -> None:
    await model.unused()  # by ensembles, which still send it requests
    await model.drain()


async def _close(model: LoadedModel, error: TritonError) -> None:
    try:
        await model.close(error)
    except Exception:
        _log.exception("closing '%s' version %d failed", model.name, model.version)


async def _leave_at_once(prepared: PreparedModel) -> None:
    await prepared.leave()
    await prepared.end()


def _tidy_up() -> None:
    gc.collect()
    asyncio.get_running_loop().run_in_executor(None, give_memory_back)


def _log_loaded(record: ModelRecord, models: Sequence[LoadedModel]) -> None:
    """Write one line for a load, however many versions it has brought up."""
    if models:
        versions = ", ".join(str(model.version) for model in models)
        name = record.key.name
        _log.info("successfully loaded '%s' version%s %s", name, "s" if len(models) > 1 else "", versions)
