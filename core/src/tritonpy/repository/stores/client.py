"""The door to obstore: clients for S3, Google Cloud Storage and Azure, with bounded times."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tritonpy.errors import InvalidArg, TritonError, Unsupported
from tritonpy.repository.stores.credentials import Credentials
from tritonpy.repository.stores.location import Location

if TYPE_CHECKING:
    from obstore.store import (
        AzureConfig,
        AzureCredential,
        ClientConfig,
        GCSConfig,
        ObjectStore,
        RetryConfig,
        S3Config,
        S3Credential,
    )

_CREDENTIAL_LIFE = timedelta(minutes=10)
"""How long credentials count before files and variables are read again: whoever renews them need not restart
the server."""

_MOST_RETRIES = 3
_CONNECT_TIMEOUT_S = 5.0
_DEFAULT_REGION = "us-east-1"

_METADATA_ADDRESS = ("169.254.169.254", 80)
"""Where the clouds tell their machines which roles they have; the same address in all three."""

_METADATA_TIMEOUT_S = 1.0


def require_obstore(root: str) -> None:
    """Refuse a remote repository where the library for it is missing.

    Raises:
        Unsupported: names the command that installs it.
    """
    try:
        import obstore.store  # noqa: F401
    except ImportError as exc:
        raise Unsupported(
            f"model repository {root} lies in an object store, and the library for that cannot be imported "
            f"({exc}); install it with: pip install 'tritonpy[cloud]'"
        ) from None


def open_client(
    location: Location,
    credentials: Credentials,
    renew: Callable[[], Credentials],
    environ: Mapping[str, str],
    timeout_s: float,
) -> ObjectStore:
    """Make the client of a repository; asks nobody but perhaps this machine for its role, for a second.

    Args:
        location: the repository.
        credentials: its credentials as they are now.
        renew: reads them again; must not raise.
        environ: other servers than the provider's own.
        timeout_s: how long one call may take, with all of its retries.

    Raises:
        InvalidArg: the client does not take the settings.
    """
    is_anonymous = credentials.is_anonymous or (credentials.may_be_anonymous and not _has_metadata())
    # An attempt that begins before half of the time is over has the other half.
    half = timedelta(seconds=timeout_s / 2)
    options: ClientConfig = {
        "timeout": half,
        "connect_timeout": min(half, timedelta(seconds=_CONNECT_TIMEOUT_S)),
    }
    retries: RetryConfig = {"max_retries": _MOST_RETRIES, "retry_timeout": half}
    match location.kind:
        case "s3":
            make = _open_s3
        case "gs":
            make = _open_google
        case "as":
            make = _open_azure
    try:
        return make(location, credentials, renew, environ, is_anonymous, options, retries)
    except TritonError:
        raise
    except Exception as exc:  # whatever obstore raises for settings; it may cite them
        raise InvalidArg(
            f"model repository {location.root} cannot be opened with {credentials.source}: "
            f"{type(exc).__name__} from its client"
        ) from None


def _open_s3(
    location: Location,
    credentials: Credentials,
    renew: Callable[[], Credentials],
    environ: Mapping[str, str],
    is_anonymous: bool,
    options: ClientConfig,
    retries: RetryConfig,
) -> ObjectStore:
    from obstore.store import S3Store

    def keys() -> S3Credential:
        now = renew()
        return {
            "access_key_id": now.key_id,
            "secret_access_key": now.secret,
            "token": now.session_token or None,
            "expires_at": _expiry(),
        }

    endpoint = (
        location.endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    )
    config: S3Config = {"region": credentials.region or _DEFAULT_REGION, "skip_signature": is_anonymous}
    if endpoint:
        # Both names, lest a variable of the second kind counts more than what the root says.
        config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
        options["allow_http"] = endpoint.startswith("http://")
    bundle = environ.get("AWS_CA_BUNDLE", "")
    if bundle:
        options["root_certificate"] = _read_certificates(bundle)
    return S3Store(
        location.bucket,
        config=config,
        client_options=options,
        retry_config=retries,
        credential_provider=keys if credentials.key_id else None,
    )


def _open_google(
    location: Location,
    credentials: Credentials,
    renew: Callable[[], Credentials],
    environ: Mapping[str, str],
    is_anonymous: bool,
    options: ClientConfig,
    retries: RetryConfig,
) -> ObjectStore:
    from obstore.store import GCSStore

    config: GCSConfig = {"skip_signature": is_anonymous}
    if credentials.path:
        config["application_credentials"] = credentials.path
    server = environ.get("STORAGE_EMULATOR_HOST", "")
    if server:
        config["base_url"] = server if "://" in server else f"http://{server}"
        options["allow_http"] = config["base_url"].startswith("http://")
    return GCSStore(location.bucket, config=config, client_options=options, retry_config=retries)


def _open_azure(
    location: Location,
    credentials: Credentials,
    renew: Callable[[], Credentials],
    environ: Mapping[str, str],
    is_anonymous: bool,
    options: ClientConfig,
    retries: RetryConfig,
) -> ObjectStore:
    from obstore.store import AzureStore

    def key() -> AzureCredential:
        now = renew()
        if now.sas_token:
            return {"sas_token": now.sas_token, "expires_at": _expiry()}
        return {"access_key": now.secret, "expires_at": _expiry()}

    config: AzureConfig = {"account_name": location.account, "skip_signature": is_anonymous}
    if credentials.client_id:
        config["client_id"] = credentials.client_id
    if credentials.auth_type == "default" and not _has_metadata():
        config["use_azure_cli"] = shutil.which("az") is not None
    endpoint = environ.get("AZURE_STORAGE_ENDPOINT", "")
    if endpoint:
        config["endpoint"] = endpoint
        options["allow_http"] = endpoint.startswith("http://")
    return AzureStore(
        location.bucket,
        config=config,
        client_options=options,
        retry_config=retries,
        credential_provider=key if credentials.secret or credentials.sas_token else None,
    )


def _read_certificates(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        raise InvalidArg(
            f"'{path}' cannot be read: {exc.strerror}; expected a file with PEM certificates (AWS_CA_BUNDLE)"
        ) from None


def _expiry() -> datetime:
    return datetime.now(UTC) + _CREDENTIAL_LIFE


def _has_metadata() -> bool:
    """Whether this is a machine of a cloud, which may have a role there."""
    try:
        socket.create_connection(_METADATA_ADDRESS, _METADATA_TIMEOUT_S).close()
    except OSError:
        return False
    return True
