"""Messages in a private descriptor pool: Triton's package `inference`, and gRPC's health and reflection.

Importing this does not import gRPC, and does not mind tritonclient in the same process.
"""

from tritonpy.protos.messages import *  # noqa: F403  # the stub lists them
from tritonpy.protos.pool import POOL as POOL
from tritonpy.protos.pool import RpcMethod as RpcMethod
from tritonpy.protos.pool import rpc_methods as rpc_methods
