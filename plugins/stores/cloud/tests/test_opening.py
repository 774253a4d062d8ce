from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tritonpy_store_cloud
from tritonpy.errors import InvalidArg, Unsupported
from tritonpy.plugin import StoreOptions
from tritonpy_store_cloud.opening import open_store
from tritonpy_store_cloud.remote import RemoteStore


@pytest.mark.parametrize(
    "root", ["s3://bucket/a", "s3://host:9000/bucket", "gs://bucket", "as://account/container"]
)
def test_roots_of_object_stores_are_opened(root: str, tmp_path: Path) -> None:
    store = tritonpy_store_cloud.store_open(root, StoreOptions({"HOME": str(tmp_path)}, 5))

    assert isinstance(store, RemoteStore)
    assert store.root == root


def test_without_the_library_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)

    with pytest.raises(Unsupported, match=r"pip install tritonpy-store-cloud"):
        open_store("s3://bucket", {"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("root", "variable"),
    [
        ("s3://host:1/bucket", "TRITON_AWS_MOUNT_DIRECTORY"),
        ("gs://bucket", "TRITON_GCS_MOUNT_DIRECTORY"),
        ("as://account/container", "TRITON_AZURE_MOUNT_DIRECTORY"),
    ],
)
def test_a_directory_for_copies_must_exist(root: str, variable: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArg, match=rf"cannot be copied to '/nowhere'.*\({variable}\)"):
        open_store(root, {"HOME": str(tmp_path), variable: "/nowhere"})


def test_bad_credentials_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(InvalidArg, match="AWS_ACCESS_KEY_ID is given without AWS_SECRET_ACCESS_KEY"):
        open_store("s3://bucket", {"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "x"})


def test_the_library_is_imported_only_when_a_repository_is_opened() -> None:
    script = "import sys, tritonpy_store_cloud\nassert 'obstore' not in sys.modules\n"

    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_keys_to_object_stores_are_secret_and_settings_are_not() -> None:
    names = set(tritonpy_store_cloud.store_secret_variables())

    assert {"AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY", "GOOGLE_APPLICATION_CREDENTIALS"} < names
    assert "TRITON_CLOUD_CREDENTIAL_PATH" in names
    assert not {"AWS_REGION", "AWS_DEFAULT_REGION", "HOME", "TRITON_AWS_MOUNT_DIRECTORY"} & names
