"""The server's `ipc` package as the worker uses it.

Loaded by its path and under a name of its own, because the interpreter that runs a model need not have the
server installed.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any, Protocol

Message = tuple[Any, ...]  # Any: the payload differs by kind, see `frame.py` of the ipc package

_IPC_PATH_VARIABLE = "TRITONPY_IPC_PATH"
_IPC_NAME = "_tritonpy_ipc"


class Channel(Protocol):
    """The worker's end of the channel; `ipc.channel.WorkerChannel`."""

    endpoint: Any  # Any: `ipc.channel.Endpoint`, of which `_wire.Endpoint` names the part that is used

    def receive_many(self, flags: int = 0) -> list[Message] | None:
        """Wait for bytes and return the messages they complete; None when the channel is closed."""

    def fileno(self) -> int:
        """The descriptor to wait on, for an event loop."""

    def send(self, kind: int, *payload: Any) -> None:  # Any: see `frame.py`
        """Send one message; from any thread."""

    def is_cancelled(self, slot: int) -> bool:
        """True if the server has cancelled the request in `slot`."""

    def continue_over(self, channel: socket.socket) -> None:
        """Go on in a forked child over a socket to its parent."""

    def exit_with_server(self) -> None:
        """End this process when the server is gone."""


def _ipc_directory() -> str:
    directory = os.environ.get(_IPC_PATH_VARIABLE)
    if directory:
        return directory
    spec = find_spec("tritonpy")  # finds the package, does not import it
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            f"the server's package 'ipc' is not found: neither is {_IPC_PATH_VARIABLE} set, "
            f"nor is 'tritonpy' installed in {sys.prefix}"
        )
    return os.path.join(next(iter(spec.submodule_search_locations)), "ipc")


def _load(directory: str) -> None:
    path = os.path.join(directory, "__init__.py")
    spec = spec_from_file_location(_IPC_NAME, path, submodule_search_locations=[directory])
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load the server's package 'ipc' from {directory}")
    module = sys.modules[_IPC_NAME] = module_from_spec(spec)
    spec.loader.exec_module(module)


_load(_ipc_directory())
frame = import_module(f"{_IPC_NAME}.frame")
window = import_module(f"{_IPC_NAME}.window")
_channel = import_module(f"{_IPC_NAME}.channel")


def open_channel() -> Channel:
    """Open the descriptors that the server left for this process."""
    return _channel.WorkerChannel.from_environment()  # type: ignore[no-any-return]
