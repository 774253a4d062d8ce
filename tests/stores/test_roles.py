"""Credentials that a machine has without anybody telling the server: roles of AWS and identities of Azure."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tritonpy.errors import TritonError
from tritonpy_store_cloud import client
from tritonpy_store_cloud.opening import open_store

from .recorder import Recorder, azure_listing, listing


@pytest.fixture(autouse=True)
def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "TRITON_CLOUD_CREDENTIAL_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nowhere")


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is one of a cloud."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(client, "_METADATA_ADDRESS", server.getsockname())
        yield


@pytest.fixture
def no_metadata(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    """This machine is none of a cloud."""
    monkeypatch.setattr(client, "_METADATA_ADDRESS", ("127.0.0.1", closed_port))


def test_the_role_of_a_container_of_aws_signs_requests(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    token = tmp_path_factory.mktemp("pod") / "token"
    token.write_text("of-the-pod")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{recorder.url}/role")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
    recorder.answers["/role"] = (
        200,
        b'{"AccessKeyId": "ROLEKEY", "SecretAccessKey": "s", "Token": "t", '
        b'"Expiration": "2099-01-01T00:00:00Z"}',
    )
    recorder.answers["/bucket"] = (200, listing("models/m/1/model.py"))
    found = open_store(f"s3://127.0.0.1:{recorder.port}/bucket/models").look("m")
    role, question = recorder.asked

    assert found is not None
    assert role.headers["Authorization"] == "of-the-pod"
    assert "Credential=ROLEKEY/" in question.headers["Authorization"]
    assert question.headers["x-amz-security-token"] == "t"


def test_the_identity_of_a_machine_of_azure_signs_requests(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, metadata: None
) -> None:
    monkeypatch.setenv("AZURE_MSI_ENDPOINT", f"{recorder.url}/identity")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", recorder.url)
    monkeypatch.setenv("AZURE_STORAGE_AUTH_TYPE", "managed_identity")
    monkeypatch.setenv("AZURE_STORAGE_CLIENT_ID", "who-i-am")
    recorder.answers["/identity"] = (
        200,
        b'{"access_token": "t0k3n", "expires_in": "3600", "expires_on": "4070908800", '
        b'"token_type": "Bearer", "resource": "https://storage.azure.com/"}',
    )
    recorder.answers["/container"] = (200, azure_listing("models/m/1/model.py"))
    found = open_store("as://account/container/models").look("m")
    identity, question = recorder.asked

    assert found is not None
    assert "client_id=who-i-am" in identity.path
    assert question.headers["Authorization"] == "Bearer t0k3n"


def test_a_machine_without_a_role_asks_anonymously(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, no_metadata: None
) -> None:
    # Amazon's own, were it not for what the address is taken from when the client is made.
    store = open_store("s3://bucket/models")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", recorder.url)
    recorder.answers["/bucket"] = (200, listing("models/m/1/model.py"))

    assert store.look("m") is not None
    assert recorder.asked[0].headers["Authorization"] is None


@pytest.mark.parametrize("answer", [(404, b""), (403, b"no"), (200, b"{}")])
def test_a_role_that_gives_no_keys_is_told(
    answer: tuple[int, bytes],
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    token = tmp_path_factory.mktemp("pod") / "token"
    token.write_text("of-the-pod")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{recorder.url}/role")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
    recorder.answers["/role"] = answer
    root = f"s3://127.0.0.1:{recorder.port}/bucket/models"

    with pytest.raises(TritonError, match="the role of this machine gives no credentials") as caught:
        open_store(root).look("m")
    assert root in caught.value.message
    assert "of-the-pod" not in caught.value.message


def test_keys_that_are_renewed_are_read_again(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CREDENTIAL_LIFE", timedelta(0))
    recorder.answers["/bucket"] = (200, listing("models/m/1/model.py"))
    environ = {"AWS_ACCESS_KEY_ID": "OLD", "AWS_SECRET_ACCESS_KEY": "s"}
    store = open_store(f"s3://127.0.0.1:{recorder.port}/bucket/models", environ)
    store.look("m")
    environ["AWS_ACCESS_KEY_ID"] = "NEW"
    store.look("m")
    del environ["AWS_SECRET_ACCESS_KEY"]  # in the middle of a change
    store.look("m")

    used = [request.headers["Authorization"].partition("Credential=")[2][:3] for request in recorder.asked]
    assert used == ["OLD", "NEW", "NEW"]
