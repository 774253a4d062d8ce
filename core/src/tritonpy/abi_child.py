"""Names of `tritonpy.plugin` that come without numpy, for processes that tritonpy-abi starts.

An agent's process is there before its library is opened: what it imports, the first load waits for.
"""

from tritonpy.errors import Internal, NotFound, TritonError, Unavailable, Unsupported
from tritonpy.hookspecs import hookimpl

__all__ = ["Internal", "NotFound", "TritonError", "Unavailable", "Unsupported", "hookimpl"]
