"""Put a host policy in force: on a thread, before anything of the instance exists.

Linux hands both settings on to the threads and processes that the thread starts. So a worker inherits them at
its birth, before its first import, and the threads of a framework do too, unless it places them itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tritonpy.devices.host_policy import NUMA_NODE, HostPolicy, allowed_cores, has_affinity, spans
from tritonpy.errors import Internal, Unsupported
from tritonpy.own_thread import on_own_thread

Args = ParamSpec("Args")
Result = TypeVar("Result")

_MPOL_BIND = 2
_MASK_BITS = 1024
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""The number of the system call; libnuma, which would know it, is not everywhere."""


def bind(policy: HostPolicy) -> None:
    """Put a policy in force on this thread and on what it starts from now on.

    Raises:
        Internal: the system refuses, in Triton's words.
        Unsupported: this system has no such thing.
    """
    if policy.cores is not None:
        _bind_cores(policy.name, policy.cores)
    if policy.numa_node is not None:
        _bind_memory(policy.name, policy.numa_node)


async def run_under(
    policy: HostPolicy | None, function: Callable[Args, Result], *args: Args.args, **named: Args.kwargs
) -> Result:
    """Call a function that blocks, for however long, on a thread of its own which keeps to a policy.

    Raises:
        Internal, Unsupported: the policy cannot be put in force; or what the function raises.
    """

    def call() -> Result:
        if policy is not None:
            bind(policy)  # one of a pool would go on with it, and what it had before is not known
        return function(*args, **named)

    return await on_own_thread(call, f"host-policy-{policy.name}" if policy is not None else "hook")


def _bind_cores(policy: str, cores: frozenset[int]) -> None:
    if not has_affinity():
        raise Unsupported(f"host policy '{policy}': threads cannot be bound to cores on this system")
    usable = cores & allowed_cores()
    if not usable:
        raise Internal(
            f"Unable to set NUMA thread affinity: none of the cores {spans(cores)} of host policy "
            f"'{policy}' is there for this server, only {spans(allowed_cores())}"
        )
    try:
        os.sched_setaffinity(0, usable)
    except OSError as exc:
        raise Internal(f"Unable to set NUMA thread affinity: {exc.strerror}") from exc


def _bind_memory(policy: str, node: int) -> None:
    number = _bind_memory_of_thread(node)
    if number:
        raise Internal(
            f"Unable to set NUMA memory policy: {os.strerror(number)} (host policy '{policy}', "
            f"{NUMA_NODE} {node})"
        )


def _bind_memory_of_thread(node: int) -> int:
    """Have this thread take memory from one node only; returns the system's error number, 0 for none."""
    call = _SET_MEMPOLICY.get(platform.machine()) if platform.system() == "Linux" else None
    if call is None:
        raise Unsupported(f"memory cannot be bound to NUMA nodes on {platform.system()} {platform.machine()}")
    if node >= _MASK_BITS:
        return errno.EINVAL  # as the system says about others that are not there
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (_MASK_BITS // bits))()
    mask[node // bits] = 1 << node % bits
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = ctypes.c_long(call), ctypes.c_int(_MPOL_BIND), mask, ctypes.c_ulong(_MASK_BITS)
    return ctypes.get_errno() if libc.syscall(*arguments) else 0
