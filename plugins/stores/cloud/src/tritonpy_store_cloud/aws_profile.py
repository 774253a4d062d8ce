"""Profiles of the files that `aws configure` writes."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tritonpy.plugin import InvalidArg

_KEY_ID, _SECRET_KEY, _TOKEN = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"

_OTHER_WAYS = ("role_arn", "credential_process", "sso_session", "sso_start_url", "web_identity_token_file")
"""Settings that give a profile its keys by asking a service or program."""


@dataclass(frozen=True, slots=True)
class AwsProfile:
    """The keys of a profile and its region, which may be "".

    Attributes:
        source: the profile as errors call it.
    """

    source: str
    key_id: str
    secret_key: str = field(repr=False)
    session_token: str = field(repr=False)
    region: str


def read_profile(name: str, environ: Mapping[str, str]) -> AwsProfile | None:
    """Look for a profile in the files with credentials and settings; blocking.

    Args:
        name: the profile; "" for the one called `default`, which need not exist.
        environ: tells where the files are.

    Returns:
        None when no profile was asked for and there is no default one.

    Raises:
        InvalidArg: the profile does not exist, its file cannot be read, or it has no keys; shows no value.
    """
    home = Path(environ.get("HOME", "~")).expanduser() / ".aws"
    credentials = environ.get("AWS_SHARED_CREDENTIALS_FILE") or str(home / "credentials")
    config = environ.get("AWS_CONFIG_FILE") or str(home / "config")
    wanted = name or "default"
    section = wanted if wanted == "default" else f"profile {wanted}"
    # What stands in both files counts as the one with credentials has it, as for the aws command.
    settings = {**_read(config, section), **_read(credentials, wanted)}
    source = f"profile '{wanted}' of {credentials} and {config}"
    if settings.get(_KEY_ID) and settings.get(_SECRET_KEY):
        return AwsProfile(
            source,
            settings[_KEY_ID],
            settings[_SECRET_KEY],
            settings.get(_TOKEN, ""),
            settings.get("region", ""),
        )
    way = next((way for way in _OTHER_WAYS if way in settings), None)
    if way is not None:
        raise InvalidArg(
            f"{source} gets its keys by '{way}', which is not followed here; let the aws command do it: "
            f'eval "$(aws configure export-credentials --profile {wanted} --format env)"'
        )
    if name:
        has = "has no keys" if settings else "does not exist"
        raise InvalidArg(f"{source} {has}; expected {_KEY_ID} and {_SECRET_KEY} (AWS_PROFILE)")
    return None


def _read(file: str, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False, default_section="")
    try:
        with open(Path(file).expanduser(), encoding="utf-8") as stream:
            parser.read_file(stream)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise InvalidArg(f"{file} cannot be read: {exc.strerror}") from None
    except (configparser.Error, UnicodeDecodeError):
        # Not what it says: it cites lines, which may be secrets.
        raise InvalidArg(
            f"{file} is no file of profiles: expected [sections] with lines 'key = value'"
        ) from None
    return dict(parser[section]) if parser.has_section(section) else {}
