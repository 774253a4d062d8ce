"""The models that ensembles are made of: seen to before the ensemble is loaded, and unloaded after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from tritonpy.errors import TritonError
from tritonpy.lifecycle.served import ServedModels
from tritonpy.lifecycle.turns import Turns
from tritonpy.lifecycle.waits import Waits
from tritonpy.repository.key import ModelKey
from tritonpy.repository.repositories import FoundModel
from tritonpy.repository.store_threads import StoreThreads


class ComposingModels:
    """Sees to the models of ensembles; on the loop only.

    Args:
        served: what is served.
        turns: one load of a model at a time.
        wanted: names of all models that are wanted.
        find: says where a model lies; blocking.
        load: loads one.

    Attributes:
        waits: loads that wait for others.
        implied: names that are wanted for an ensemble's sake only.
    """

    def __init__(
        self,
        served: ServedModels,
        turns: Turns,
        wanted: set[str],
        find: Callable[[str], list[FoundModel]],
        load: Callable[[FoundModel], Awaitable[None]],
    ) -> None:
        self.waits = Waits()
        self.implied: set[str] = set()
        self._served = served
        self._turns = turns
        self._wanted = wanted
        self._threads = StoreThreads()
        self._find = find
        self._load = load

    async def see_to(self, ensemble: ModelKey, names: Iterable[str], *, loads: bool) -> None:
        """Wait for whatever is done with the models of an ensemble.

        Args:
            ensemble: whose models.
            names: what it calls them.
            loads: load them, where they are missing or their files have changed. One that cannot be loaded is
                no error here: whether the ensemble can do without is seen when it is bound.
        """
        await asyncio.gather(*(self._see_to(ensemble, name, loads) for name in dict.fromkeys(names)))

    def needless(self, names: Iterable[str]) -> list[str]:
        """Those that nobody has loaded by name, and that no ensemble needs any more."""
        return [name for name in names if name in self.implied and not self._served.ensembles.is_needed(name)]

    async def _see_to(self, ensemble: ModelKey, name: str, loads: bool) -> None:
        if self.waits.chain(name, ensemble.name) or not (loads or self._turns.is_taken(name)):
            return  # one that waits for this very ensemble will be found missing
        with self.waits.waiting(ensemble.name, name):
            async with self._turns.lock(name):
                if loads:
                    await self._load_if_changed(name, ensemble.namespace)

    async def _load_if_changed(self, name: str, namespace: str) -> None:
        try:
            models = await self._threads.call(partial(self._find, name))
        except Exception:  # whoever needs the model says that it is missing
            return
        if name not in self._wanted:
            self._wanted.add(name)
            self.implied.add(name)
        own = [found for found in models if found.key.namespace == namespace]
        for found in own or models:
            ensemble = self._served.ensembles.get(found.key)
            if ensemble is not None:  # what it is made of may have changed
                await self.see_to(found.key, ensemble.model_names, loads=True)
            if self._served.serves(found, None) or self._served.is_brought(found.key):
                continue
            try:
                await self._load(found)
            except TritonError:  # logged where it happened
                continue
