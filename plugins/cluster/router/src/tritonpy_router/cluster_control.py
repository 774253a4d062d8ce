"""The socket over which `corectl cluster status`, `scale`, `update` and `down` reach a fleet that runs.

One JSON document to a line: a question, and one answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from tritonpy.errors import Unavailable

Document: TypeAlias = dict[str, Any]  # Any: JSON
_LONGEST = 1 << 20


def socket_path(name: str) -> Path:
    """The socket of the fleet of a name; its folder is this user's alone."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) if runtime else Path(tempfile.gettempdir()) / f"tritonpy-{os.getuid()}"
    return folder / f"tritonpy-cluster-{name}.sock"


class ControlSocket:
    """Answers questions; on the loop only.

    Args:
        path: of the socket.
        answer: answers one.
    """

    def __init__(self, path: Path, answer: Callable[[Document], Awaitable[Document]]) -> None:
        self._path = path
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            Unavailable: another fleet of this name runs.
        """
        folder = self._path.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise Unavailable(
                f"'{folder}' is not this user's alone, so anybody could end the fleet: set XDG_RUNTIME_DIR"
            )
        if self._path.exists():
            if _answers(self._path):
                raise Unavailable(
                    f"a fleet of this name runs already (its socket is {self._path}): give another --name"
                )
            self._path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=_LONGEST)
        self._path.chmod(0o600)

    async def stop(self) -> None:
        """Close the socket."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            try:
                answer = await self._answer(json.loads(line))
            except Exception as exc:  # whatever it is, who asks is told
                answer = {"error": str(exc) or type(exc).__name__}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            pass  # it is gone, or sends no line
        finally:
            writer.close()


def ask(path: Path, question: Document, timeout_s: float | None = None) -> Document:
    """Ask a fleet that runs.

    Raises:
        Unavailable: none runs there.
    """
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(timeout_s)
            client.connect(str(path))
            client.sendall(json.dumps(question).encode() + b"\n")
            with client.makefile("rb") as stream:
                answer: Document = json.loads(stream.readline())
                return answer
    except (OSError, ValueError) as exc:
        raise Unavailable(
            f"no fleet answers at {path} ({exc}): start one with corectl cluster local"
        ) from None


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            client.connect(str(path))
    except OSError:
        return False
    return True
