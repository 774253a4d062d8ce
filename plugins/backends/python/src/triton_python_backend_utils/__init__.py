"""The module that a Python model imports: `import triton_python_backend_utils as pb_utils`.

The names and their behaviour are those of Triton's module, so that one `model.py` serves on both. It works
the same in a worker of the server, in an editor and in a plain unit test: tensors, requests and responses can
be made by hand. It needs only numpy and runs on Python 3.9 and newer.
"""

from __future__ import annotations

# Triton's module has these by chance, and models that say `import *` use them.
import json
import struct

import numpy as np

from ._calls import ResponseIterator
from ._config import (
    get_input_config_by_name,
    get_output_config_by_name,
    using_decoupled_model_transaction_policy,
)
from ._datatypes import (
    TRITON_STRING_TO_NUMPY,
    numpy_to_triton_type,
    triton_string_to_numpy,
    triton_to_numpy_type,
)
from ._errors import TritonError, TritonModelException
from ._logger import Logger
from ._memory import TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU, MemoryType, PreferredMemory
from ._metrics import MetricFamily
from ._model_config import ModelConfig
from ._model_control import is_model_ready, load_model, unload_model
from ._model_dir import get_model_dir
from ._request import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
    InferenceTrace,
    get_input_tensor_by_name,
)
from ._response import InferenceResponse, get_output_tensor_by_name
from ._sender import TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceResponseSender
from ._strings import deserialize_bytes_tensor, serialize_byte_tensor
from ._tensor import Tensor

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "MetricFamily",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "json",
    "load_model",
    "np",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "struct",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]
