"""What clients share: the way to a server, waiting for it and its model, and its errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NoReturn

from tritonclient.utils import InferenceServerException

from tritonpy_sdk.clients.errors import (
    ClientClosedError,
    ClientTimeoutError,
    InferenceServerError,
    ModelUnavailableError,
)
from tritonpy_sdk.clients.server_url import ServerUrl

INIT_TIMEOUT_S = 300.0
INFERENCE_TIMEOUT_S = 60.0
TOKEN_HEADER = "triton-access-token"
POLL_S = 0.1
_GRPC_PREFIX = "triton-grpc-protocol-"  # of headers that --grpc-restricted-protocol asks for
_TIMEOUT_WORDS = ("deadline exceeded", "timed out", "timeout")

Parameters = Mapping[str, str | int | bool]
Headers = Mapping[str, str]


class Settings:
    """What a client of a model was given.

    Args:
        url: see `ServerUrl`.
        model_name: of the model.
        model_version: None for the newest.
        init_timeout_s: how long to wait for the server and the model.
        inference_timeout_s: how long to wait for an answer.
        access_token: of a server that wants one; sent in the header `triton-access-token`.
    """

    def __init__(
        self,
        url: str,
        model_name: str,
        model_version: str | None,
        init_timeout_s: float | None,
        inference_timeout_s: float | None,
        access_token: str | None,
    ) -> None:
        self.given_url = url
        self.url = ServerUrl.parse(url)
        self.model_name = model_name
        self.model_version = model_version or ""
        self.init_timeout_s = INIT_TIMEOUT_S if init_timeout_s is None else init_timeout_s
        self.inference_timeout_s = INFERENCE_TIMEOUT_S if inference_timeout_s is None else inference_timeout_s
        self.access_token = access_token
        self.is_closed = False

    @property
    def is_grpc(self) -> bool:
        """The protocol is gRPC."""
        return self.url.protocol == "grpc"

    def connection(self, library: ModuleType) -> Any:  # Any: a client of tritonclient
        """A client of one of tritonclient's four modules."""
        if self.is_grpc:
            return library.InferenceServerClient(self.url.address, ssl=self.url.is_encrypted)
        is_asyncio = library.__name__.endswith("aio")
        names = ("conn_timeout",) if is_asyncio else ("connection_timeout", "network_timeout")
        timeouts = dict.fromkeys(names, self.inference_timeout_s)
        return library.InferenceServerClient(self.url.address, ssl=self.url.is_encrypted, **timeouts)

    def headers(self, more: Headers | None = None) -> dict[str, str]:
        """Headers of a request."""
        name = f"{_GRPC_PREFIX}{TOKEN_HEADER}" if self.is_grpc else TOKEN_HEADER
        token = {name: self.access_token} if self.access_token else {}
        return {**token, **(more or {})}

    def infer_arguments(self, parameters: Parameters | None, headers: Headers | None) -> dict[str, Any]:
        """Arguments of tritonclient's `infer`, without tensors."""
        arguments: dict[str, Any] = {"headers": self.headers(headers), "parameters": dict(parameters or {})}
        if self.is_grpc:
            arguments["client_timeout"] = self.inference_timeout_s
        return arguments

    def config_arguments(self) -> dict[str, Any]:
        """Arguments of tritonclient's `get_model_config`."""
        return {"as_json": True} if self.is_grpc else {}

    def check_open(self) -> None:
        """Refuse to go on.

        Raises:
            ClientClosedError: the client was closed.
        """
        if self.is_closed:
            raise ClientClosedError(f"the client of model '{self.model_name}' is closed")

    def late(self, what: str, timeout_s: float) -> ClientTimeoutError:
        """The error for what does not come."""
        return ClientTimeoutError(f"{what} at {self.url.address} was not ready within {timeout_s:g} s")

    def fail(self, exc: Exception) -> NoReturn:
        """Raise the error of this package for one of tritonclient or of what it is made of.

        Raises:
            ClientError: always.
        """
        text = exc.message() if isinstance(exc, InferenceServerException) else str(exc)
        status = str(exc.status() or "") if isinstance(exc, InferenceServerException) else ""
        if isinstance(exc, TimeoutError) or any(words in str(text).lower() for words in _TIMEOUT_WORDS):
            raise ClientTimeoutError(
                f"model '{self.model_name}' gave no answer within {self.inference_timeout_s:g} s: {text}"
            ) from exc
        if isinstance(exc, InferenceServerException):
            raise InferenceServerError(str(text), status) from exc
        raise ModelUnavailableError(f"the server at {self.url.address} cannot be reached: {exc!r}") from exc


class Deadline:
    """The end of a time that begins now."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s

    def is_over(self) -> bool:
        """The time has passed."""
        return time.monotonic() >= self._end
