"""Clients that expect an answer to everything they send, over connections that stay open."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonpy_sdk.testing import until

ANSWER_TIMEOUT_S = 30.0
Array = NDArray[Any]  # Any: the datatype is the caller's


class HttpClient:
    """One keep-alive connection; used by one thread."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_TIMEOUT_S)

    def infer(
        self, model: str, array: Array, parameters: dict[str, Any] | None = None
    ) -> tuple[Array | None, str]:
        """Send `array` as FP32 input X and return output Y, or None and the error's text."""
        data = np.ascontiguousarray(array, np.float32).tobytes()
        size = {"binary_data_size": len(data)}
        tensor = {"name": "X", "datatype": "FP32", "shape": array.shape, "parameters": size}
        parameters = {"binary_data_output": True, **(parameters or {})}
        header = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
        headers = {"Inference-Header-Content-Length": str(len(header))}
        status, received, body = self.ask("POST", f"/v2/models/{model}/infer", header + data, headers)
        if status != 200:
            return None, json.loads(body)["error"]
        json_size = int(received["Inference-Header-Content-Length"])
        return np.frombuffer(body[json_size:], np.float32), ""

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one request and return status, headers and body."""
        self._connection.request(method, path, body, headers or {})
        response = self._connection.getresponse()
        return response.status, response.headers, response.read()

    def is_ready(self, model: str) -> bool:
        """Whether server and model say that they are ready."""
        return all(
            self.ask("GET", path)[0] == 200 for path in ("/v2/health/ready", f"/v2/models/{model}/ready")
        )

    def wait_until_ready(self, model: str) -> None:
        """Wait until server and model are ready."""
        until(lambda: self.is_ready(model), f"'{model}' is ready")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class Traffic:
    """Threads that ask all the time, each with a client of its own, for as long as the `with` block lasts.

    The block fails when a request failed, or when one was not answered at all.

    Args:
        port: of the server's HTTP service.
        asks: for each thread what it does again and again; it raises when an answer is wrong.
    """

    def __init__(self, port: int, asks: Sequence[Callable[[HttpClient], None]]) -> None:
        self._port = port
        self._ending = threading.Event()
        self._lock = threading.Lock()  # guards the two below
        self._failures: list[BaseException] = []
        self._answer_count = 0
        self._threads = [threading.Thread(target=self._run, args=(ask,)) for ask in asks]

    @property
    def answer_count(self) -> int:
        """Right answers so far."""
        with self._lock:
            return self._answer_count

    def check(self) -> None:
        """Fail if a request has failed until now."""
        with self._lock:
            failures = list(self._failures)
        if failures:
            raise ExceptionGroup(
                "requests beside the test failed", [f for f in failures if isinstance(f, Exception)]
            )

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        if kind is None:
            self.check()

    def _run(self, ask: Callable[[HttpClient], None]) -> None:
        client = HttpClient(self._port)
        try:
            while not self._ending.is_set():
                ask(client)
                with self._lock:
                    self._answer_count += 1
        except Exception as error:
            with self._lock:
                self._failures.append(error)
        finally:
            client.close()
