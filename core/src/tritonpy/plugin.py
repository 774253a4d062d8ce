"""The one door for plugins: everything a third party's distribution may import.

Importing this pulls neither a web framework nor gRPC nor protobuf.
"""

from tritonpy.admission import Admission, Waiter
from tritonpy.batches.bindings import Binding, GivenTensor, given_inputs, kept_outputs
from tritonpy.batches.plan import BatchPlan
from tritonpy.buffers import BlockPool, Buffer, BufferLocation, HostBuffer, MemoryType
from tritonpy.completion import (
    FileTensor,
    can_batch,
    carried,
    check_datatype,
    check_dims,
    complete_config,
    default_max_batch_size,
    no_datatype,
    tensor_config,
)
from tritonpy.cores import usable_core_count
from tritonpy.dataplane import Address, Dataplane, Frontend, ModelActivity, ServedModel, TensorSpec, Unready
from tritonpy.datatypes import CONFIG_DATATYPES, DATATYPES, DataType, datatype_of
from tritonpy.errors import (
    AlreadyExists,
    Cancelled,
    ErrorCode,
    Internal,
    InvalidArg,
    NotFound,
    TritonError,
    Unavailable,
    UnknownError,
    Unsupported,
)
from tritonpy.executor import Executed, Executor, FrameExecutor
from tritonpy.fingerprint import Fingerprint, is_watched, read_fingerprint
from tritonpy.flow import ResponseFlow
from tritonpy.handles import (
    Backend,
    BackendAttributes,
    Batch,
    Batcher,
    Cache,
    CacheUsage,
    MemoryUsage,
    Model,
    ModelInstance,
    OpLibrary,
    PreferredGroup,
    RepoAgent,
    RepoAgentModel,
    WorkerCommand,
)
from tritonpy.hookspecs import API_VERSION, hookimpl
from tritonpy.json_object import JsonObject
from tritonpy.op_libraries import OpenOpLibraries, backend_op_libraries
from tritonpy.parameters import parse_flag, parse_whole, warn_of_unknown_parameters
from tritonpy.raw_input import raw_tensor
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest, ResponseSink
from tritonpy.request_trace import RequestTrace
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.secret_variables import without_secrets
from tritonpy.server_link import OnResponse, OpenCall, ServerLink
from tritonpy.store import LocalFiles, Store, StoreOptions
from tritonpy.temporary import TemporaryDirectories
from tritonpy.tensor import Array, Tensor, pack_bytes, unpack_bytes

__all__ = [
    "API_VERSION",
    "CONFIG_DATATYPES",
    "DATATYPES",
    "SEQUENCE_END",
    "SEQUENCE_START",
    "Address",
    "Admission",
    "AlreadyExists",
    "Array",
    "Backend",
    "BackendAttributes",
    "Batch",
    "BatchPlan",
    "Batcher",
    "Binding",
    "BlockPool",
    "Buffer",
    "BufferLocation",
    "Cache",
    "CacheUsage",
    "Cancelled",
    "DataType",
    "Dataplane",
    "ErrorCode",
    "Executed",
    "Executor",
    "FileTensor",
    "Fingerprint",
    "FrameExecutor",
    "Frontend",
    "GivenTensor",
    "HostBuffer",
    "InferRequest",
    "InferResponse",
    "Internal",
    "InvalidArg",
    "JsonObject",
    "LocalFiles",
    "MemoryType",
    "MemoryUsage",
    "Model",
    "ModelActivity",
    "ModelInstance",
    "NotFound",
    "OnResponse",
    "OpLibrary",
    "OpenCall",
    "OpenOpLibraries",
    "ParameterValue",
    "PreferredGroup",
    "RepoAgent",
    "RepoAgentModel",
    "RequestTrace",
    "ResponseFlow",
    "ResponseSink",
    "ServedModel",
    "ServerLink",
    "Store",
    "StoreOptions",
    "TemporaryDirectories",
    "Tensor",
    "TensorSpec",
    "TritonError",
    "Unavailable",
    "UnknownError",
    "Unready",
    "Unsupported",
    "Waiter",
    "WorkerCommand",
    "backend_op_libraries",
    "can_batch",
    "carried",
    "check_datatype",
    "check_dims",
    "complete_config",
    "datatype_of",
    "default_max_batch_size",
    "given_inputs",
    "hookimpl",
    "is_watched",
    "kept_outputs",
    "no_datatype",
    "pack_bytes",
    "parse_flag",
    "parse_whole",
    "raw_tensor",
    "read_fingerprint",
    "tensor_config",
    "unpack_bytes",
    "usable_core_count",
    "warn_of_unknown_parameters",
    "without_secrets",
]
