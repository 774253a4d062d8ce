"""Object stores keep to the rules of all stores: the plugin's hooks, and a store over a bucket in memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest
from tritonpy.plugin import Store
from tritonpy_sdk.testing import StoreConformance
from tritonpy_store_cloud.cache import ModelCache
from tritonpy_store_cloud.location import read_location
from tritonpy_store_cloud.refusal import read_refusal
from tritonpy_store_cloud.remote import RemoteStore

from .conftest import FakeClient


class TestCloud(
    StoreConformance,
    store="s3",
    secrets={"AWS_ACCESS_KEY_ID": "open", "AWS_SECRET_ACCESS_KEY": "sesame-sesame"},
    wrong_roots=["s3://", "s3://host:many/bucket"],
    lost_root="s3://bucket/nowhere",
):
    numbers = itertools.count()

    @pytest.fixture(autouse=True)
    def place(self, client: FakeClient, tmp_path: Path) -> None:
        self.client, self.directory = client, tmp_path

    def make_root(self, directory: Path) -> str:
        return f"s3://bucket/models{next(self.numbers)}"

    def put(self, root: str, files: Mapping[str, bytes]) -> None:
        prefix = root.removeprefix("s3://bucket/")
        wanted = {f"{prefix}/{path}": content for path, content in files.items()}
        for key in [found["path"] for batch in self.client.memory.list(prefix) for found in batch]:
            if wanted.get(key) == self.client.memory.get(key).bytes():
                del wanted[key]
            else:
                self.client.delete(key)
        for key, content in wanted.items():
            self.client.put(key, content)

    def open(self, root: str, environ: Mapping[str, str]) -> Store:
        if not root.startswith("s3://bucket/"):
            return super().open(root, environ)
        location = read_location(root)
        return RemoteStore(
            location,
            lambda: self.client,  # type: ignore[arg-type,return-value]  # has what is used of an ObjectStore
            lambda error: read_refusal(error, location, "AWS_ACCESS_KEY_ID", list(environ.values()), 5),
            ModelCache(self.directory),
            mount_variable="TRITON_AWS_MOUNT_DIRECTORY",
            wait=lambda seconds: None,
        )
