"""A backend plugin as the server uses it: hooks bound once, initialised with its first model."""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

from tritonpy.errors import Internal, TritonError, exception_text
from tritonpy.handles import EXECUTIONS, Backend, BackendAttributes, Model
from tritonpy.plugin_files import PluginOpener
from tritonpy.plugin_manager import Hook, PluginManager, source_file

Aside = Callable[[], AbstractAsyncContextManager[object]]
"""Makes a context in which a load waits; it gives away meanwhile what other loads could use."""


class LoadTurn:
    """Lets one loading hook of a backend run at a time; owned by the loop.

    Of the loads that wait the one that began first is next. So each is done early, and not all of them last.
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def number(self) -> int:
        """A number for a load that begins."""
        return next(self._numbers)

    @asynccontextmanager
    async def take(self, number: int, aside: Aside) -> AsyncIterator[None]:
        """Hold the turn while inside.

        Args:
            number: of the load.
            aside: where it waits, if it has to.
        """
        if self._is_taken:
            await self._wait(number, aside)
        self._is_taken = True
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, number: int, aside: Aside) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (number, next(self._numbers), turn))
        try:
            async with aside():
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it has come meanwhile
                self._hand_on()
            turn.cancel()
            raise

    def _hand_on(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False


def hook_failure(where: str, exc: BaseException) -> TritonError:
    """The error for a plugin's exception: its own code and text, or INTERNAL with type and text."""
    if isinstance(exc, TritonError):
        return exc
    return Internal(f"{where}: {exception_text(exc)}")


class BoundBackend:
    """The hooks of one backend and the handle they receive.

    Args:
        name: as models write it.
        manager: the manager of kind `backends`.
        settings: what `--backend-config` says for this backend.
        runner: the plugin with these hooks, when its name is not `name`.
        directory: where the files lie that make it a backend of another name.
        completes_config: models may leave out what it can find out.
        library: a shared object with these hooks, instead of a plugin; None for a plugin.
        loaders: what opens shared objects; those that are installed.

    Attributes:
        library: as given, or that of a plugin which is a library.
        source: the file that the plugin was imported from, or the library; "" for one that has none.
        load_turn: of the loading hooks that run in the server's process, unless several may at once.
        open_turn: of `acquire`, in any case.

    Raises:
        TritonError: the plugin is missing or broken, or lacks `model_instance_execute`.
    """

    def __init__(
        self,
        name: str,
        manager: PluginManager,
        settings: Mapping[str, str],
        *,
        runner: str = "",
        directory: Path | None = None,
        completes_config: bool = True,
        library: Path | None = None,
        loaders: PluginManager | None = None,
    ) -> None:
        self.name = name
        plugin = library or manager.load(runner or name)
        self.library = plugin if isinstance(plugin, Path) else None
        if self.library is not None:
            bound = PluginOpener(manager, loaders or PluginManager("loaders"), "backend").open(self.library)
            self.source = str(self.library)
        else:
            bound = partial(manager.bind, plugin)
            self.source = source_file(plugin)
        self.handle = Backend(name, settings, directory=directory, completes_config=completes_config)
        self.load_turn = LoadTurn()
        self.open_turn = LoadTurn()
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._users = 0

        self.initialize = bound("backend_initialize")
        self.finalize = bound("backend_finalize")
        self.model_execution = bound("model_execution")
        self.worker_command = bound("worker_command")
        self.worker_serve = bound("worker_serve")
        self.model_auto_complete_config = bound("model_auto_complete_config")
        self.model_initialize = bound("model_initialize")
        self.model_finalize = bound("model_finalize")
        self.instance_initialize = bound("model_instance_initialize")
        self.instance_finalize = bound("model_instance_finalize")
        self.instance_ready = bound("model_instance_ready")
        self.batching = {hook: bound(hook) for hook in BATCHING_HOOKS}
        self.execute = bound("model_instance_execute")
        self._ask_attributes = bound("backend_attributes")
        self._attributes: BackendAttributes | None = None
        if self.execute is None and self.worker_command is None:
            raise Internal(f"backend '{name}' does not implement model_instance_execute")

    @property
    def attributes(self) -> BackendAttributes:
        """The backend's attributes; it is asked for them once, which may take long. Blocking.

        On any thread; a worker never asks.

        Raises:
            TritonError: it fails to say.
        """
        if self._attributes is None:
            with self._asking:
                if self._attributes is None:
                    self._attributes = self._read_attributes(self._ask_attributes)
        return self._attributes

    def _read_attributes(self, hook: Hook | None) -> BackendAttributes:
        if hook is None:
            return BackendAttributes()
        try:
            attributes = hook(self.handle)
        except Exception as exc:
            raise hook_failure(f"backend '{self.name}' failed to give its attributes", exc) from exc
        if not isinstance(attributes, BackendAttributes):
            kind = type(attributes).__name__
            raise Internal(
                f"backend_attributes of backend '{self.name}' returned {kind}; expected BackendAttributes"
            )
        return attributes

    def execution_of(self, model: Model) -> str:
        """The kind of a model's instances, `thread` or `process`, as far as the backend decides. Blocking.

        Raises:
            TritonError: the backend says neither, or fails to say.
        """
        hook = self.model_execution
        if hook is None:
            return self.attributes.execution
        try:
            execution = hook(model)
        except Exception as exc:
            where = f"backend '{self.name}' failed to say how model '{model.name}' is executed"
            raise hook_failure(where, exc) from exc
        if execution is None:
            return self.attributes.execution
        if execution not in EXECUTIONS:
            raise Internal(
                f"model_execution of backend '{self.name}' returned {execution!r} for model '{model.name}'; "
                f"expected 'thread', 'process' or None"
            )
        return str(execution)

    @property
    def has_life(self) -> bool:
        """True if it has a hook to be initialised before its first model, or finalised after its last one."""
        return self.initialize is not None or self.finalize is not None

    def acquire(self) -> None:
        """Count one more model in this process; the first one initialises the backend. Blocking."""
        with self._lock:
            if self._users == 0 and self.initialize is not None:
                try:
                    self.initialize(self.handle)
                except Exception as exc:
                    raise hook_failure(f"backend '{self.name}' failed to initialize", exc) from exc
            self._users += 1

    def release(self) -> None:
        """Count one model less; after the last one the backend is finalised. Blocking."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and self.finalize is not None:
                self.finalize(self.handle)


BATCHING_HOOKS = (
    "model_batcher_initialize",
    "model_batcher_finalize",
    "model_batch_initialize",
    "model_batch_include_request",
    "model_batch_finalize",
    "model_batch_include_requests",
    "model_batcher_admit_request",
    "model_batch_padded_size",
)
"""The first five are required of a strategy."""
