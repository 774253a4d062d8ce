"""The two servers that are compared, and how a request is sent to one of them byte for byte."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess

from ..counting import at_rest

REAL_TRITON = Path(__file__).parents[2] / "benchmarks" / "real_triton.py"
SERVICE = "/inference.GRPCInferenceService/"
END_DEADLINE_S = 20  # of one that keeps silent
MAX_RESTARTS = 3
MAX_STARTS = 3  # one that loads several models may crash by chance

_T = TypeVar("_T")
_NO_ANSWER = (ConnectionError, TimeoutError, urllib.error.URLError, http.client.HTTPException)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HttpAnswer:
    """What came back over HTTP.

    Attributes:
        status: 0 when the connection was closed without an answer, or within it.
        headers: by lower-case name.
        body: as it came, without compression undone.
    """

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class GrpcAnswer:
    """What came back over gRPC.

    Attributes:
        code: the name of the status.
        details: its text.
        messages: the serialized responses: one of a call, any number of a stream.
    """

    code: str
    details: str
    messages: tuple[bytes, ...]


Answer = HttpAnswer | GrpcAnswer


class Request(Protocol):
    """One thing that can be sent."""

    def send(self, server: Server) -> Answer:
        """Send it and wait for the answer."""


@dataclass(frozen=True)
class Http:
    """A request over HTTP, on a connection of its own.

    Attributes:
        headers: all but `Host` and `Content-Length`.
    """

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def send(self, server: Server) -> HttpAnswer:
        """See `Request`."""
        connection = http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=DEADLINE_S)
        try:
            connection.putrequest(self.method, self.path, skip_accept_encoding=True)
            for name, value in self.headers:
                connection.putheader(name, value)
            if self.body or self.method == "POST":
                connection.putheader("Content-Length", str(len(self.body)))
            connection.endheaders(self.body or None)
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return HttpAnswer(response.status, headers, response.read())
        except (http.client.BadStatusLine, http.client.IncompleteRead, ConnectionError):
            return HttpAnswer(0, {}, b"")
        finally:
            connection.close()


@dataclass(frozen=True)
class AtRest(Http):
    """A request for what a server counts: of that it does some only a moment after it has answered."""

    def send(self, server: Server) -> HttpAnswer:
        """See `Request`."""
        return at_rest(lambda: Http.send(self, server))


@dataclass(frozen=True)
class Grpc:
    """A call of the inference service.

    Attributes:
        call: its name.
        messages: serialized, so that also what no client would make can be sent.
    """

    call: str
    messages: tuple[bytes, ...] = (b"",)

    def send(self, server: Server) -> GrpcAnswer:
        """See `Request`."""
        received: list[bytes] = []
        path = self.call if self.call.startswith("/") else SERVICE + self.call
        try:
            if self.call == "ModelStreamInfer":
                stream = server.channel.stream_stream(path, _same, _same)
                received.extend(stream(iter(self.messages), timeout=DEADLINE_S))
            else:
                [message] = self.messages
                received.append(server.channel.unary_unary(path, _same, _same)(message, timeout=DEADLINE_S))
        except grpc.RpcError as error:
            # grpcio's errors are also the calls they end, but its types do not say so.
            ended: Any = error
            return GrpcAnswer(ended.code().name, ended.details() or "", tuple(received))
        return GrpcAnswer("OK", "", tuple(received))


def _same(message: bytes) -> bytes:
    return message


class Server:
    """A server, real or ours, in a process of its own, on a repository.

    Attributes:
        ports: by `http` and `grpc`; they change when it is started again.
        channel: to its gRPC port.
        restart_count: how often it was started again because it had ended.
    """

    def __init__(self, repository: Path, log_file: Path, *, is_real: bool, options: Sequence[str]) -> None:
        self.restart_count = 0
        self._repository = repository
        self._log_file = log_file
        self._is_real = is_real
        self._options = options
        self._close_log: Callable[[], None] = lambda: None
        self._start()

    def _start(self) -> None:
        for starts_left in reversed(range(MAX_STARTS)):
            try:
                self._start_once()
                break
            except DidNotStart as error:
                if not starts_left:
                    raise
                _logger.warning("%s", error)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.ports['grpc']}")

    def _start_once(self) -> None:
        if not self._is_real:
            ours = ServerProcess(
                "--model-repository", self._repository, *self._options, log_file=self._log_file
            )
            self._close_log, self._process = ours.close, ours.process
            self.ports = {"http": ours.http_port, "grpc": ours.grpc_port, "metrics": ours.metrics_port}
            return
        command = [sys.executable, str(REAL_TRITON), "serve", "--model-repository"]
        command += [str(self._repository), "--", *self._options]
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            self.ports = self._real_ports()
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _real_ports(self) -> dict[str, int]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._process.stdout.close()
        if not line:
            raise DidNotStart(f"the real server did not start:\n{self.log[-4000:]}")
        ports: dict[str, int] = json.loads(line)
        return ports

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log_file.read_text(errors="replace")

    def ask(self, request: Request) -> Answer:
        """Send a request; a server that ends over it is started again, and named in the error."""
        answer = request.send(self)
        if isinstance(answer, HttpAnswer):
            is_gone = not answer.status
        else:
            is_gone = answer.code == "UNAVAILABLE" and re.search(
                "[Ss]ocket|onnection|connect", answer.details
            )
        if is_gone:
            self._wait_for_end()
        if self.has_ended:
            ended = (RealServerEnded if self._is_real else ServerEnded)(self._fate())
            self.restart_count += 1
            self.restart()
            raise ended
        return answer

    def try_twice(self, name: str, ask: Callable[[], _T]) -> _T:
        """What `ask` returns. Where a real server ends over it or keeps silent, a new one is asked once more.

        Args:
            name: of what is asked, for the error.
            ask: asks this server at the ports that it has then.

        Raises:
            ServerEnded: it is our server, or the second time, or a real one was started again too often.
        """
        try:
            return ask()
        except _NO_ANSWER as error:
            self._wait_for_end()
            ended = ServerEnded(f"{self._fate()} over '{name}'")
            if not self._is_real or self.restart_count == MAX_RESTARTS:
                raise ended from error
            _logger.warning("%s, it is asked again: %r", ended, error)
        self.restart_count += 1
        self.restart()
        try:
            return ask()
        except _NO_ANSWER as error:
            self._wait_for_end()
            raise ServerEnded(f"{self._fate()} over '{name}', the second time") from error

    @property
    def has_ended(self) -> bool:
        """Whether its process is gone."""
        return self._process.poll() is not None

    def _wait_for_end(self) -> None:
        """A server that crashes takes a moment to be gone, and the longer the busier the machine is."""
        give_up = time.monotonic() + END_DEADLINE_S
        is_silent = True
        while is_silent and not self.has_ended and time.monotonic() < give_up:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            is_silent = not self._is_live()

    def _is_live(self) -> bool:
        """Whether it answers, at least that it lives."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["http"], timeout=1)
        try:
            connection.request("GET", "/v2/health/live")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _fate(self) -> str:
        how = f"ended with {self._process.returncode}" if self.has_ended else "gave no answer"
        return f"{'the real' if self._is_real else 'our'} server {how}"

    def restart(self) -> None:
        """Start another one on the same repository; this one is killed if it still runs."""
        self.kill()
        self._start()

    def kill(self) -> None:
        """End it whatever it does; it may have ended by itself."""
        self.channel.close()
        if self._is_real and not self.has_ended:
            kill(self.ports["pid"])  # the process that started it ends with it
        elif not self.has_ended:
            self._process.kill()
        self._process.wait(DEADLINE_S)
        self._close_log()

    def close(self) -> None:
        """End it; a real one need not end by itself."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            if not self._is_real:
                raise
        finally:
            self.kill()


class DidNotStart(Exception):
    """A server's process ended before it took requests."""


class ServerEnded(Exception):
    """A server's process ended over a request, or left it without an answer."""


class RealServerEnded(ServerEnded):
    """It was a real one: those do sometimes, by chance."""


def kill(pid: int) -> None:
    """End a real server that may not end by itself, or may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
