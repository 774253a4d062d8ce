"""A client that gives futures: its requests wait for a thread, and each thread has connections of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from tritonpy_sdk.clients.connection import Headers, Parameters
from tritonpy_sdk.clients.errors import ClientClosedError, QueueFullError
from tritonpy_sdk.clients.model_client import ModelClient
from tritonpy_sdk.clients.model_facts import Array, ModelFacts

_T = TypeVar("_T")


class FuturesModelClient:
    """Asks a model that gives one response to each request, from threads of its own.

    Args:
        url: see `BaseModelClient`, as of all that are not named here.
        model_name: of the model.
        model_version: None for the newest.
        max_workers: threads, and so requests under way.
        max_queue_size: requests that wait for a thread.
        non_blocking: refuse requests that find the queue full, instead of waiting for a place.
        init_timeout_s: how long to wait for the server and the model.
        inference_timeout_s: how long to wait for an answer.
        access_token: of a server that wants one.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        max_workers: int = 128,
        max_queue_size: int = 128,
        non_blocking: bool = False,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        access_token: str | None = None,
    ) -> None:
        def connect() -> ModelClient:
            return ModelClient(
                url,
                model_name,
                model_version,
                init_timeout_s=init_timeout_s,
                inference_timeout_s=inference_timeout_s,
                access_token=access_token,
            )

        connect().close()  # what is wrong with the URL is told here
        self._connect: Callable[[], ModelClient] = connect
        self._name = model_name
        self._non_blocking = non_blocking
        self._places = threading.BoundedSemaphore(max_workers + max_queue_size)
        self._threads = ThreadPoolExecutor(max_workers, thread_name_prefix=f"client of {model_name}")
        self._of_thread = threading.local()
        self._lock = threading.Lock()
        self._clients: list[ModelClient] = []
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self, wait: bool = True) -> None:
        """Take no more requests; those that were taken are answered, with `wait` before this returns."""
        self._is_closed = True
        self._threads.shutdown(wait=wait)
        if wait:
            with self._lock:
                for client in self._clients:
                    client.close()
                self._clients.clear()

    def wait_for_model(self, timeout_s: float) -> Future[None]:
        """Done once the model is ready; see `BaseModelClient.wait_for_model`."""
        return self._submit(lambda client: client.wait_for_model(timeout_s))

    def model_config(self) -> Future[ModelFacts]:
        """The model."""
        return self._submit(lambda client: client.model_config)

    def infer_sample(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> Future[dict[str, Array]]:
        """Ask for one sample; see `ModelClient.infer_sample`.

        Raises:
            QueueFullError: as many requests as may wait do.
            ClientClosedError: the client was closed.
        """
        return self._submit(
            lambda client: client.infer_sample(
                *inputs, parameters=parameters, headers=headers, **named_inputs
            )
        )

    def infer_batch(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> Future[dict[str, Array]]:
        """Ask for all rows of a batch; see `infer_sample`."""
        return self._submit(
            lambda client: client.infer_batch(*inputs, parameters=parameters, headers=headers, **named_inputs)
        )

    def _submit(self, ask: Callable[[ModelClient], _T]) -> Future[_T]:
        if self._is_closed:
            raise ClientClosedError(f"the client of model '{self._name}' is closed")
        if not self._places.acquire(blocking=not self._non_blocking):
            raise QueueFullError(f"model '{self._name}': as many requests wait for a thread as may wait")
        try:
            future = self._threads.submit(lambda: ask(self._client()))
        except RuntimeError as exc:  # it was closed meanwhile
            self._places.release()
            raise ClientClosedError(f"the client of model '{self._name}' is closed") from exc
        future.add_done_callback(lambda _: self._places.release())
        return future

    def _client(self) -> ModelClient:
        client: ModelClient | None = getattr(self._of_thread, "client", None)
        if client is None:
            client = self._of_thread.client = self._connect()
            with self._lock:
                self._clients.append(client)
        return client
