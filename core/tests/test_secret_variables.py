from __future__ import annotations

import pytest
from tritonpy.secret_variables import without_secrets

SECRETS = {
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "TRITON_CLOUD_CREDENTIAL_PATH",
    "TRITONREDIS_PASSWORD",
}
OTHERS = {
    "PATH",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "HF_TOKEN",
    "CUDA_VISIBLE_DEVICES",
    "TRITONREDIS_USERNAME",
}
ENVIRON = {name: f"value of {name}" for name in SECRETS | OTHERS}


@pytest.mark.parametrize(
    ("passed", "left"),
    [
        ((), OTHERS),
        (("AWS_ACCESS_KEY_ID", "unknown"), {*OTHERS, "AWS_ACCESS_KEY_ID"}),
        (("*",), SECRETS | OTHERS),
    ],
)
def test_secrets_of_the_server_are_left_out_unless_they_are_named(
    passed: tuple[str, ...], left: set[str]
) -> None:
    assert without_secrets(ENVIRON, passed) == {name: ENVIRON[name] for name in left}
