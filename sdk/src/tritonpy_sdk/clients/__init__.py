"""Clients of one model each, over tritonclient: arrays in, arrays out; needs `tritonpy-sdk[client]`."""

from tritonpy_sdk.clients.asyncio_client import AsyncioDecoupledModelClient, AsyncioModelClient
from tritonpy_sdk.clients.errors import (
    BatchingUnsupportedError,
    ClientClosedError,
    ClientError,
    ClientTimeoutError,
    ClientValueError,
    InferenceServerError,
    InvalidUrlError,
    ModelUnavailableError,
    QueueFullError,
)
from tritonpy_sdk.clients.futures_client import FuturesModelClient
from tritonpy_sdk.clients.model_client import DecoupledModelClient, ModelClient
from tritonpy_sdk.clients.model_facts import ModelFacts

__all__ = [
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "BatchingUnsupportedError",
    "ClientClosedError",
    "ClientError",
    "ClientTimeoutError",
    "ClientValueError",
    "DecoupledModelClient",
    "FuturesModelClient",
    "InferenceServerError",
    "InvalidUrlError",
    "ModelClient",
    "ModelFacts",
    "ModelUnavailableError",
    "QueueFullError",
]
