"""A repository in memory that counts what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from tritonpy_store_cloud.cache import ModelCache
from tritonpy_store_cloud.location import read_location
from tritonpy_store_cloud.refusal import read_refusal
from tritonpy_store_cloud.remote import RemoteStore

ROOT = "s3://bucket/models"


class FakeClient:
    """obstore's store in memory, with a list of the keys that were read and a hook before each read."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.read: list[str] = []
        self.before_get: Callable[[str], object] = lambda key: None
        self.before_list: Callable[[], object] = lambda: None

    def put(self, key: str, content: bytes) -> None:
        self.memory.put(key, content)

    def delete(self, key: str) -> None:
        self.memory.delete(key)

    def get(self, key: str, **options: Any) -> Any:
        self.read.append(key)
        self.before_get(key)
        return self.memory.get(key, **options)

    def list(self, prefix: str | None = None, **options: Any) -> Any:
        self.before_list()
        return self.memory.list(prefix, **options)

    def list_with_delimiter(self, prefix: str | None = None) -> Any:
        self.before_list()
        return self.memory.list_with_delimiter(prefix)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def client() -> FakeClient:
    return FakeClient()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(tmp_path: Path, clock: Clock) -> ModelCache:
    return ModelCache(tmp_path, clock)


@pytest.fixture
def store(client: FakeClient, cache: ModelCache) -> RemoteStore:
    location = read_location(ROOT)
    return RemoteStore(
        location,
        lambda: client,  # type: ignore[arg-type,return-value]  # has what is used of an ObjectStore
        lambda error: read_refusal(error, location, "AWS_ACCESS_KEY_ID", ["s3cr3t"], 5),
        cache,
        mount_variable="TRITON_AWS_MOUNT_DIRECTORY",
        wait=lambda seconds: None,
    )
