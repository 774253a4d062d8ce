"""Run a server: as a program until a signal stops it, or inside another program."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from tritonpy.devices.device import DeviceFinder
from tritonpy.errors import TritonError, Unavailable
from tritonpy.options import ServerOptions
from tritonpy.runtime import CREATING, Plugins, ServerRuntime
from tritonpy.stop_signals import StopSignals
from tritonpy.version import __version__

_log = logging.getLogger("tritonpy.server")


def run(options: ServerOptions, *, gc_threshold: tuple[int, int, int] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit status of the program.

    Args:
        options: of the server.
        gc_threshold: of the collector, from when the server has started; None leaves it as it is.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_serve(options, gc_threshold or gc.get_threshold()))


async def _serve(options: ServerOptions, gc_threshold: tuple[int, int, int]) -> int:
    with ExitStack() as stack:
        return await _serve_until_told(options, gc_threshold, stack)


async def _serve_until_told(
    options: ServerOptions, gc_threshold: tuple[int, int, int], stack: ExitStack
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        _log.info("Signal (%d) received.", number)
        stop.set()

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        stack.callback(StopSignals(options.drain_delay_s + options.exit_timeout_s).close)
    except NotImplementedError:  # Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(on_signal, number))
    _log.info("tritonpy %s, server id '%s'", __version__, options.server_id)
    try:
        runtime = ServerRuntime(options)
    except TritonError as exc:
        _log.error("%s: %s", CREATING, _described(exc))
        return 1
    gc.freeze()  # what was imported stays: the collection below need not look through it
    starting = asyncio.create_task(runtime.start())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    failure = ""
    if starting.done() and starting.exception() is not None:
        failure = f"{runtime.begun}: {_described(starting.exception())}"
    elif not starting.done():
        starting.cancel()
        await asyncio.wait((starting,))
    if not failure:
        # What lives now lives until the end, too: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*gc_threshold)
        await stop.wait()
    stopping.cancel()
    try:
        await runtime.stop()
    finally:
        if failure:  # behind the lines about the end, as in Triton: the last one is read first
            _log.error("%s", failure)
    return 1 if failure else 0


def _described(error: BaseException | None) -> str:
    if isinstance(error, TritonError):
        return f"{error.code.text} - {error.message}"
    return f"{type(error).__name__}: {error}"


def new_loop() -> asyncio.AbstractEventLoop:
    """A new event loop: uvloop's where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """A thread with a loop, on which a server runs; it is used once.

    Args:
        name: of the thread.
        make: builds the server; called on the loop.
    """

    def __init__(self, name: str, make: Callable[[], ServerRuntime]) -> None:
        self._make = make
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._is_told = False
        self._error: BaseException | None = None
        self._running: ServerRuntime | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Return once it runs; raises what making or starting the server raised; all is taken down then."""
        self._thread.start()
        while not self._started.wait(0.2):  # without a limit it hears no Ctrl-C on Windows
            pass
        if self._error is not None:
            self._thread.join()
            raise self._error

    def tell(self) -> None:
        """Have the server stop, or a start give up and raise; from any thread, without a wait."""
        self._is_told = True  # a thread that has no loop yet looks at it
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # it has just ended, and its loop is closed
                self._loop.call_soon_threadsafe(self._stop.set)

    def stop(self) -> None:
        """Stop the server and return once the thread has ended; nothing happens where none runs."""
        self.tell()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, once started."""
        assert self._loop is not None  # started
        return self._loop

    @property
    def running(self) -> ServerRuntime:
        """The server; touch it on the loop only."""
        assert self._running is not None  # started
        return self._running

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._is_told:
            self._stop.set()
        try:
            self._running = self._make()
            await self._start_unless_told(self._running, self._stop)
        except BaseException as exc:
            self._error = exc
        self._started.set()
        if self._error is None:
            await self._stop.wait()
        if self._running is not None:
            await self._running.stop()

    async def _start_unless_told(self, running: ServerRuntime, stop: asyncio.Event) -> None:
        starting = asyncio.create_task(running.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
        if starting.cancelled():
            raise Unavailable("the server was stopped while it started")
        starting.result()


class Server:
    """A server inside another program or a test, on a thread and loop of its own.

    ```python
    with Server(ServerOptions(("models",), http_port=0)) as server:
        print(server.http_port)
    ```

    Args:
        options: ports of 0 let the system choose.
        plugins: plugin objects by kind and name, beside the installed ones.
        discover: look for installed plugins; tests of one plugin pass False.
        gpu_finder: finds GPUs; None asks NVIDIA's driver.

    Attributes:
        options: as given.

    Raises:
        TritonError: from `start`, when a model cannot be loaded or an address cannot be had.
    """

    def __init__(
        self,
        options: ServerOptions,
        *,
        plugins: Plugins | None = None,
        discover: bool = True,
        gpu_finder: DeviceFinder | None = None,
    ) -> None:
        self.options = options
        self._thread = LoopThread(
            "tritonpy-server",
            lambda: ServerRuntime(options, plugins=plugins, discover=discover, gpu_finder=gpu_finder),
        )

    def start(self) -> None:
        """Return once the server is ready."""
        self._thread.start()

    def give_up(self) -> None:
        """Have a start end, which then raises Unavailable; from any thread, without a wait."""
        self._thread.tell()

    def stop(self) -> None:
        """Drain and stop; returns when everything is finalised."""
        self._thread.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def runtime(self) -> ServerRuntime:
        """The part that runs on the loop; touch it there only."""
        return self._thread.running

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the server runs on."""
        return self._thread.loop

    def port(self, frontend: str) -> int:
        """The port that a frontend listens on; the first of several."""
        return self.runtime.frontends.by_name[frontend].addresses[0].port

    @property
    def http_port(self) -> int:
        """The HTTP port listened on."""
        return self.port("http")

    @property
    def grpc_port(self) -> int:
        """The gRPC port listened on."""
        return self.port("grpc")

    @property
    def metrics_port(self) -> int:
        """The metrics port listened on."""
        return self.port("metrics")
