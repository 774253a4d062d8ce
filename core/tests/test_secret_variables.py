from __future__ import annotations

import pytest
from tritonpy import secret_variables
from tritonpy.secret_variables import keep_secret, without_secrets

SECRETS = {"OTEL_EXPORTER_OTLP_HEADERS", "TRITONREDIS_PASSWORD", "XYZ_KEY"}
OTHERS = {"PATH", "HF_TOKEN", "CUDA_VISIBLE_DEVICES", "TRITONREDIS_USERNAME", "XYZ_KEYBOARD"}
ENVIRON = {name: f"value of {name}" for name in SECRETS | OTHERS}


@pytest.mark.parametrize(
    ("passed", "left"),
    [
        ((), OTHERS),
        (("XYZ_KEY", "unknown"), {*OTHERS, "XYZ_KEY"}),
        (("*",), SECRETS | OTHERS),
    ],
)
def test_secrets_of_the_server_and_of_stores_are_left_out_unless_they_are_named(
    passed: tuple[str, ...], left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_variables, "_declared", set())
    assert "XYZ_KEY" in without_secrets(ENVIRON)

    keep_secret(["XYZ_KEY"])

    assert without_secrets(ENVIRON, passed) == {name: ENVIRON[name] for name in left}
