"""Shared memory objects as a client makes them, and a log in a file."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tritonpy.options import ServerOptions


class SharedFile:
    """A shared memory object of a client.

    Attributes:
        key: its name, with the leading slash.
        path: where it lies on Linux.
    """

    def __init__(self, byte_size: int, data: bytes = b"") -> None:
        self.key = f"/tritonpy_test_{uuid.uuid4().hex}"
        self.path = Path("/dev/shm") / self.key[1:]
        self.resize(byte_size)
        self.write(data)

    def resize(self, byte_size: int) -> None:
        with self.path.open("ab"):
            os.truncate(self.path, byte_size)

    def write(self, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.write(data)

    @property
    def content(self) -> bytes:
        return self.path.read_bytes()


@pytest.fixture
def shared_file() -> Iterator[Callable[..., SharedFile]]:
    """Make shared memory objects, which are deleted when the test is over."""
    made: list[SharedFile] = []

    def make(byte_size: int, data: bytes = b"") -> SharedFile:
        made.append(SharedFile(byte_size, data))
        return made[-1]

    yield make
    for file in made:
        with suppress(FileNotFoundError):
            file.path.unlink()


def log_options(path: Path, **changes: object) -> ServerOptions:
    """A server's options that send its log to `path`."""
    return ServerOptions(model_repositories=(), log_file=str(path), **changes)  # type: ignore[arg-type]


@pytest.fixture
def log_path(tmp_path: Path) -> Iterator[Path]:
    """Where a test writes its log; when it is over, the server's logger has to be as it was."""
    logger = logging.getLogger("tritonpy")
    before = (logger.level, logger.propagate)
    yield tmp_path / "server.log"
    assert (logger.level, logger.propagate) == before
