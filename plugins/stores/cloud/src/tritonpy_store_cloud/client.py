"""The door to obstore: clients for S3, Google Cloud Storage and Azure, with bounded times."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tritonpy.plugin import InvalidArg, TritonError, Unsupported

from tritonpy_store_cloud.credentials import Credentials
from tritonpy_store_cloud.location import Location

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
"""How long credentials count before files and variables are read again: to renew them, the server need not be
restarted."""

_MOST_RETRIES = 3
_CONNECT_TIMEOUT_S = 5.0
_DEFAULT_REGION = "us-east-1"

_METADATA_ADDRESS = ("169.254.169.254", 80)
"""Where the clouds tell their machines which roles they have; the same address in all three."""

_METADATA_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class _Wish:
    """The arguments that a client is made from.

    Attributes:
        location: the repository.
        credentials: its credentials as they are now.
        renew: reads them again.
        environ: other servers than the provider's own.
        is_anonymous: requests are not signed.
        options, retries: of obstore; the makers may add to the options.
    """

    location: Location
    credentials: Credentials
    renew: Callable[[], Credentials]
    environ: Mapping[str, str]
    is_anonymous: bool
    options: ClientConfig
    retries: RetryConfig


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
            f"({exc}); install it with: pip install tritonpy-store-cloud"
        ) from None


def open_client(
    location: Location,
    credentials: Credentials,
    renew: Callable[[], Credentials],
    environ: Mapping[str, str],
    timeout_s: float,
) -> ObjectStore:
    """Make the client of a repository; asks at most this machine for its role, for a second.

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
        return make(_Wish(location, credentials, renew, environ, is_anonymous, options, retries))
    except TritonError:
        raise
    except Exception as exc:  # any error of obstore about settings; it may cite them
        raise InvalidArg(
            f"model repository {location.root} cannot be opened with {credentials.source}: "
            f"{type(exc).__name__} from its client"
        ) from None


def _open_s3(wish: _Wish) -> ObjectStore:
    from obstore.store import S3Store

    def keys() -> S3Credential:
        now = wish.renew()
        return {
            "access_key_id": now.key_id,
            "secret_access_key": now.secret,
            "token": now.session_token or None,
            "expires_at": _expiry(),
        }

    endpoint = (
        wish.location.endpoint
        or wish.environ.get("AWS_ENDPOINT_URL_S3")
        or wish.environ.get("AWS_ENDPOINT_URL")
        or ""
    )
    config: S3Config = {
        "region": wish.credentials.region or _DEFAULT_REGION,
        "skip_signature": wish.is_anonymous,
    }
    if endpoint:
        # Both names, lest a variable of the second kind counts more than what the root says.
        config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
        wish.options["allow_http"] = endpoint.startswith("http://")
    bundle = wish.environ.get("AWS_CA_BUNDLE", "")
    if bundle:
        wish.options["root_certificate"] = _read_certificates(bundle)
    return S3Store(
        wish.location.bucket,
        config=config,
        client_options=wish.options,
        retry_config=wish.retries,
        credential_provider=keys if wish.credentials.key_id else None,
    )


def _open_google(wish: _Wish) -> ObjectStore:
    from obstore.store import GCSStore

    config: GCSConfig = {"skip_signature": wish.is_anonymous}
    if wish.credentials.path:
        config["application_credentials"] = wish.credentials.path
    server = wish.environ.get("STORAGE_EMULATOR_HOST", "")
    if server:
        config["base_url"] = server if "://" in server else f"http://{server}"
        wish.options["allow_http"] = config["base_url"].startswith("http://")
    return GCSStore(
        wish.location.bucket, config=config, client_options=wish.options, retry_config=wish.retries
    )


def _open_azure(wish: _Wish) -> ObjectStore:
    from obstore.store import AzureStore

    def key() -> AzureCredential:
        now = wish.renew()
        if now.sas_token:
            return {"sas_token": now.sas_token, "expires_at": _expiry()}
        return {"access_key": now.secret, "expires_at": _expiry()}

    config: AzureConfig = {"account_name": wish.location.account, "skip_signature": wish.is_anonymous}
    if wish.credentials.client_id:
        config["client_id"] = wish.credentials.client_id
    if wish.credentials.auth_type == "default" and not _has_metadata():
        config["use_azure_cli"] = shutil.which("az") is not None
    endpoint = wish.environ.get("AZURE_STORAGE_ENDPOINT", "")
    if endpoint:
        config["endpoint"] = endpoint
        wish.options["allow_http"] = endpoint.startswith("http://")
    return AzureStore(
        wish.location.bucket,
        config=config,
        client_options=wish.options,
        retry_config=wish.retries,
        credential_provider=key if wish.credentials.secret or wish.credentials.sas_token else None,
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
    """True if this is a machine of a cloud, which may have a role there."""
    try:
        socket.create_connection(_METADATA_ADDRESS, _METADATA_TIMEOUT_S).close()
    except OSError:
        return False
    return True
