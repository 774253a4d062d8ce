"""Reaching an S3 store: credentials, certificates, and addresses that do not answer."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trustme
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.server import Server
from tritonpy_sdk.testing import until
from tritonpy_store_cloud.opening import open_store

from ..servers import local_options
from .conftest import S3Emulator
from .models import CONFIG, ask, code, infer, load
from .recorder import Recorder, listing


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
    server = corectl("--model-repository", root, "--log-verbose=1", awaited=0)

    assert server.wait() == 1
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
    store = open_store(root, timeout_s=60)

    with pytest.raises(TritonError) as caught:
        store.model_names()
    assert caught.value.described().startswith(
        f"Unavailable: model repository {root} cannot be reached at http://127.0.0.1:{closed_port}: "
        f"connection refused"
    )


def test_a_store_that_does_not_answer_is_given_up_in_time(s3: S3Emulator, silent_port: int) -> None:
    root = f"s3://127.0.0.1:{silent_port}/bucket/models"
    store = open_store(root, timeout_s=1)

    with pytest.raises(TritonError, match=f"{root} cannot be reached .*: no answer in time") as caught:
        store.model_names()
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
            until(lambda: len(recorder.asked) - before >= 9)  # eight loads, and one look for all who ask
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
    until(lambda: len(recorder.asked) > asked)  # a look that would hang for a minute
    status = server.stop()  # within half a minute

    assert status == 0
    assert list((tmp_path / "copies").iterdir()) == []


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


@pytest.mark.parametrize(
    ("root", "text"),
    [
        ("s3://AKIA:s3cr3t@bucket/models", "'s3://***@bucket/models' must not hold credentials"),
        ("s3://host:x/bucket", "'host:x' is no host:port; expected s3://bucket/path"),
    ],
)
def test_a_server_refuses_a_root_that_cannot_be_right_and_shows_no_secret(root: str, text: str) -> None:
    with pytest.raises(InvalidArg) as caught, Server(local_options(root)):
        pass

    assert text in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
