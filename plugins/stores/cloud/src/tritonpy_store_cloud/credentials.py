"""Credentials that a repository in an object store is read with, from a file or the environment.

Secrets are kept out of every text: they are no part of a `repr`, no error shows a value, and `secrets` names
what must be struck out of other people's messages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from tritonpy.plugin import InvalidArg

from tritonpy_store_cloud.aws_profile import AwsProfile, read_profile
from tritonpy_store_cloud.credential_file import read_entry
from tritonpy_store_cloud.location import Location

CREDENTIAL_PATH = "TRITON_CLOUD_CREDENTIAL_PATH"

_AZURE_AUTH_TYPES = ("managed_identity", "default")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that a store is opened with; the kind of store decides which fields count.

    Without a key, a file and `is_anonymous` it is opened with what the machine has: the role of an instance,
    of a container, or of a Kubernetes service account.

    Attributes:
        source: where they come from, for errors.
        key_id: AWS: which key.
        secret: AWS: the secret key. Azure: the key of the account.
        session_token: AWS: what belongs to a key of limited life.
        region: AWS.
        path: Google: a file with a service account or the credentials of a user.
        auth_type: Azure: `managed_identity` or `default`.
        client_id: Azure: which managed identity.
        sas_token: Azure: a shared access signature.
        is_anonymous: requests are not signed.
        may_be_anonymous: requests are not signed if this machine has no role.
    """

    source: str
    key_id: str = ""
    secret: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    region: str = ""
    path: str = ""
    auth_type: str = ""
    client_id: str = ""
    sas_token: str = field(default="", repr=False)
    is_anonymous: bool = False
    may_be_anonymous: bool = False

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that must never be shown, the longest first."""
        signatures = [
            form
            for part in self.sas_token.lstrip("?").split("&")
            if part.startswith("sig=")
            for form in (part.removeprefix("sig="), unquote(part.removeprefix("sig=")))
        ]
        return tuple(filter(None, (self.secret, self.session_token, self.sas_token, *signatures)))


def find_credentials(location: Location, environ: Mapping[str, str]) -> Credentials:
    """The credentials of a repository; blocking.

    With a credential file, its entry with the longest prefix of the root counts and nothing else; without
    one, the environment.

    Raises:
        InvalidArg: they cannot be read, or are incomplete; never shows a value.
    """
    file = environ.get(CREDENTIAL_PATH, "")
    match location.kind:
        case "s3":
            return _find_aws(location, environ, file)
        case "gs":
            return _find_google(location, environ, file)
        case "as":
            return _find_azure(location, environ, file)


def _find_aws(location: Location, environ: Mapping[str, str], file: str) -> Credentials:
    region = environ.get("AWS_DEFAULT_REGION") or environ.get("AWS_REGION") or ""
    if file:
        entry, source = read_entry(file, location)
        key_id, secret = entry["key_id"], entry["secret_key"]
        names = f"'key_id' in {source}", f"'secret_key' in {source}"
        token, profile = entry["session_token"], entry["profile"]
        region = entry["region"] or region
    else:
        names = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
        key_id, secret = (environ.get(name, "") for name in names)
        token, profile, source = (
            environ.get("AWS_SESSION_TOKEN", ""),
            environ.get("AWS_PROFILE", ""),
            names[0],
        )
    if _is_true(environ.get("AWS_SKIP_SIGNATURE")) and not (file and key_id):
        return Credentials("AWS_SKIP_SIGNATURE", region=region, is_anonymous=True)
    if bool(key_id) != bool(secret):
        there, missing = names if key_id else names[::-1]
        raise InvalidArg(
            f"credentials of model repository {location.root}: {there} is given without {missing}; "
            f"expected both or none"
        )
    if key_id:
        return Credentials(source, key_id, secret, token, region)
    found = read_profile(profile, environ)
    if found is not None:
        return _of_profile(found, region)
    if any(environ.get(name) for name in _AWS_ROLES):
        return Credentials("the role of this machine", region=region)
    # A server that the root names is seldom one that knows the roles of AWS.
    is_own = not (location.endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"))
    return Credentials("no credentials", region=region, is_anonymous=not is_own, may_be_anonymous=is_own)


_AWS_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


def _of_profile(profile: AwsProfile, region: str) -> Credentials:
    return Credentials(
        profile.source, profile.key_id, profile.secret_key, profile.session_token, region or profile.region
    )


def _find_google(location: Location, environ: Mapping[str, str], file: str) -> Credentials:
    if file:
        entry, source = read_entry(file, location)
        path = entry["path"]
    else:
        source = "GOOGLE_APPLICATION_CREDENTIALS"
        path = environ.get(source, "")
    if _is_true(environ.get("GOOGLE_SKIP_SIGNATURE")) and not (file and path):
        return Credentials("GOOGLE_SKIP_SIGNATURE", is_anonymous=True)
    if path:
        if not Path(path).is_file():
            raise InvalidArg(
                f"credentials of model repository {location.root}: {source} names '{path}', which is no "
                f"file; expected the JSON file of a service account or of a user"
            )
        return Credentials(source, path=path)
    if environ.get("STORAGE_EMULATOR_HOST"):
        return Credentials("no credentials", is_anonymous=True)
    settings = environ.get("CLOUDSDK_CONFIG") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".config/gcloud"
    )
    of_user = Path(settings) / "application_default_credentials.json"
    if of_user.is_file():
        return Credentials(str(of_user), path=str(of_user))
    return Credentials("no credentials", may_be_anonymous=True)


def _find_azure(location: Location, environ: Mapping[str, str], file: str) -> Credentials:
    if file:
        entry, source = read_entry(file, location)
        names = tuple(f"'{name}' in {source}" for name in ("account_str", "account_key", "auth_type"))
        account, key = entry["account_str"], entry["account_key"]
        auth_type, client_id, sas_token = entry["auth_type"], entry["client_id"], ""
    else:
        names = "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_KEY", "AZURE_STORAGE_AUTH_TYPE"
        account, key, auth_type = (environ.get(name, "") for name in names)
        client_id = environ.get("AZURE_STORAGE_CLIENT_ID", "")
        sas_token = environ.get("AZURE_STORAGE_SAS_TOKEN", "")
        source = names[1]
    if _is_true(environ.get("AZURE_SKIP_SIGNATURE")) and not file:
        return Credentials("AZURE_SKIP_SIGNATURE", is_anonymous=True)
    about = f"credentials of model repository {location.root}:"
    if account and account != location.account:
        raise InvalidArg(
            f"{about} {names[0]} is '{account}', but the repository lies in '{location.account}'"
        )
    if auth_type and auth_type not in _AZURE_AUTH_TYPES:
        raise InvalidArg(
            f"{about} {names[2]} is '{auth_type}'; expected {' or '.join(_AZURE_AUTH_TYPES)}, or nothing and "
            f"a key"
        )
    if auth_type:
        return Credentials(names[2], auth_type=auth_type, client_id=client_id)
    if key:
        try:
            base64.b64decode(key, validate=True)
        except binascii.Error:
            raise InvalidArg(f"{about} {names[1]} is no key of a storage account; expected base64") from None
        return Credentials(source, secret=key)
    if sas_token:
        return Credentials("AZURE_STORAGE_SAS_TOKEN", sas_token=sas_token)
    return Credentials("no credentials", is_anonymous=True)


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in ("true", "1")
