"""Messages of Triton's package `inference` in a private descriptor pool: configuration and gRPC protocol.

Importing this does not import gRPC, and does not mind tritonclient in the same process.
"""

from tritonpy.protos.messages import *  # noqa: F403  # the stub lists them
from tritonpy.protos.pool import POOL as POOL
from tritonpy.protos.pool import RpcMethod as RpcMethod
from tritonpy.protos.pool import rpc_methods as rpc_methods
