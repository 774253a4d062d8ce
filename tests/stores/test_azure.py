"""Models in Azure: the requests, seen by a small server, and a real emulator that npm brings."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from obstore.store import AzureStore
from tritonpy.errors import TritonError
from tritonpy.server import Server
from tritonpy_store_cloud.opening import open_store

from .azurite import ACCOUNT, KEY, Azurite
from .models import CONFIG, code, infer, load
from .recorder import Recorder, azure_listing

SECRET = base64.b64encode(b"the key of an account").decode()


def test_requests_are_signed_with_the_key_of_the_account(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.answers["/container"] = (200, azure_listing("models/m/1/model.py"))
    file = tmp_path / "credentials.json"
    entry = {"account_str": "account", "account_key": SECRET}
    file.write_text(json.dumps({"as": {"": {"account_key": "AAAA"}, "as://account/container": entry}}))
    environ = {
        "TRITON_CLOUD_CREDENTIAL_PATH": str(file),
        "AZURE_STORAGE_ENDPOINT": recorder.url,
        "HOME": str(tmp_path),
    }
    found = open_store("as://account/container/models", environ).look("m")
    (asked,) = recorder.asked
    path, _, query = asked.path.partition("?")

    assert found is not None
    assert {path for path, _, _ in found} == {"1", "1/model.py"}
    assert path == "/container"
    assert parse_qs(query) == {"restype": ["container"], "comp": ["list"], "prefix": ["models/m/"]}
    assert asked.headers["Authorization"].startswith("SharedKey account:")
    assert SECRET not in str(asked.headers)


def test_a_public_container_is_asked_without_a_signature(recorder: Recorder, tmp_path: Path) -> None:
    recorder.answers["/container"] = (200, azure_listing("models/m/1/model.py"))
    environ = {"AZURE_STORAGE_ENDPOINT": recorder.url, "HOME": str(tmp_path)}

    assert open_store("as://account/container/models", environ).look("m") is not None
    assert recorder.asked[0].headers["Authorization"] is None


def test_a_shared_access_signature_is_part_of_the_question(recorder: Recorder, tmp_path: Path) -> None:
    recorder.answers["/container"] = (200, azure_listing("models/m/1/model.py"))
    environ = {
        "AZURE_STORAGE_ENDPOINT": recorder.url,
        "AZURE_STORAGE_SAS_TOKEN": "sv=2024-01-01&sig=s3cr3t",
        "HOME": str(tmp_path),
    }

    assert open_store("as://account/container/models", environ).look("m") is not None
    assert parse_qs(recorder.asked[0].path.partition("?")[2])["sig"] == ["s3cr3t"]


def test_a_refusal_shows_neither_key_nor_signature(recorder: Recorder, tmp_path: Path) -> None:
    recorder.answers["/container"] = (
        403,
        b"<Error><Code>AuthenticationFailed</Code><Message>sig=s3cr3t is wrong</Message></Error>",
    )
    environ = {
        "AZURE_STORAGE_ENDPOINT": recorder.url,
        "AZURE_STORAGE_SAS_TOKEN": "sv=2024-01-01&sig=s3cr3t",
        "HOME": str(tmp_path),
    }

    with pytest.raises(TritonError) as caught:
        open_store("as://account/container/models", environ).model_names()
    assert "403 AuthenticationFailed" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    azurite = Azurite()
    yield azurite
    azurite.stop()


@pytest.mark.emulator
@pytest.mark.timeout(600)  # the first time it is fetched
def test_models_of_a_container_are_served_and_reloaded(
    azurite: Azurite, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    azurite.make_container("models")
    container = AzureStore(
        "models",
        config={"account_name": ACCOUNT, "account_key": KEY, "endpoint": azurite.endpoint},
        client_options={"allow_http": True},
    )
    container.put("deep/adds/config.pbtxt", CONFIG.encode())
    container.put("deep/adds/1/model.py", code(1))
    container.put("deep/adds/1/empty", b"")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", azurite.endpoint)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    monkeypatch.setenv("TRITON_AZURE_MOUNT_DIRECTORY", str(tmp_path))
    root = f"as://{ACCOUNT}/models/deep"
    server = serve(root, model_control_mode="explicit", load_models=("*",))
    before = infer(server.http_port, "adds", "INT32", 1)
    container.put("deep/adds/1/model.py", code(2))
    error = load(server.http_port, "adds")

    assert (before, error) == ([2], "")
    assert infer(server.http_port, "adds", "INT32", 1) == [3]
    assert len(list(tmp_path.glob("*/*/snapshots/*/adds/1/empty"))) >= 1
    monkeypatch.setenv("AZURE_STORAGE_KEY", SECRET)
    with pytest.raises(TritonError, match="403 AuthorizationFailure") as caught:
        open_store(root).model_names()
    assert SECRET not in str(caught.value)
    monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
    with pytest.raises(TritonError, match="no container 'missing'"):
        open_store(f"as://{ACCOUNT}/missing").model_names()
