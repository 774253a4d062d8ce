"""The JSON file with credentials of several repositories, in Triton's format.

```json
{
  "s3": {"": {"key_id": "…", "secret_key": "…"}, "s3://bucket/path": {"profile": "…"}},
  "gs": {"gs://bucket": "/path/to/service-account.json"},
  "as": {"as://account/container": {"account_str": "…", "account_key": "…"}}
}
```
"""

from __future__ import annotations

import json
import logging
from typing import Any

from tritonpy.plugin import InvalidArg

from tritonpy_store_cloud.location import Location

_log = logging.getLogger("tritonpy.repository")

_KEYS = {
    "s3": ("secret_key", "key_id", "region", "session_token", "profile"),
    "as": ("account_str", "account_key", "auth_type", "client_id"),
}


def read_entry(file: str, location: Location) -> tuple[dict[str, str], str]:
    """The entry for a repository, and how errors call it; blocking.

    Returns:
        All keys of the entry, "" for those that are not there; for Google the only key is `path`.

    Raises:
        InvalidArg: the file cannot be read or is not of this form, or has no entry for the repository; names
            the file and the key, and shows no value.
    """
    kind = location.kind
    entries = _section(file, kind)
    prefixes = [prefix for prefix in entries if location.root.startswith(prefix)]
    if not prefixes:
        raise InvalidArg(
            f"cannot match credential for path {location.root}: credential file {file} has no prefix of it "
            f"under '{kind}'; expected one, or \"\" for all others"
        )
    prefix = max(prefixes, key=len)
    entry = entries[prefix]
    where = f'{file}: {kind}: "{prefix}"'
    if kind == "gs":
        return {"path": _text(where, entry)}, where
    if not isinstance(entry, dict):
        raise InvalidArg(
            f"credential file {where}: got {_noun(entry)}, expected an object with {_listed(kind)}"
        )
    for key in entry.keys() - set(_KEYS[kind]):
        _log.warning(
            "credential file %s: key '%s' means nothing here; expected %s", where, key, _listed(kind)
        )
    return {key: _text(f'{where}: "{key}"', entry.get(key, "")) for key in _KEYS[kind]}, where


def _section(file: str, kind: str) -> dict[str, Any]:  # Any: JSON
    about = f"credential file {file} (TRITON_CLOUD_CREDENTIAL_PATH)"
    try:
        with open(file, "rb") as stream:
            document = json.load(stream)
    except OSError as exc:
        raise InvalidArg(f"{about} cannot be read: {exc.strerror}") from None
    except json.JSONDecodeError as exc:
        # Only the place: the text around it may be a secret.
        raise InvalidArg(f"{about} is no JSON: {exc.msg} in line {exc.lineno}, column {exc.colno}") from None
    except (ValueError, RecursionError):
        raise InvalidArg(f"{about} is no JSON in UTF-8") from None
    if not isinstance(document, dict):
        raise InvalidArg(f"{about} holds {_noun(document)}, expected an object with the keys gs, s3 and as")
    section = document.get(kind, {})
    if not isinstance(section, dict):
        raise InvalidArg(f'{about}: "{kind}" is {_noun(section)}, expected an object with prefixes as keys')
    return section


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArg(f"credential file {where}: got {_noun(value)}, expected a string")
    return value


def _listed(kind: str) -> str:
    return ", ".join(_KEYS[kind])


def _noun(value: object) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return "null"
