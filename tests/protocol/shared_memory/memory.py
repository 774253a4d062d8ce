"""Shared memory as clients make it, and plain requests that register it."""

from __future__ import annotations

import http.client
import json
import os
import uuid
from pathlib import Path
from typing import Any

from tritonclient.utils import shared_memory

from . import http_cases as cases


class Memory:
    """A shared memory object of 64 bytes, with another name for every test."""

    def __init__(self, content: bytes = b"", byte_size: int = 64) -> None:
        self.key = f"/tritonpy_test_{uuid.uuid4().hex}"
        self.path = Path("/dev/shm") / self.key[1:]
        self.path.write_bytes(content.ljust(byte_size, b"\0"))

    @property
    def content(self) -> bytes:
        return self.path.read_bytes()

    def cut(self, byte_size: int) -> None:
        os.truncate(self.path, byte_size)


class ClientRegion:
    """A region made with `tritonclient.utils.shared_memory`."""

    def __init__(self, name: str, byte_size: int) -> None:
        self.name, self.byte_size = name, byte_size
        self.key = f"/tritonpy_test_{uuid.uuid4().hex}"
        self.handle = shared_memory.create_shared_memory_region(name, self.key, byte_size)

    def register(self, client: Any) -> None:
        client.register_system_shared_memory(self.name, self.key, self.byte_size)

    def set(self, values: Any) -> None:
        shared_memory.set_shared_memory_region(self.handle, [values])

    def get(self, datatype: Any, shape: list[int]) -> Any:
        return shared_memory.get_contents_as_numpy(self.handle, datatype, shape)


class Http:
    """Plain requests to one port."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        body = json.dumps(body).encode() if isinstance(body, dict | list) else body
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else None

    def register(self, name: str, memory: Memory, byte_size: int = 64) -> None:
        body = {"key": memory.key, "byte_size": byte_size}
        assert self.ask("POST", f"{cases.SYSTEM}/region/{name}/register", body) == (200, None)


def shape_of(answer: Any) -> list[int]:
    output = answer.get_output("OUTPUT0")
    return list(output["shape"] if isinstance(output, dict) else output.shape)
