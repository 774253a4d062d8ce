"""Loading and unloading on request: whether it is allowed, and how models ask for it from their workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.loading.gate import LoadGate
from tritonpy.lifecycle.manager import ModelManager
from tritonpy.lifecycle.record import UNLOADED, ModelState
from tritonpy.lifecycle.registry import NOT_READY
from tritonpy.own_thread import SharedCall
from tritonpy.workers.worker_services import Caller

MOST_REQUESTS = 1000
"""How many requests to load and unload models may be under way at once."""


class ModelControl:
    """Requests to load and unload models, and the repository index; on the loop only.

    Args:
        manager: loads and unloads.
        is_explicit: the control mode is *explicit*; in all others requests are refused.

    Attributes:
        registry: the records of all models.
    """

    def __init__(self, manager: ModelManager, *, is_explicit: bool) -> None:
        self._manager = manager
        self.registry = manager.registry
        self._is_explicit = is_explicit
        self._is_serving = False
        self._request_count = 0
        self._listed = SharedCall(manager.repositories.listed)

    def set_serving(self, is_serving: bool) -> None:
        """Take requests from now on, or no more."""
        self._is_serving = is_serving

    def check_serving(self) -> None:
        """Refuse what comes too early or too late.

        Raises:
            Unavailable: the server has not started, or stops.
        """
        if not self._is_serving:
            raise Unavailable(NOT_READY)

    async def load(
        self,
        name: str,
        config_override: str | None = None,
        files: Mapping[str, bytes] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """See `ModelManager.load`.

        Raises:
            Unavailable: not now, or not in this control mode.
        """
        with self._request(name):
            await self._manager.load(name, config_override, files, force=force)

    async def unload(self, name: str, unload_dependents: bool = False) -> None:
        """See `ModelManager.unload`.

        Raises:
            Unavailable: not now, or not in this control mode.
        """
        with self._request(name):
            await self._manager.unload(name, unload_dependents)

    async def offer(self, name: str, config: JsonObject, files: Mapping[str, bytes], backend: object) -> None:
        """See `ModelManager.offer`.

        Raises:
            Unavailable: not now.
        """
        with self._counted(name):
            await self._manager.offer(name, config, files, backend)

    async def withdraw(self, name: str, backend: str) -> None:
        """See `ModelManager.withdraw`; a server that stops takes everything down anyway."""
        if self._is_serving:
            await self._manager.withdraw(name, backend)

    def unload_soon(self, name: str, unload_dependents: bool = False) -> None:
        """See `ModelManager.unload_soon`.

        Raises:
            Unavailable: not now, or not in this control mode.
        """
        self.check_allowed()
        self._manager.unload_soon(name, unload_dependents)

    async def is_ready(self, name: str, version: str) -> bool:
        """True if a version, or the newest for "", takes requests and says so; False for an unknown one.

        Raises:
            InvalidArg: `version` is no number.
        """
        return not await self.why_not_ready(name, version)

    async def why_not_ready(self, name: str, version: str) -> str:
        """The reason why a version, or the newest for "", is not ready; "" when it is.

        Raises:
            InvalidArg: `version` is no number.
        """
        ambiguity = self.registry.ambiguity_of(name)
        if ambiguity:
            return ambiguity
        try:
            model = self.registry.find(name, version)
        except TritonError as error:
            if isinstance(error, InvalidArg):
                raise
            reasons = [
                row["reason"]
                for row in self.registry.unready()
                if row["name"] == name and row.get("reason") and version in ("", row.get("version"))
            ]
            return "; ".join([error.message, *reasons])
        if await model.probe():
            return ""
        return model.down_reason or (
            f"model '{name}' version {model.version} was asked, and says that it is not ready"
        )

    async def index(self, ready: bool = False) -> list[JsonObject]:
        """Every version that was ever loaded or tried with its state, and the names of all other models.

        With `ready`, only versions that serve.
        """
        if ready:
            return self.registry.index(ready)
        lying = await self._listed.get()
        twice = {key.name: reason for key, reason in lying.items() if reason}
        rows: list[JsonObject] = []
        for row in self.registry.index():
            if row["name"] in twice and "version" not in row:
                continue  # told below
            if row["name"] not in twice or row.get("reason") != UNLOADED:
                rows.append(row)
        rows.extend({"name": key.name} for key in lying if not (lying[key] or self.registry.shows(key)))
        rows.extend(
            {"name": name, "state": str(ModelState.UNAVAILABLE), "reason": reason}
            for name, reason in twice.items()
        )
        return sorted(rows, key=lambda row: str(row["name"]))

    def check_allowed(self) -> None:
        """Refuse what comes too early or too late, or in a mode in which nothing is loaded on request.

        Raises:
            Unavailable: in Triton's words.
        """
        self.check_serving()
        if not self._is_explicit:
            raise Unavailable("explicit model load / unload is not allowed if polling is enabled")

    @contextmanager
    def _request(self, name: str) -> Iterator[None]:
        """One of the requests that are under way, where they are allowed."""
        self.check_allowed()
        with self._counted(name):
            yield

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        """One of the requests that are under way; each holds what it brought until it is done."""
        self.check_serving()
        if self._request_count >= MOST_REQUESTS:
            raise Unavailable(
                f"{self._request_count} requests to load or unload models are under way, and no more than "
                f"{MOST_REQUESTS} are taken at once; ask again for '{name}' when some are done"
            )
        self._request_count += 1
        try:
            yield
        finally:
            self._request_count -= 1


class WorkerModelControl:
    """Answers models that load and unload others, or themselves; satisfies `Subject`.

    A load is waited for. A model that waits in its `initialize` for a load that waits for this `initialize`
    would wait without end, so such a circle is refused; and for that time the model's own load gives its
    place away, or the load that it waits for might find none. A warmup is as good as an `initialize`.

    An unload is not waited for: it may be the asking model, or one that waits for its answer, that has to
    finish first.
    """

    def __init__(self, control: ModelControl, gate: LoadGate | None = None) -> None:
        self._control = control
        self._gate = gate or LoadGate(1)
        self._registry = control.registry

    async def ask(self, caller: Caller, what: str, args: tuple[Any, ...]) -> Any:  # Any: plain values
        """Answer `load`, `unload` and `ready`; see `Subject`."""
        try:
            match what:
                case "load":
                    return await self.load(caller, *args)
                case "unload":
                    return self._control.unload_soon(*args)
                case "ready":
                    self._control.check_serving()
                    return await self._control.is_ready(*args)
                case _:
                    raise Internal(f"this server does not answer 'models.{what}'")
        except TritonError as error:
            raise TritonError(
                f"Failed to process the request for model '{caller.instance}', message: {error}", error.code
            ) from None

    def tell(self, caller: Caller, what: str, args: tuple[Any, ...]) -> None:  # Any: plain values
        """See `Subject`; there is nothing to be told."""

    def caller_gone(self, caller: Caller) -> None:
        """See `Subject`; what it asked for goes on without it."""

    async def load(
        self,
        caller: Caller,
        name: str,
        config_override: str | None,
        files: Mapping[str, bytes] | None,
        is_initializing: bool,
    ) -> None:
        """Load a model for a caller, who waits for it.

        Args:
            caller: the worker that asks.
            name: of the model.
            config_override: its configuration as JSON; None for what lies in its directory.
            files: see `ModelManager.load`.
            is_initializing: the caller's model cannot go on with its own load before.

        Raises:
            TritonError: it cannot be loaded, or not now; what served before still does.
        """
        if not is_initializing and not caller.is_loading:
            await self._control.load(name, config_override, files)
            return
        chain = self._registry.wait_chain(name, caller.model)
        if chain:
            raise InvalidArg(
                f"'{caller.model}' cannot wait for '{name}' while it is itself being loaded, because that "
                f"would wait for it: {' -> '.join([caller.model, *chain])}"
            )
        with self._registry.waiting(caller.model, name):
            async with self._gate.step_aside((caller.model, caller.version)):
                await self._control.load(name, config_override, files)
