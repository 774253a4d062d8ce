"""Models in Google Cloud Storage, asked as Google's clients ask it.

No emulator on the package index answers the XML interface, which is what is used here. It is the one that S3
has too, so moto's S3 stands for it; how requests are signed is looked at in a small server of our own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tritonpy.errors import TritonError
from tritonpy.server import Server
from tritonpy_store_cloud.opening import open_store

from .conftest import S3Emulator
from .models import CONFIG, code, infer, load
from .recorder import Recorder, listing


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The file of a service account."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path / "account.json"
    file.write_text(
        json.dumps(
            {
                "type": "service_account",
                "private_key_id": "1",
                "private_key": key.decode(),
                "client_email": "server@project.iam.gserviceaccount.com",
                "token_uri": "https://oauth2.googleapis.com/token",
            }
        )
    )
    return file


def test_models_of_a_public_bucket_are_served_and_reloaded(
    s3: S3Emulator,
    serve: Callable[..., Server],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    bucket = s3.bucket()
    s3.put(bucket, "models/adds/config.pbtxt", CONFIG.encode(), ACL="public-read")
    s3.put(bucket, "models/adds/1/model.py", code(1), ACL="public-read")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"127.0.0.1:{s3.port}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("TRITON_GCS_MOUNT_DIRECTORY", str(tmp_path / "elsewhere"))
    server = serve(f"gs://{bucket}/models", model_control_mode="explicit", load_models=("*",))
    before = infer(server.http_port, "adds", "INT32", 1)
    copies = list((tmp_path / "elsewhere").glob("*/*/snapshots/*/adds"))
    s3.put(bucket, "models/adds/1/model.py", code(2), ACL="public-read")
    s3.requests()
    error = load(server.http_port, "adds")

    assert (before, error) == ([2], "")
    assert infer(server.http_port, "adds", "INT32", 1) == [3]
    assert len(s3.downloads()) == 1
    assert len(copies) == 1


def test_a_service_account_signs_requests_with_a_token(
    recorder: Recorder, account: Path, tmp_path: Path
) -> None:
    recorder.answers["/bucket"] = (200, listing("models/m/1/model.py"))
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps({"gs": {"": "/nowhere", "gs://bucket": str(account)}}))
    environ = {
        "TRITON_CLOUD_CREDENTIAL_PATH": str(file),
        "STORAGE_EMULATOR_HOST": recorder.url,
        "HOME": str(tmp_path),
    }
    found = open_store("gs://bucket/models", environ).look("m")
    (asked,) = recorder.asked
    token = asked.headers["Authorization"].removeprefix("Bearer ")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))

    assert found is not None
    assert {path for path, _, _ in found} == {"1", "1/model.py"}
    assert asked.path.partition("?")[0] == "/bucket"
    assert parse_qs(asked.path.partition("?")[2])["prefix"] == ["models/m/"]
    assert claims["iss"] == "server@project.iam.gserviceaccount.com"


def test_an_account_that_is_refused_is_told_without_its_token(
    recorder: Recorder, account: Path, tmp_path: Path
) -> None:
    recorder.answers["/bucket"] = (
        403,
        b"<Error><Code>AccessDenied</Code><Message>Access denied.</Message></Error>",
    )
    environ = {
        "GOOGLE_APPLICATION_CREDENTIALS": str(account),
        "STORAGE_EMULATOR_HOST": recorder.url,
        "HOME": str(tmp_path),
    }

    with pytest.raises(TritonError) as caught:
        open_store("gs://bucket/models", environ).model_names()
    token = recorder.asked[0].headers["Authorization"].removeprefix("Bearer ")
    assert (
        "gs://bucket/models may not be read with GOOGLE_APPLICATION_CREDENTIALS: 403 AccessDenied"
        in caught.value.message
    )
    assert token not in caught.value.message


def test_a_file_that_is_no_service_account_is_refused_without_showing_it(tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    file.write_text('{"type": "service_account", "private_key": "s3cr3t"}')
    store = open_store(
        "gs://bucket/models", {"GOOGLE_APPLICATION_CREDENTIALS": str(file), "HOME": str(tmp_path)}
    )

    with pytest.raises(TritonError, match="cannot be opened with GOOGLE_APPLICATION_CREDENTIALS") as caught:
        store.model_names()
    assert "s3cr3t" not in str(caught.value)
