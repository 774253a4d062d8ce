"""`pytriton.client.exceptions`."""

from tritonpy_sdk.clients.errors import (
    BatchingUnsupportedError as PyTritonClientModelDoesntSupportBatchingError,
)
from tritonpy_sdk.clients.errors import ClientClosedError as PyTritonClientClosedError
from tritonpy_sdk.clients.errors import ClientError as PyTritonClientError
from tritonpy_sdk.clients.errors import ClientTimeoutError as PyTritonClientTimeoutError
from tritonpy_sdk.clients.errors import ClientValueError as PyTritonClientValueError
from tritonpy_sdk.clients.errors import InferenceServerError as PyTritonClientInferenceServerError
from tritonpy_sdk.clients.errors import InvalidUrlError as PyTritonClientInvalidUrlError
from tritonpy_sdk.clients.errors import ModelUnavailableError as PyTritonClientModelUnavailableError
from tritonpy_sdk.clients.errors import QueueFullError as PyTritonClientQueueFullError

__all__ = [
    "PyTritonClientClosedError",
    "PyTritonClientError",
    "PyTritonClientInferenceServerError",
    "PyTritonClientInvalidUrlError",
    "PyTritonClientModelDoesntSupportBatchingError",
    "PyTritonClientModelUnavailableError",
    "PyTritonClientQueueFullError",
    "PyTritonClientTimeoutError",
    "PyTritonClientValueError",
]
