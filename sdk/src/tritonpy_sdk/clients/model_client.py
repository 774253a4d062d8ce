"""Clients that wait for their answers."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from types import ModuleType, TracebackType
from typing import Any, Self

import tritonclient.grpc
import tritonclient.http

from tritonpy_sdk.clients.connection import POLL_S, Deadline, Headers, Parameters, Settings
from tritonpy_sdk.clients.errors import ClientValueError
from tritonpy_sdk.clients.model_facts import Array, ModelFacts


class BaseModelClient:
    """What clients do that wait, whatever their model answers.

    Args:
        url: `HOST`, `HOST:PORT` or `SCHEME://HOST:PORT`, the scheme one of http, https, grpc and grpcs.
        model_name: of the model.
        model_version: None for the newest.
        lazy_init: wait for the model with the first request, not now.
        init_timeout_s: how long to wait for the server and the model; 300 s by default.
        inference_timeout_s: how long to wait for an answer; 60 s by default.
        model_config: what another client knows of the model, so that the server is not asked.
        ensure_model_is_ready: wait for the model before the first request.
        access_token: of a server that wants one.

    Raises:
        InvalidUrlError: it is none.
        ClientTimeoutError: the model was not ready in time; also with the first request.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None = None,
        *,
        lazy_init: bool = True,
        init_timeout_s: float | None = None,
        inference_timeout_s: float | None = None,
        model_config: ModelFacts | None = None,
        ensure_model_is_ready: bool = True,
        access_token: str | None = None,
    ) -> None:
        self._settings = Settings(
            url, model_name, model_version, init_timeout_s, inference_timeout_s, access_token
        )
        self._library: ModuleType = tritonclient.grpc if self._settings.is_grpc else tritonclient.http
        self._connection = self._settings.connection(self._library)
        self._facts = model_config
        self._is_to_be_ready = ensure_model_is_ready
        if not lazy_init and self._facts is None:
            self._facts = self._read_facts()

    @classmethod
    def from_existing_client(cls, existing_client: BaseModelClient) -> Self:
        """Another client of the same model, which does not ask again what that one knows."""
        settings = existing_client._settings
        return cls(
            settings.given_url,
            settings.model_name,
            settings.model_version or None,
            init_timeout_s=settings.init_timeout_s,
            inference_timeout_s=settings.inference_timeout_s,
            model_config=existing_client._facts,
            ensure_model_is_ready=existing_client._facts is None,
            access_token=settings.access_token,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections; the client cannot be used any more."""
        if not self._settings.is_closed:
            self._settings.is_closed = True
            self._connection.close()

    @property
    def model_config(self) -> ModelFacts:
        """The model; waits for it with the first use.

        Raises:
            ClientTimeoutError: it was not ready in time.
        """
        if self._facts is None:
            self._facts = self._read_facts()
        return self._facts

    @property
    def is_batching_supported(self) -> bool:
        """True if `infer_batch` can be used."""
        return self.model_config.max_batch_size > 0

    def wait_for_server(self, timeout_s: float) -> None:
        """Return once the server is ready.

        Raises:
            ClientTimeoutError: it was not in time.
        """
        self._wait("the server", timeout_s, self._connection.is_server_ready)

    def wait_for_model(self, timeout_s: float) -> None:
        """Return once the model is ready.

        Raises:
            ClientTimeoutError: it was not in time.
        """
        name, version = self._settings.model_name, self._settings.model_version
        self._wait(
            f"model '{name}'",
            timeout_s,
            lambda **more: self._connection.is_model_ready(name, version, **more),
        )

    def load_model(self, config: str | None = None, files: dict[str, bytes] | None = None) -> None:
        """Have the server load the model.

        Args:
            config: a configuration in JSON that is used instead of the one in the repository.
            files: contents by path, such as `file:1/model.onnx`.

        Raises:
            InferenceServerError: it does not load.
        """
        self._call(
            self._connection.load_model,
            self._settings.model_name,
            headers=self._settings.headers(),
            config=config,
            files=files,
        )

    def unload_model(self) -> None:
        """Have the server unload the model.

        Raises:
            InferenceServerError: it does not.
        """
        self._call(self._connection.unload_model, self._settings.model_name, headers=self._settings.headers())

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._settings.check_open()
        try:
            return function(*args, **kwargs)
        except Exception as exc:
            self._settings.fail(exc)

    def _wait(self, what: str, timeout_s: float, is_ready: Callable[..., bool]) -> None:
        self._settings.check_open()
        deadline = Deadline(timeout_s)
        while True:
            try:
                if is_ready(headers=self._settings.headers()):
                    return
            except Exception:  # nobody listens yet, or something else does
                pass
            if deadline.is_over():
                raise self._settings.late(what, timeout_s)
            time.sleep(POLL_S)

    def _read_facts(self) -> ModelFacts:
        settings = self._settings
        if self._is_to_be_ready:
            self.wait_for_model(settings.init_timeout_s)
        config = self._call(
            self._connection.get_model_config,
            settings.model_name,
            settings.model_version,
            headers=settings.headers(),
            **settings.config_arguments(),
        )
        return ModelFacts.read(settings.model_name, settings.model_version, config)

    def _arrays(self, inputs: Any, named_inputs: Any, *, is_sample: bool) -> dict[str, Array]:
        self._settings.check_open()
        facts = self.model_config
        arrays = facts.named(inputs, named_inputs)
        return facts.sample(arrays) if is_sample else facts.batch(arrays)


class ModelClient(BaseModelClient):
    """Asks a model that gives one response to each request; arguments are those of `BaseModelClient`.

    ```python
    with ModelClient("localhost", "add") as client:
        print(client.infer_sample(a=np.array([1.0], np.float32), b=np.array([2.0], np.float32)))
    ```
    """

    def infer_sample(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> dict[str, Array]:
        """Ask for one sample; inputs and outputs are without the dimension of the batch.

        Args:
            *inputs: arrays, in the order of the model's inputs.
            parameters: of the request.
            headers: of the request.
            **named_inputs: arrays by name, instead of `inputs`.

        Returns:
            The outputs by name.

        Raises:
            ClientValueError: inputs are not what the model takes.
            InferenceServerError: the request was refused, or has failed.
            ClientTimeoutError: the model or the answer did not come in time.
        """
        return self._infer(self._arrays(inputs, named_inputs, is_sample=True), parameters, headers, True)

    def infer_batch(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> dict[str, Array]:
        """Ask for all rows of a batch; see `infer_sample`.

        Raises:
            BatchingUnsupportedError: the model does not batch.
            ClientError: as `infer_sample`.
        """
        return self._infer(self._arrays(inputs, named_inputs, is_sample=False), parameters, headers, False)

    def _infer(
        self,
        arrays: dict[str, Array],
        parameters: Parameters | None,
        headers: Headers | None,
        is_sample: bool,
    ) -> dict[str, Array]:
        facts = self.model_config
        if facts.is_decoupled:
            raise ClientValueError(
                f"model '{facts.name}' gives any number of responses: use DecoupledModelClient instead of "
                "ModelClient"
            )
        result = self._call(
            self._connection.infer,
            **facts.request(self._library, arrays),
            **self._settings.infer_arguments(parameters, headers),
        )
        return facts.answer(result, is_sample=is_sample)


class DecoupledModelClient(BaseModelClient):
    """Asks a model for any number of responses, over a gRPC stream; one request at a time.

    Arguments are those of `BaseModelClient`; the URL is one of gRPC.
    """

    def infer_sample(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> Iterator[dict[str, Array]]:
        """Ask for one sample; yields the outputs of each response, see `ModelClient.infer_sample`."""
        return self._stream(self._arrays(inputs, named_inputs, is_sample=True), parameters, headers, True)

    def infer_batch(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> Iterator[dict[str, Array]]:
        """Ask for all rows of a batch; yields the outputs of each response."""
        return self._stream(self._arrays(inputs, named_inputs, is_sample=False), parameters, headers, False)

    def _stream(
        self,
        arrays: dict[str, Array],
        parameters: Parameters | None,
        headers: Headers | None,
        is_sample: bool,
    ) -> Iterator[dict[str, Array]]:
        settings, facts = self._settings, self.model_config
        if not settings.is_grpc:
            raise ClientValueError(
                f"url: got http for model '{facts.name}', expected grpc:// for a model with any number of "
                "responses"
            )
        answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
        self._call(
            self._connection.start_stream,
            lambda result, error: answers.put((result, error)),
            headers=settings.headers(headers),
        )
        try:
            self._call(
                self._connection.async_stream_infer,
                **facts.request(self._library, arrays),
                parameters=dict(parameters or {}),
                enable_empty_final_response=True,
            )
            while True:
                try:
                    result, error = answers.get(timeout=settings.inference_timeout_s)
                except queue.Empty:
                    settings.fail(TimeoutError("the stream is silent"))
                if error is not None:
                    settings.fail(error)
                response = result.get_response()
                is_final = response.parameters["triton_final_response"].bool_param
                if response.outputs:
                    yield facts.answer(result, is_sample=is_sample)
                if is_final:
                    return
        finally:
            self._connection.stop_stream(cancel_requests=True)
