"""The program of the process that a library is tried in: `child.py REPORT PARENT SHIM`, a request on stdin.

It is run as a file and imports nothing but the standard library, so that it is there in a few milliseconds
in any installation. What is called, and how, is written in C: `csrc/probe`.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from base64 import b64decode
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Try what the request names; the report says the rest."""
    report, parent, shim = int(arguments[0]), int(arguments[1]), arguments[2]
    _die_with(parent)
    _dump_no_core()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    request = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    library = ctypes.CDLL(shim, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    for alias in request["aliases"]:
        _open(b64decode(alias))
    getattr(library, request["function"])(report, *map(_as_c, request["arguments"]))


def _open(content: bytes) -> None:
    """Open a library that is no file."""
    with open(os.memfd_create("alias"), "wb", buffering=0) as file:
        file.write(content)
        ctypes.CDLL(f"/proc/self/fd/{file.fileno()}")


def _as_c(argument: str | int) -> bytes | ctypes.c_uint64:
    if isinstance(argument, int):  # with booleans
        return ctypes.c_uint64(argument)
    return argument.encode(errors="surrogateescape")  # paths may be in any encoding


def _die_with(parent: int) -> None:
    """Have the system kill this process when the server ends, however it does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)


def _dump_no_core() -> None:
    # One byte: as a file it is too small to be begun, and programs that take dumps are not called for it,
    # while with no byte at all they are.
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (1 if most == resource.RLIM_INFINITY else min(1, most), most))


main(sys.argv[1:])
sys.stdout.flush()
os._exit(0)  # the report is complete; what the library would do at the end of the server is not tried
