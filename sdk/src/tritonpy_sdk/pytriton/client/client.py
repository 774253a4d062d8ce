"""`pytriton.client.client`."""

from tritonpy_sdk.clients import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from tritonpy_sdk.clients.connection import INFERENCE_TIMEOUT_S as DEFAULT_INFERENCE_TIMEOUT_S
from tritonpy_sdk.clients.model_client import BaseModelClient

__all__ = [
    "DEFAULT_INFERENCE_TIMEOUT_S",
    "AsyncioDecoupledModelClient",
    "AsyncioModelClient",
    "BaseModelClient",
    "DecoupledModelClient",
    "FuturesModelClient",
    "ModelClient",
]
