"""A server inside a program: functions of the program as its models, and its models without sockets."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Self

from tritonpy.cli.serve import SWITCH_INTERVAL_S
from tritonpy.errors import NotFound, Unavailable
from tritonpy.flow import flow_limits
from tritonpy.handles import JsonObject
from tritonpy.options import ServerOptions
from tritonpy.server import Server as CoreServer

from tritonpy_sdk.functions.backend import FunctionBackend
from tritonpy_sdk.functions.bound import BACKEND, Bound, bound
from tritonpy_sdk.functions.config import ModelConfig
from tritonpy_sdk.functions.tensors import Tensor
from tritonpy_sdk.functions.wrapping import Function
from tritonpy_sdk.local_model import Caller, LocalModel
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.serving import serve_until_told
from tritonpy_sdk.starting import Startable

LOCAL = ServerOptions((), allow_http=False, allow_grpc=False, allow_metrics=False)
"""Options of a server that listens nowhere."""


class Server(Startable):
    """A server on a thread of this program.

    ```python
    @batch
    def add(a, b):
        return {"sum": a + b}

    with Server() as server:
        server.bind("add", add, [Tensor((1,), np.float32, "a"), Tensor((1,), np.float32, "b")],
                    [Tensor((1,), np.float32, "sum")])
        server.serve()  # until Ctrl-C
    ```

    Functions run in this process, so that what the program has loaded is used as it is. They may be bound
    before the server starts and while it runs. While it does, threads of Python change places more often, so
    that busy ones do not hold up its answers: `sys.setswitchinterval` is as in `corectl serve`.

    Args:
        options: as of `corectl serve`; `LOCAL` for one without sockets. Models of its repositories are
            served, too: all of them, unless its mode is explicit.
        plugins: plugin objects by kind and name, beside the installed ones.
        discover: look for installed plugins.
    """

    def __init__(
        self,
        options: ServerOptions | None = None,
        *,
        plugins: Mapping[str, Mapping[str, object]] | None = None,
        discover: bool = True,
    ) -> None:
        self._options = options or ServerOptions(())
        self._plugins = plugins or {}
        self._discover = discover
        self._bound: dict[str, Bound] = {}
        self._lock = threading.RLock()  # guards what is bound, and starts and stops
        self._folder: TemporaryDirectory[str] | None = None
        self._core: CoreServer | None = None
        self._caller: Caller | None = None
        self._interval_s = 0.0
        self._starting: CoreServer | None = None
        self._is_given_up = False  # a signal has come while it starts

    def bind(
        self,
        name: str,
        function: Function | Sequence[Function],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        writable: bool = False,
        fresh_outputs: bool = False,
    ) -> None:
        """Serve a function as a model; one that is bound by that name is replaced, and loses no request.

        Args:
            name: of the model.
            function: takes a list of requests and returns a list of outputs, as those do that `@batch` and
                others make; a coroutine, or for decoupled models a generator, which yields such lists.
                Several are instances of the model, each with a thread of its own. An object with `initialize`
                and `finalize` has them called on that thread, and a class is called to make the object.
            inputs: of the function, without the dimension of the batch.
            outputs: likewise.
            version: of the model.
            config: batching and other settings.
            strict: compare outputs with what is bound, and fail requests where they differ.
            writable: the function may write to its inputs; they are copied for that, unless `@batch` has put
                them together.
            fresh_outputs: the function does not write to arrays that it has returned or yielded, nor does
                anybody else: they are handed on without a copy.

        Raises:
            TritonError: what is given cannot be served; what was bound by that name still is.
        """
        given = bound(
            name,
            function,
            inputs,
            outputs,
            version=version,
            config=config,
            strict=strict,
            writable=writable,
            fresh_outputs=fresh_outputs,
        )
        given.config()
        given.settings.files()
        with self._lock:
            before = self._bound.get(name)
            self._bound[name] = given
            if self._core is None:
                return
            try:
                self._load(given, before)
            except BaseException:
                if before is None:
                    del self._bound[name]
                else:
                    self._bound[name] = before
                    self._write(before)
                raise

    def unbind(self, name: str) -> None:
        """Serve a function no longer; what it has accepted is answered.

        Raises:
            NotFound: none is bound by that name.
        """
        with self._lock:
            if self._bound.pop(name, None) is None:
                raise NotFound(f"model '{name}': no function is bound by that name")
            if self._caller is not None:
                self.unload(name)

    def start(self) -> Self:
        """Return once the server is ready; does nothing where it runs.

        Raises:
            TritonError: a model cannot be loaded, or an address cannot be had.
        """
        with self._lock:
            if self._core is not None:
                return self
            core: CoreServer | None = None
            try:
                self._folder = TemporaryDirectory(prefix="tritonpy-functions-")
                core = CoreServer(self._core_options(), plugins=self._all_plugins(), discover=self._discover)
                for each in self._bound.values():
                    self._write(each)
                self._starting = core
                if self._is_given_up:
                    core.give_up()
                core.start()
                self._interval_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._interval_s, SWITCH_INTERVAL_S))
                self._caller = Caller(core, flow_limits(self._options))
                self._core = core
            except BaseException:  # also Ctrl-C, while it starts on its thread
                self._core = self._caller = None
                if core is not None:
                    core.stop()
                if self._folder is not None:
                    self._folder.cleanup()
                self._folder = None
                raise
            finally:
                self._starting = None
        return self

    def stop(self) -> None:
        """Answer what was accepted, and stop; functions stay bound for the next start."""
        with self._lock:
            core, self._core, self._caller = self._core, None, None
            if core is not None:
                core.stop()
                sys.setswitchinterval(self._interval_s)
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def serve(self) -> None:
        """Start, serve until SIGINT or SIGTERM, and stop; on the main thread.

        Elsewhere it serves until `stop` is called. A signal that comes while it starts ends that, too.
        """

        def start() -> Callable[[], bool]:
            self.start()
            core = self._core
            return lambda: core is not None and self._core is core

        self._is_given_up = False
        try:
            serve_until_told(start, self._give_up, self.stop)
        finally:
            self._is_given_up = False

    def model(self, name: str, version: str | int = "") -> LocalModel:
        """A model of the server, bound or from a repository; to be asked without sockets."""
        return LocalModel(self._running(), name, str(version))

    def load(
        self, name: str, config: JsonObject | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Load a model of a repository, or load it anew; see `Dataplane.load_model`."""
        caller = self._running()
        text = None if config is None else json.dumps(config)
        caller.wait(caller.server.runtime.dataplane.load_model(name, text, files))

    def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """Take a model out of service."""
        caller = self._running()
        caller.wait(caller.server.runtime.dataplane.unload_model(name, unload_dependents))

    def is_ready(self) -> bool:
        """True if the server and all of its models serve."""
        caller = self._caller
        return caller is not None and bool(caller.run(caller.server.runtime.dataplane.is_ready))

    def metadata(self) -> JsonObject:
        """Name, version and extensions of the server."""
        caller = self._running()
        found: JsonObject = caller.run(caller.server.runtime.dataplane.server_metadata)
        return found

    def metrics(self) -> str:
        """The metrics, in the format of Prometheus."""
        caller = self._running()
        text: bytes = caller.wait(caller.server.runtime.page.text())
        return text.decode()

    def index(self) -> list[JsonObject]:
        """Name, version, state and reason of every model version."""
        caller = self._running()
        found: list[JsonObject] = caller.wait(caller.server.runtime.dataplane.repository_index())
        return found

    @property
    def is_running(self) -> bool:
        """True from a start to a stop."""
        return self._core is not None

    def port(self, frontend: str) -> int:
        """The port that a frontend listens on; the first of several."""
        return self._running().server.port(frontend)

    @property
    def http_port(self) -> int:
        """The port that HTTP is served on."""
        return self._running().server.http_port

    @property
    def grpc_port(self) -> int:
        """The port that gRPC is served on."""
        return self._running().server.grpc_port

    @property
    def metrics_port(self) -> int:
        """The port that metrics are served on."""
        return self._running().server.metrics_port

    def _give_up(self) -> None:
        self._is_given_up = True
        if (core := self._starting) is not None:
            core.give_up()

    def _running(self) -> Caller:
        caller = self._caller
        if caller is None:
            raise Unavailable("the server does not run; call start(), or enter it as a context manager")
        return caller

    def _core_options(self) -> ServerOptions:
        options = self._options
        assert self._folder is not None  # made before
        is_explicit = options.model_control_mode == "explicit"
        return replace(
            options,
            model_repositories=(*options.model_repositories, self._folder.name),
            model_control_mode="explicit",
            load_models=(*options.load_models, *self._bound) if is_explicit else ("*",),
        )

    def _all_plugins(self) -> dict[str, dict[str, object]]:
        plugins = {kind: dict(named) for kind, named in self._plugins.items()}
        plugins.setdefault("backends", {})[BACKEND] = FunctionBackend(self._bound)
        return plugins

    def _write(self, given: Bound) -> None:
        assert self._folder is not None  # the server runs, or starts
        ModelRepository(self._folder.name).model(
            given.name, given.config(), version=given.version, model_files=given.settings.files()
        )

    def _load(self, given: Bound, before: Bound | None) -> None:
        self._write(given)
        caller = self._running()
        dataplane = caller.server.runtime.dataplane
        caller.wait(dataplane.load_model(given.name, force=before is not None))
