"""Host policies: processors and memory nodes that instances keep to.

A policy is put in force on a thread before anything of the instance exists. Linux hands both settings on to
the threads and processes that the thread starts. So a worker inherits them at its birth, before its first
import, and the threads of a framework do too, unless it places them itself.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from tritonpy.errors import Internal, InvalidArg, Unsupported
from tritonpy.own_thread import on_own_thread

_log = logging.getLogger("tritonpy.devices")

CPU_CORES = "cpu-cores"
NUMA_NODE = "numa-node"

_MOST_CORES = 1 << 16


@dataclass(frozen=True, slots=True)
class HostPolicy:
    """One policy.

    Attributes:
        name: as instance groups write it in `host_policy`.
        cores: the processors to run on; None leaves them all.
        numa_node: the only node to take memory from; None leaves it to the system.
        settings: the same as they were written, by their names.
    """

    name: str
    cores: frozenset[int] | None = None
    numa_node: int | None = None
    settings: tuple[tuple[str, str], ...] = ()


class HostPolicies:
    """All policies of a server.

    Args:
        settings: `(policy, setting, value)` each; of a setting given twice the last one counts.

    Raises:
        InvalidArg, Unsupported: a setting cannot be read, in Triton's words.
    """

    def __init__(self, settings: Iterable[tuple[str, str, str]] = ()) -> None:
        self._policies: dict[str, HostPolicy] = {}
        for name, setting, value in settings:
            policy = self._policies.get(name, HostPolicy(name))
            cores, node = policy.cores, policy.numa_node
            if setting == CPU_CORES:
                cores = parse_cores(value)
            elif setting == NUMA_NODE:
                node = _parse_number(NUMA_NODE, value)
            else:
                raise Unsupported(
                    f"Unsupported host policy setting '{setting}' is specified, supported settings are "
                    f"'{NUMA_NODE}', '{CPU_CORES}'"
                )
            written = dict(policy.settings) | {setting: value}
            self._policies[name] = HostPolicy(name, cores, node, tuple(sorted(written.items())))

    def log_missing_cores(self) -> None:
        """Log the policies of whose processors some, but not all, are missing."""
        for policy in self._policies.values():
            missing = policy.cores - allowed_cores() if policy.cores and has_affinity() else frozenset()
            if missing and missing != policy.cores:
                _log.warning(
                    "host policy '%s' asks for cores %s, which this server does not have",
                    policy.name,
                    spans(missing),
                )

    def find(self, name: str) -> HostPolicy | None:
        """The policy of that name; None where it has no settings, which is no error."""
        return self._policies.get(name)


def default_policy(kind: str, device_id: int) -> str:
    """The policy of an instance whose group names none: `cpu`, `model` or `gpu_<id>`."""
    return {"KIND_GPU": f"gpu_{device_id}", "KIND_MODEL": "model"}.get(kind, "cpu")


def parse_cores(text: str) -> frozenset[int]:
    """Read `<lower>-<upper>`, or beyond Triton's form single cores and lists of both: `0-3,8`.

    Raises:
        InvalidArg: it is not written so, in Triton's words.
    """
    cores: set[int] = set()
    for part in text.split(","):
        lower, dash, upper = part.partition("-")
        if not dash and not part.isdecimal():
            raise InvalidArg(
                f"host policy setting '{CPU_CORES}' format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. "
                f"Got {text}"
            )
        first = _parse_number(CPU_CORES, lower)
        last = _parse_number(CPU_CORES, upper) if dash else first
        if last < first:
            raise InvalidArg(
                f"host policy setting '{CPU_CORES}' goes from the lower to the upper core. Got {text}"
            )
        cores.update(range(first, last + 1))
    return frozenset(cores)


def check_setting(setting: str, value: str) -> None:
    """Refuse an invalid setting of a policy.

    Raises:
        InvalidArg, Unsupported: what is wrong with it, in Triton's words.
    """
    HostPolicies([("", setting, value)])


def _parse_number(setting: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise InvalidArg(f"Parsing '{setting}' value: Can't parse '{text}' to integer")
    if len(text) > 5 or int(text) >= _MOST_CORES:  # also keeps the range from filling the memory
        raise InvalidArg(f"Parsing '{setting}' value: '{text[:20]}' is out of range")
    return int(text)


def allowed_cores() -> set[int]:
    """The processors that this process may use; those of its first thread, which no policy is ever put on."""
    return os.sched_getaffinity(os.getpid())


def has_affinity() -> bool:
    """Threads of this system can be bound to processors."""
    return hasattr(os, "sched_setaffinity")


def spans(cores: Iterable[int]) -> str:
    """Cores as people write them: `0-3,8`."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


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
        Unsupported: this system cannot do that.
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
