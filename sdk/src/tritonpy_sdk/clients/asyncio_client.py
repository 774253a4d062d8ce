"""Clients for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType, TracebackType
from typing import Any, Self

import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

from tritonpy_sdk.clients.connection import POLL_S, Deadline, Headers, Parameters, Settings
from tritonpy_sdk.clients.errors import ClientValueError
from tritonpy_sdk.clients.model_facts import Array, ModelFacts


class BaseAsyncioModelClient:
    """What clients of event loops do, whatever their model answers; made and used in one loop.

    Args:
        url: `HOST`, `HOST:PORT` or `SCHEME://HOST:PORT`, the scheme one of http, https, grpc and grpcs.
        model_name: of the model.
        model_version: None for the newest.
        init_timeout_s: how long to wait for the server and the model; 300 s by default.
        inference_timeout_s: how long to wait for an answer; 60 s by default.
        lazy_init: wait for the model with the first request, not from now on; False needs a loop that runs.
        model_config: what another client knows of the model, so that the server is not asked.
        ensure_model_is_ready: wait for the model before the first request.
        access_token: of a server that wants one.

    Raises:
        InvalidUrlError: it is none.
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
        # Tensors are those of the modules without `aio`, which the others have no names for.
        self._library: ModuleType = tritonclient.grpc if self._settings.is_grpc else tritonclient.http
        self._connection = self._settings.connection(self._library.aio)
        self._facts: asyncio.Task[ModelFacts] | None = None
        self._given_facts = model_config
        self._is_to_be_ready = ensure_model_is_ready
        if not lazy_init and model_config is None:
            self._facts = asyncio.ensure_future(self._read_facts())

    async def __aenter__(self) -> Self:
        await self.model_config
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections; the client cannot be used any more."""
        if not self._settings.is_closed:
            self._settings.is_closed = True
            await self._connection.close()

    @property
    async def model_config(self) -> ModelFacts:
        """The model; waits for it with the first use.

        Raises:
            ClientTimeoutError: it was not ready in time.
        """
        if self._given_facts is not None:
            return self._given_facts
        if self._facts is None or (
            self._facts.done() and (self._facts.cancelled() or self._facts.exception())
        ):
            self._facts = asyncio.ensure_future(self._read_facts())
        return await asyncio.shield(self._facts)

    async def wait_for_server(self, timeout_s: float) -> None:
        """Return once the server is ready.

        Raises:
            ClientTimeoutError: it was not in time.
        """
        await self._wait("the server", timeout_s, self._connection.is_server_ready)

    async def wait_for_model(self, timeout_s: float) -> None:
        """Return once the model is ready.

        Raises:
            ClientTimeoutError: it was not in time.
        """
        name, version = self._settings.model_name, self._settings.model_version
        await self._wait(
            f"model '{name}'",
            timeout_s,
            lambda **more: self._connection.is_model_ready(name, version, **more),
        )

    async def _call(self, called: Awaitable[Any]) -> Any:
        try:
            return await called
        except Exception as exc:
            self._settings.fail(exc)

    async def _wait(self, what: str, timeout_s: float, is_ready: Callable[..., Awaitable[bool]]) -> None:
        self._settings.check_open()
        deadline = Deadline(timeout_s)
        while True:
            try:
                if await is_ready(headers=self._settings.headers()):
                    return
            except Exception:  # nobody listens yet, or something else does
                pass
            if deadline.is_over():
                raise self._settings.late(what, timeout_s)
            await asyncio.sleep(POLL_S)

    async def _read_facts(self) -> ModelFacts:
        settings = self._settings
        if self._is_to_be_ready:
            await self.wait_for_model(settings.init_timeout_s)
        config = await self._call(
            self._connection.get_model_config(
                settings.model_name,
                settings.model_version,
                headers=settings.headers(),
                **settings.config_arguments(),
            )
        )
        return ModelFacts.read(settings.model_name, settings.model_version, config)

    async def _arrays(self, inputs: Any, named_inputs: Any, *, is_sample: bool) -> dict[str, Array]:
        self._settings.check_open()
        facts = await self.model_config
        arrays = facts.named(inputs, named_inputs)
        return facts.sample(arrays) if is_sample else facts.batch(arrays)


class AsyncioModelClient(BaseAsyncioModelClient):
    """Asks a model that gives one response to each request; arguments are those of `BaseAsyncioModelClient`.

    ```python
    async with AsyncioModelClient("localhost", "add") as client:
        print(await client.infer_sample(a=np.array([1.0], np.float32), b=np.array([2.0], np.float32)))
    ```
    """

    async def infer_sample(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> dict[str, Array]:
        """Ask for one sample; see `ModelClient.infer_sample`."""
        arrays = await self._arrays(inputs, named_inputs, is_sample=True)
        return await self._infer(arrays, parameters, headers, True)

    async def infer_batch(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> dict[str, Array]:
        """Ask for all rows of a batch; see `ModelClient.infer_batch`."""
        arrays = await self._arrays(inputs, named_inputs, is_sample=False)
        return await self._infer(arrays, parameters, headers, False)

    async def _infer(
        self,
        arrays: dict[str, Array],
        parameters: Parameters | None,
        headers: Headers | None,
        is_sample: bool,
    ) -> dict[str, Array]:
        facts = await self.model_config
        if facts.is_decoupled:
            raise ClientValueError(
                f"model '{facts.name}' gives any number of responses: use AsyncioDecoupledModelClient "
                "instead of AsyncioModelClient"
            )
        result = await self._call(
            self._connection.infer(
                **facts.request(self._library, arrays),
                **self._settings.infer_arguments(parameters, headers),
            )
        )
        return facts.answer(result, is_sample=is_sample)


class AsyncioDecoupledModelClient(BaseAsyncioModelClient):
    """Asks a model for any number of responses, over a gRPC stream for each request.

    Arguments are those of `BaseAsyncioModelClient`; the URL is one of gRPC.
    """

    async def infer_sample(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> AsyncIterator[dict[str, Array]]:
        """Ask for one sample; yields the outputs of each response, see `ModelClient.infer_sample`."""
        arrays = await self._arrays(inputs, named_inputs, is_sample=True)
        async for outputs in self._stream(arrays, parameters, headers, True):
            yield outputs

    async def infer_batch(
        self,
        *inputs: Any,
        parameters: Parameters | None = None,
        headers: Headers | None = None,
        **named_inputs: Any,
    ) -> AsyncIterator[dict[str, Array]]:
        """Ask for all rows of a batch; yields the outputs of each response."""
        arrays = await self._arrays(inputs, named_inputs, is_sample=False)
        async for outputs in self._stream(arrays, parameters, headers, False):
            yield outputs

    async def _stream(
        self,
        arrays: dict[str, Array],
        parameters: Parameters | None,
        headers: Headers | None,
        is_sample: bool,
    ) -> AsyncIterator[dict[str, Array]]:
        settings, facts = self._settings, await self.model_config
        if not settings.is_grpc:
            raise ClientValueError(
                f"url: got http for model '{facts.name}', expected grpc:// for a model with any number of "
                "responses"
            )
        request = {
            **facts.request(self._library, arrays),
            "parameters": dict(parameters or {}),
            "enable_empty_final_response": True,
        }

        async def requests() -> AsyncIterator[dict[str, Any]]:
            yield request

        responses = self._connection.stream_infer(requests(), headers=settings.headers(headers))
        try:
            while True:
                try:
                    result, error = await asyncio.wait_for(anext(responses), settings.inference_timeout_s)
                except StopAsyncIteration:
                    return
                except Exception as exc:
                    settings.fail(exc)
                if error is not None:
                    settings.fail(error)
                response = result.get_response()
                if response.outputs:
                    yield facts.answer(result, is_sample=is_sample)
                if response.parameters["triton_final_response"].bool_param:
                    return
        finally:
            responses.cancel()
