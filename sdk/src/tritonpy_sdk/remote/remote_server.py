"""A server that runs elsewhere, into which this program binds functions."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from itertools import count
from typing import Self

from tritonpy.errors import InvalidArg, NotFound, Unavailable

from tritonpy_sdk.functions.bound import Bound, bound
from tritonpy_sdk.functions.config import ModelConfig
from tritonpy_sdk.functions.tensors import Tensor
from tritonpy_sdk.functions.wrapping import Function
from tritonpy_sdk.remote.address import read_address
from tritonpy_sdk.remote.program import Program, RemoteFunction
from tritonpy_sdk.serving import serve_until_told
from tritonpy_sdk.starting import Startable


class RemoteServer(Startable):
    """A server that runs elsewhere: functions of this program are its models.

    ```python
    with RemoteServer("models.example.org:8003", token=Path("token").read_text()) as server:
        server.bind("add", add, [Tensor((1,), np.float32, "a")], [Tensor((1,), np.float32, "sum")])
        server.serve()  # until Ctrl-C
    ```

    The server runs with `--frontend-config=bind,…` and batches requests; functions run in this process, on
    threads. When the connection is lost, requests under way fail, and the program connects and binds again as
    soon as it can. A function that another program binds by the same name is replaced, and not bound again.

    Args:
        address: `HOST:PORT`, `tls://HOST:PORT` or `unix:PATH`.
        token: what the server has in its `token-file`; blanks around it do not count.
        tls: for `tls://`; None trusts what the system trusts.
        connect_timeout_s: how long `start` and `bind` try.
        most_retry_s: the longest time between attempts to connect again.
        stop_timeout_s: how long `stop` waits for what is being executed.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        connect_timeout_s: float = 30.0,
        most_retry_s: float = 5.0,
        stop_timeout_s: float = 30.0,
    ) -> None:
        self._address = read_address(address)
        if tls is not None and not self._address.is_tls:
            raise InvalidArg(
                f"address: got '{address}' with tls, expected tls://HOST:PORT: nothing would be encrypted"
            )
        self._token = (token or "").strip()
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._most_retry_s = most_retry_s
        self._stop_timeout_s = stop_timeout_s
        self._lock = threading.RLock()  # guards what is bound, and starts and stops
        self._given: dict[str, Bound] = {}
        self._models: dict[str, RemoteFunction] = {}
        self._numbers = count(1)
        self._program: Program | None = None
        self._starting: Program | None = None
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
        fresh_outputs: bool = False,
    ) -> None:
        """Have the server serve a function as a model; see `Server.bind`.

        Before the start it is noted; afterwards this returns when the server serves it.

        Raises:
            TritonError: what is given cannot be served, or the server is not there; what was bound by that
                name still is.
        """
        given = bound(
            name,
            function,
            inputs,
            outputs,
            version=version,
            config=config,
            strict=strict,
            fresh_outputs=fresh_outputs,
        )
        given.config()
        given.settings.files()
        with self._lock:
            if self._program is not None:
                self._bind(self._program, given)
            self._given[name] = given

    def unbind(self, name: str) -> None:
        """Have a function served no longer; returns when what the server has accepted is answered.

        Raises:
            NotFound: none is bound by that name.
            Unavailable: the server does not end it in time; it is not served any more all the same.
        """
        with self._lock:
            if self._given.pop(name, None) is None:
                raise NotFound(f"model '{name}': no function is bound by that name")
            model, program = self._models.pop(name, None), self._program
            if model is None or program is None:
                return
            program.retire(model)
            try:
                model.ended.result(self._stop_timeout_s)
            except FutureTimeout:
                raise Unavailable(
                    f"model '{name}': the server has not ended it within {self._stop_timeout_s:g} s"
                ) from None

    def start(self) -> Self:
        """Connect, and return when everything is bound; does nothing where it runs.

        Raises:
            TritonError: the server refuses the program, or is not there in time, or cannot serve a function.
        """
        with self._lock:
            if self.is_running:
                return self
            self.stop()
            program = Program(self._address, self._token, self._tls, self._most_retry_s)
            try:
                self._starting = program
                if self._is_given_up:
                    program.give_up()
                program.start()
                program.wait_until_open(self._connect_timeout_s)
                for given in self._given.values():
                    self._bind(program, given)
                self._starting = None  # a signal from here on lets it answer what it has
                self._program = program
            except BaseException:  # also Ctrl-C
                self._program = None
                self._end(program)
                raise
            finally:
                self._starting = None
        return self

    def stop(self) -> None:
        """Unbind everything, answer what the server has accepted, and end; functions stay noted."""
        with self._lock:
            program, self._program = self._program, None
            if program is not None:
                self._end(program)

    def serve(self) -> None:
        """Start, serve until SIGINT or SIGTERM, and stop; on the main thread.

        Elsewhere it serves until `stop` is called. A signal that comes while it starts ends that, too.

        Raises:
            TritonError: as `start`; or what keeps the connections has failed.
        """

        def start() -> Callable[[], bool]:
            self.start()
            program = self._program

            def serves() -> bool:
                if program is not None:
                    program.check()
                return program is not None and self._program is program

            return serves

        self._is_given_up = False
        try:
            serve_until_told(start, self._give_up, self.stop)
        finally:
            self._is_given_up = False

    @property
    def is_running(self) -> bool:
        """True from a start to a stop, connected or not."""
        program = self._program
        return program is not None and program.failure is None

    @property
    def is_connected(self) -> bool:
        """True while the server is there."""
        program = self._program
        return program is not None and program.is_open

    def is_served(self, name: str) -> bool:
        """True while the server serves the function that is bound by that name."""
        model = self._models.get(name)
        return model is not None and model.is_served

    def _give_up(self) -> None:
        self._is_given_up = True
        if (program := self._starting) is not None:
            program.give_up()

    def _bind(self, program: Program, given: Bound) -> None:
        program.check()
        model = RemoteFunction(given, next(self._numbers))
        model.open(lambda: self._is_given_up)
        before = self._models.get(given.name)
        program.serve(model)
        try:
            model.outcome.result(self._connect_timeout_s)
        except BaseException as exc:
            program.retire(model)
            if isinstance(exc, FutureTimeout):
                raise Unavailable(
                    f"model '{given.name}': the server at {self._address.text} has not bound it within "
                    f"{self._connect_timeout_s:g} s"
                ) from None
            raise
        self._models[given.name] = model
        if before is not None:
            program.retire(before)

    def _end(self, program: Program) -> None:
        models = list(self._models.values())
        self._models.clear()
        for model in models:
            program.retire(model)
        with suppress(FutureTimeout):
            for model in models:
                model.ended.result(self._stop_timeout_s)
        program.stop()
        for model in models:
            for instance in model.instances:
                instance.join(self._stop_timeout_s)
