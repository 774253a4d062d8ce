"""Models in an S3 store, with the server as people start it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import TritonError
from tritonpy.server import Server
from tritonpy.store import Store
from tritonpy_sdk.testing import until
from tritonpy_store_cloud.opening import open_store

from .conftest import SECRET, S3Emulator
from .models import CONFIG, ask, code, infer, load


@pytest.fixture
def store(s3: S3Emulator, bucket: str) -> Iterator[Store]:
    store = open_store(s3.root(bucket), timeout_s=30)
    yield store
    store.close()


def test_models_are_served_and_only_what_changes_is_copied_again(
    s3: S3Emulator, bucket: str, corectl: Callable[..., Any], tmp_path: Path
) -> None:
    root = s3.root(bucket)
    server = corectl("--model-repository", root, "--model-control-mode=explicit", "--load-model=*")
    port = server.ports["HTTPService"]
    at_start = s3.downloads()
    before = infer(port, "adds", "INT32", 5), infer(port, "doubles", "FP32", 1.5, 4)
    unchanged = load(port, "adds")
    nothing = s3.downloads()
    s3.put(bucket, "models/adds/1/model.py", code(10))
    reloaded = load(port, "adds")
    one = s3.downloads()
    after = infer(port, "adds", "INT32", 5)
    ask(port, "repository/models/adds/unload", {})
    ask(port, "repository/models/doubles/unload", {})
    until(lambda: not list((tmp_path / "copies").glob("*/*/snapshots/*")))
    status = server.stop()

    assert at_start == [
        "models/adds/1/model.py",
        "models/adds/1/notes.txt",
        "models/adds/config.pbtxt",
        "models/doubles/1/model.onnx",
    ]
    assert before == ([6], [3, 8])
    assert (unchanged, nothing) == ("", [])
    assert (reloaded, one) == ("", ["models/adds/1/model.py"])
    assert after == [15]
    assert status == 0
    assert list((tmp_path / "copies").iterdir()) == []
    assert root in server.log
    assert f"copied 'adds' from {root}: 3 of 3 files" in server.log
    assert SECRET not in server.log


def test_everything_is_loaded_in_mode_none(s3: S3Emulator, bucket: str, serve: Callable[..., Server]) -> None:
    server = serve(s3.root(bucket))

    assert infer(server.http_port, "adds", "INT32", 1) == [2]
    assert infer(server.http_port, "doubles", "FP32", 1, 2) == [2, 4]


def test_a_repository_may_be_a_whole_bucket_and_name_its_scheme(
    s3: S3Emulator, serve: Callable[..., Server]
) -> None:
    bucket = s3.bucket()
    s3.put(bucket, "adds/config.pbtxt", CONFIG.encode())
    s3.put(bucket, "adds/1/model.py", code(3))
    server = serve(f"s3://http://127.0.0.1:{s3.port}/{bucket}/")

    assert infer(server.http_port, "adds", "INT32", 1) == [4]


def test_one_server_serves_from_a_store_and_from_a_disk(
    s3: S3Emulator, bucket: str, serve: Callable[..., Server], tmp_path: Path
) -> None:
    local = tmp_path / "models/local/1"
    local.mkdir(parents=True)
    (local / "model.py").write_bytes(code(7))
    (local.parent / "config.pbtxt").write_text(CONFIG)
    server = serve(tmp_path / "models", s3.root(bucket))

    assert infer(server.http_port, "local", "INT32", 1) == [8]
    assert infer(server.http_port, "adds", "INT32", 1) == [2]


def test_a_failed_reload_leaves_the_old_version_serving(
    s3: S3Emulator, bucket: str, serve: Callable[..., Server]
) -> None:
    server = serve(s3.root(bucket), model_control_mode="explicit", load_models=("adds",))
    s3.put(bucket, "models/adds/config.pbtxt", b"nonsense: 1")
    broken = load(server.http_port, "adds")
    still = infer(server.http_port, "adds", "INT32", 1)
    s3.downloads()
    s3.put(bucket, "models/adds/config.pbtxt", CONFIG.encode())
    mended = load(server.http_port, "adds")

    assert "nonsense" in broken
    assert (still, mended) == ([2], "")
    # What it once was need not be copied again either: it is the files that serve.
    assert s3.downloads() in ([], ["models/adds/config.pbtxt"])


def test_more_instances_are_made_of_the_files_that_serve(
    s3: S3Emulator, bucket: str, serve: Callable[..., Server], tmp_path: Path
) -> None:
    server = serve(s3.root(bucket), model_control_mode="explicit", load_models=("adds",))
    before = list((tmp_path / "copies").glob("*/*/snapshots/*"))
    s3.put(bucket, "models/adds/config.pbtxt", f"{CONFIG} instance_group [ {{ count: 2 }} ]".encode())
    error = load(server.http_port, "adds")
    group = ask(server.http_port, "models/adds/config")["instance_group"]
    until(lambda: list((tmp_path / "copies").glob("*/*/snapshots/*")) == before)

    assert error == ""
    assert [part["count"] for part in group] == [2]
    assert infer(server.http_port, "adds", "INT32", 1) == [2]


def test_a_model_in_many_parts_arrives_whole(s3: S3Emulator, bucket: str, store: Store) -> None:
    content = np.random.default_rng(5).bytes(20 * 2**20 + 3)
    s3.put(bucket, "models/large/1/weights", content)
    s3.requests()
    files = store.fetch("large")

    assert (files.directory / "1/weights").read_bytes() == content
    assert s3.downloads() == ["models/large/1/weights"] * 3


def test_an_object_that_was_uploaded_in_parts_arrives_whole(
    s3: S3Emulator, bucket: str, store: Store
) -> None:
    where = {"Bucket": bucket, "Key": "models/large/1/weights"}
    upload = s3.client.create_multipart_upload(**where)["UploadId"]
    parts = [b"a" * 5 * 2**20, b"b" * 1000]
    tags = [
        s3.client.upload_part(**where, UploadId=upload, PartNumber=number, Body=part)["ETag"]
        for number, part in enumerate(parts, 1)
    ]
    s3.client.complete_multipart_upload(
        **where,
        UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": n, "ETag": tag} for n, tag in enumerate(tags, 1)]},
    )

    assert (store.fetch("large").directory / "1/weights").read_bytes() == b"".join(parts)


def test_markers_are_directories_and_empty_files_are_files(s3: S3Emulator, bucket: str, store: Store) -> None:
    for key in ("models/", "models/graph/", "models/graph/1/", "models/graph/2/", "models/graph/empty"):
        s3.put(bucket, key, b"")
    s3.put(bucket, "models/graph/2/file", b"x")
    directory = store.fetch("graph").directory

    assert store.model_names() == ["adds", "doubles", "graph"]
    assert (directory / "1").is_dir()
    assert sorted(path.name for path in (directory / "2").iterdir()) == ["file"]
    assert (directory / "empty").read_bytes() == b""


@pytest.mark.parametrize("name", ["ü ñ", "100%", "a#b?c", "a+b&c", "quote'\"", "%2e%2e", "~tilde"])
def test_names_with_odd_characters_stay_what_they_are(
    name: str, s3: S3Emulator, bucket: str, store: Store
) -> None:
    s3.put(bucket, f"models/odd/1/{name}", name.encode())

    assert (store.fetch("odd").directory / "1" / name).read_bytes() == name.encode()


BAD_KEYS = ("../outside", "1/../../../outside", "1//file", "1/./file", "1/a\\..\\b", "1/" + "n" * 300)


def test_keys_that_lead_elsewhere_are_refused_and_concern_their_model_only(
    s3: S3Emulator, bucket: str, serve: Callable[..., Server], tmp_path: Path
) -> None:
    for number, key in enumerate(BAD_KEYS):
        s3.put(bucket, f"models/bad{number}/{key}", b"x")
    server = serve(s3.root(bucket), exit_on_error=False)
    errors = {
        row["name"]: row["reason"]
        for row in ask(server.http_port, "repository/index", {})
        if row.get("reason")
    }

    assert sorted(errors) == [f"bad{number}" for number in range(len(BAD_KEYS))]
    for error in errors.values():
        assert "object" in error
        assert "expected keys without" in error or "over 255 bytes" in error
    assert list(tmp_path.rglob("outside*")) == []
    assert infer(server.http_port, "adds", "INT32", 1) == [2]


def test_a_key_beside_the_models_that_is_no_path_is_named(s3: S3Emulator, bucket: str, store: Store) -> None:
    s3.put(bucket, "models//adds/1/model.py", b"x")

    with pytest.raises(TritonError, match="has an object whose key is no path: 'models//'"):
        store.model_names()
