"""Variables of the environment that hold the server's own secrets, which the code of models does not see."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

SECRET = re.compile(
    r"AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|SECURITY_TOKEN|PROFILE|SHARED_CREDENTIALS_FILE"
    r"|WEB_IDENTITY_TOKEN_FILE|ROLE_ARN|CONTAINER_(CREDENTIALS_(RELATIVE|FULL)_URI|AUTHORIZATION_TOKEN(_FILE)?))"
    r"|AZURE_(STORAGE_(KEY|SAS_TOKEN|CONNECTION_STRING)|CLIENT_SECRET|FEDERATED_TOKEN_FILE)"
    r"|GOOGLE_APPLICATION_CREDENTIALS"
    r"|OTEL_EXPORTER_OTLP_(TRACES_)?HEADERS"
    r"|TRITON_CLOUD_CREDENTIAL_PATH"
    r"|TRITON[A-Z0-9_]*_(PASSWORD|SECRET|TOKEN)"
)
"""Names that object stores, response caches and exporters of traces take their rights from."""


def without_secrets(environ: Mapping[str, str], passed: Container[str] = ()) -> dict[str, str]:
    """The variables that a process gets which runs the code of a model.

    Args:
        environ: those of the server.
        passed: names that are handed on all the same (`--worker-environment`); `*` stands for all.
    """
    if "*" in passed:
        return dict(environ)
    return {name: value for name, value in environ.items() if name in passed or not SECRET.fullmatch(name)}
