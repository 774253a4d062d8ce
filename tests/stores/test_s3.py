"""Models in an S3 store, with the server as people start it."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme
from onnx import TensorProto, helper
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.repository.stores.opener import open_store
from tritonpy.repository.stores.store import Store
from tritonpy.server import Server

from .conftest import SECRET, S3Emulator
from .recorder import Recorder, listing

CONFIG = """
backend: "python"
input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]
"""
CODE = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + NUMBER
        )]) for request in requests]
"""


def code(number: int) -> bytes:
    return CODE.replace("NUMBER", str(number)).encode()


def doubling() -> bytes:
    """An ONNX model with two floats that gives them twice as large."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["X", "F"], ["Y"])],
        "doubling",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [2])],
        [helper.make_tensor("F", TensorProto.FLOAT, [1], np.array([2], np.float32))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def ask(port: int, path: str, body: object = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v2/{path}", None if body is None else json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def infer(port: int, model: str, datatype: str, *data: float) -> list[float]:
    tensor = {"name": "X", "datatype": datatype, "shape": [len(data)], "data": data}
    return ask(port, f"models/{model}/infer", {"inputs": [tensor]})["outputs"][0]["data"]  # type: ignore[no-any-return]


def load(port: int, model: str) -> str:
    """Load a model; returns the error, or ""."""
    try:
        ask(port, f"repository/models/{model}/load", {})
    except urllib.error.HTTPError as exc:
        with exc:
            return str(json.loads(exc.read())["error"])
    return ""


@pytest.fixture
def bucket(s3: S3Emulator) -> str:
    """A bucket with a Python and an ONNX model."""
    bucket = s3.bucket()
    s3.put(bucket, "models/adds/config.pbtxt", CONFIG.encode())
    s3.put(bucket, "models/adds/1/model.py", code(1))
    s3.put(bucket, "models/adds/1/notes.txt", b"these do not change")
    s3.put(bucket, "models/doubles/1/model.onnx", doubling())
    s3.requests()
    return bucket


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
    wait_for(lambda: not list((tmp_path / "copies").glob("*/*/snapshots/*")))
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
    wait_for(lambda: list((tmp_path / "copies").glob("*/*/snapshots/*")) == before)

    assert error == ""
    assert [part["count"] for part in group] == [2]
    assert infer(server.http_port, "adds", "INT32", 1) == [2]


def test_a_public_bucket_is_read_without_credentials(
    s3: S3Emulator, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3.bucket()
    s3.put(bucket, "models/adds/config.pbtxt", CONFIG.encode(), ACL="public-read")
    s3.put(bucket, "models/adds/1/model.py", code(2), ACL="public-read")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    server = serve(s3.root(bucket))

    assert infer(server.http_port, "adds", "INT32", 1) == [3]


def test_a_private_object_is_not_read_without_credentials(
    s3: S3Emulator, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    store = open_store(s3.root(bucket))

    with pytest.raises(TritonError, match="may not be read with AWS_SKIP_SIGNATURE: 403"):
        store.fetch("adds")


@pytest.fixture
def signed(s3: S3Emulator) -> Iterator[tuple[str, str]]:
    """Id and secret of a key; requests must be signed with it, or with another that the store has given."""
    key = s3.user()
    s3.check_signatures(True)
    yield key
    s3.check_signatures(False)


def test_credentials_come_from_the_credential_file(
    s3: S3Emulator,
    bucket: str,
    signed: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    root = s3.root(bucket)
    file = tmp_path / "credentials.json"
    entry = {"key_id": signed[0], "secret_key": signed[1], "region": "eu-west-3", "session_token": ""}
    file.write_text(json.dumps({"s3": {"": {"key_id": "x", "secret_key": "y"}, root[:-4]: entry}}))
    monkeypatch.setenv("TRITON_CLOUD_CREDENTIAL_PATH", str(file))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of somebody else")
    store = open_store(root)

    assert (store.fetch("adds").directory / "1/model.py").read_bytes() == code(1)
    store.close()


def test_credentials_come_from_a_profile(
    s3: S3Emulator, bucket: str, signed: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "home/.aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        f"[work]\naws_access_key_id = {signed[0]}\naws_secret_access_key = {signed[1]}\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "work")
    store = open_store(s3.root(bucket))

    assert store.model_names() == ["adds", "doubles"]


def test_a_wrong_secret_ends_the_start_with_an_error_that_does_not_show_it(
    s3: S3Emulator,
    bucket: str,
    signed: tuple[str, str],
    corectl: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", signed[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wr0ng-s3cr3t")
    root = s3.root(bucket)
    server = corectl("--model-repository", root, "--log-verbose=1")

    assert server.process.wait(30) == 1
    assert f"model repository {root} may not be read with AWS_ACCESS_KEY_ID: 403" in server.log
    assert "SignatureDoesNotMatch" in server.log
    assert "wr0ng-s3cr3t" not in server.log
    assert "Traceback" not in server.log


def test_a_bucket_that_is_not_there_ends_the_start(s3: S3Emulator, serve: Callable[..., Server]) -> None:
    root = s3.root("missing")

    with pytest.raises(TritonError) as caught:
        serve(root)
    assert caught.value.described() == (
        f"Internal: failed to stat file {root}: the store has no bucket 'missing' "
        f"(404 NoSuchBucket: The specified bucket does not exist) (--model-repository)"
    )


def test_a_path_that_is_not_there_ends_the_start(
    s3: S3Emulator, bucket: str, serve: Callable[..., Server]
) -> None:
    root = s3.root(bucket, "elsewhere")

    with pytest.raises(TritonError) as caught:
        serve(root, model_control_mode="explicit")
    assert f"failed to stat file {root}: no object in bucket '{bucket}' begins with 'elsewhere/'" in str(
        caught.value
    )


def test_a_store_that_nobody_listens_at_is_told(s3: S3Emulator, closed_port: int) -> None:
    root = f"s3://127.0.0.1:{closed_port}/bucket/models"
    store = open_store(root, timeout_s=4)

    with pytest.raises(TritonError) as caught:
        store.model_names()
    assert caught.value.described().startswith(
        f"Unavailable: model repository {root} cannot be reached at http://127.0.0.1:{closed_port}: "
        f"connection refused"
    )


def test_a_store_that_does_not_answer_is_given_up_in_time(s3: S3Emulator, silent_port: int) -> None:
    root = f"s3://127.0.0.1:{silent_port}/bucket/models"
    store = open_store(root, timeout_s=1)
    begun = time.monotonic()

    with pytest.raises(TritonError, match=f"{root} cannot be reached .*: no answer in time") as caught:
        store.model_names()
    assert time.monotonic() - begun < 20
    assert "--repository-timeout-secs" in caught.value.message


def test_a_store_that_hangs_disturbs_nothing_that_serves(
    s3: S3Emulator, recorder: Recorder, serve: Callable[..., Server], tmp_path: Path
) -> None:
    recorder.answers["/bucket"] = (200, listing("models/no-model"))
    local = tmp_path / "models/adds/1"
    local.mkdir(parents=True)
    (local / "model.py").write_bytes(code(1))
    (local.parent / "config.pbtxt").write_text(CONFIG)
    root = f"s3://127.0.0.1:{recorder.port}/bucket/models"
    server = serve(tmp_path / "models", root, model_control_mode="explicit")
    port = server.http_port
    recorder.answers["/bucket"] = (200, listing())
    assert load(port, "adds") == ""
    recorder.may_answer.clear()
    before = len(recorder.asked)
    with ThreadPoolExecutor(60) as clients:
        try:
            loads = [clients.submit(load, port, f"missing{number}") for number in range(20)]
            looks = [clients.submit(ask, port, "repository/index", {}) for _ in range(20)]
            wait_for(lambda: len(recorder.asked) - before >= 9)  # eight loads, and one look for all who ask
            while_hanging = infer(port, "adds", "INT32", 1)
            with urllib.request.urlopen(
                f"http://127.0.0.1:{server.metrics_port}/metrics", timeout=20
            ) as page:
                metrics = page.read()
            are_done = [asked.done() for asked in (*loads, *looks)]
        finally:
            recorder.may_answer.set()

    assert while_hanging == [2]
    assert b"nv_inference_count" in metrics
    assert not any(are_done)  # so what is asserted above did not happen when the store was given up
    assert all("not found" in asked.result() for asked in loads)
    ready = {"name": "adds", "version": "1", "state": "READY"}
    assert all(asked.result() == [ready] for asked in looks)


def test_a_load_from_a_store_that_hangs_is_given_up(
    s3: S3Emulator, recorder: Recorder, serve: Callable[..., Server]
) -> None:
    recorder.answers["/bucket"] = (200, listing("models/no-model"))
    root = f"s3://127.0.0.1:{recorder.port}/bucket/models"
    server = serve(root, model_control_mode="explicit", repository_timeout_s=4.0)
    recorder.may_answer.clear()

    error = load(server.http_port, "adds")

    recorder.may_answer.set()
    assert "no answer in time" in error


def test_a_server_stops_while_its_store_hangs(
    s3: S3Emulator, recorder: Recorder, corectl: Callable[..., Any], tmp_path: Path
) -> None:
    recorder.answers["/bucket"] = (200, listing("models/no-model"))
    root = f"s3://127.0.0.1:{recorder.port}/bucket/models"
    server = corectl("--model-repository", root, "--model-control-mode=poll", "--repository-poll-secs=0.05")
    recorder.may_answer.clear()
    asked = len(recorder.asked)
    wait_for(lambda: len(recorder.asked) > asked)  # a look that would hang for a minute
    status = server.stop()  # within half a minute

    assert status == 0
    assert list((tmp_path / "copies").iterdir()) == []


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


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Recorder]:
    """A store that speaks HTTPS with a certificate of an authority that nobody knows."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    recorder = Recorder(context)
    recorder.answers["/bucket"] = (200, listing("models/m/1/model.py"))
    yield recorder
    recorder.stop()


def test_a_store_may_speak_https_with_a_certificate_of_ones_own(secure: Recorder, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "AWS_CA_BUNDLE": str(tmp_path / "ca.pem")}
    root = f"s3://{secure.url}/bucket/models"

    assert open_store(root, environ).look("m") is not None


def test_a_certificate_that_is_not_trusted_is_told(secure: Recorder, tmp_path: Path) -> None:
    store = open_store(f"s3://{secure.url}/bucket/models", {"HOME": str(tmp_path)})

    with pytest.raises(TritonError, match=r"cannot be reached .*: its certificate is not trusted"):
        store.look("m")


def test_a_bundle_of_certificates_that_is_not_there_is_refused(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "AWS_CA_BUNDLE": "/nowhere.pem"}

    with pytest.raises(InvalidArg, match=r"'/nowhere.pem' cannot be read: .*\(AWS_CA_BUNDLE\)"):
        open_store("s3://https://127.0.0.1:1/bucket", environ).model_names()


def test_a_root_with_a_secret_is_refused_before_anything_shows_it() -> None:
    with pytest.raises(InvalidArg) as caught:
        open_store("s3://AKIA:s3cr3t@bucket/models")

    assert "s3cr3t" not in str(caught.value)


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)
