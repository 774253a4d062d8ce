"""Errors of an object store, in words for the people who named the repository."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tritonpy.plugin import ErrorCode, TritonError

from tritonpy_store_cloud.location import Location

_STATUS = re.compile(r"status code: ([0-9]{3})")
_CODE = re.compile(r"<Code>\s*([^<]{1,100}?)\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*([^<\n]{1,300})")
_MISSING = {"NoSuchBucket", "ContainerNotFound", "InvalidBucketName"}

_CAUSES = (
    ("Connection refused", "connection refused"),
    ("dns error", "its name is not known"),
    ("InvalidCertificate", "its certificate is not trusted (AWS_CA_BUNDLE)"),
    ("InvalidContentType", "it does not speak TLS"),
    ("TimedOut", "no answer in time"),
    ("timed out", "no answer in time"),
    ("Network is unreachable", "network unreachable"),
    ("ConnectionReset", "connection reset"),
)


class Refusal(TritonError):
    """An object store did not give what was asked for.

    Attributes:
        may_pass: asking again may help.
        is_missing: the object is not there.
    """

    def __init__(self, message: str, code: ErrorCode, *, is_missing: bool = False) -> None:
        super().__init__(message, code)
        self.may_pass = code is ErrorCode.UNAVAILABLE
        self.is_missing = is_missing


def read_refusal(
    error: Exception, location: Location, source: str, secrets: Sequence[str], timeout_s: float
) -> Refusal:
    """Tell the error of a client in our words.

    Clients put whole answers and settings into their messages, so only what is known to be harmless is taken
    from them, and secrets are struck out even of that.

    Args:
        error: what the client raised.
        location: the repository.
        source: where its credentials come from.
        secrets: what must not be shown.
        timeout_s: how long calls may take.
    """
    text = str(error)
    status = int(match[1]) if (match := _STATUS.search(text)) else 0
    code = match[1] if (match := _CODE.search(text)) else ""
    said = " ".join(filter(None, (str(status or ""), code))) or type(error).__name__
    if match := _MESSAGE.search(text):
        said += f": {match[1].strip()}"
    for secret in secrets:
        said = said.replace(secret, "***")
    root = location.root
    kind = type(error).__name__
    is_missing = isinstance(error, FileNotFoundError)
    is_listing = "list request" in text
    if "token request" in text or (kind == "GenericError" and not is_listing and _is_final(status, text)):
        # Of objects clients tell more exactly what is wrong; so it was not the store that was asked.
        return Refusal(
            f"model repository {root} cannot be read: {source} gives no credentials: {said}; expected one "
            f"that may list and read it, or {_anonymous(location)} where everybody may",
            ErrorCode.INTERNAL,
        )
    if code in _MISSING or (status == 404 and is_listing and not is_missing):
        noun = "container" if location.kind == "as" else "bucket"
        return Refusal(
            f"failed to stat file {root}: the store has no {noun} '{location.bucket}' ({said}) "
            f"(--model-repository)",
            ErrorCode.INTERNAL,
        )
    if is_missing:
        return Refusal(
            f"an object of model repository {root} is not there ({said})", ErrorCode.INTERNAL, is_missing=True
        )
    if status in (401, 403) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return Refusal(
            f"model repository {root} may not be read with {source}: {said}; expected credentials that may "
            f"list and read it, or {_anonymous(location)} where everybody may",
            ErrorCode.INTERNAL,
        )
    if kind == "InvalidPathError":
        return Refusal(
            f"model repository {root} has an object whose key is no path: {_key(text)}; expected keys "
            f"without '//', '.', '..' and control characters",
            ErrorCode.INVALID_ARG,
        )
    if "redirect" in text:
        return Refusal(
            f"model repository {root} lies in another region than it was asked for in; expected the region "
            f"of bucket '{location.bucket}' in AWS_DEFAULT_REGION",
            ErrorCode.INTERNAL,
        )
    cause = next((words for mark, words in _CAUSES if mark in text), said)
    where = f" at {location.endpoint}" if location.endpoint else ""
    return Refusal(
        f"model repository {root} cannot be reached{where}: {cause}; each call was tried for up to "
        f"{timeout_s:g} s (--repository-timeout-secs)",
        ErrorCode.UNAVAILABLE,
    )


def _is_final(status: int, text: str) -> bool:
    """True if asking again would give the same answer."""
    return (400 <= status < 500 and status not in (408, 429)) or "kind: Decode" in text


def _anonymous(location: Location) -> str:
    prefix = {"s3": "AWS", "gs": "GOOGLE", "as": "AZURE"}[location.kind]
    return f"{prefix}_SKIP_SIGNATURE=true"


def _key(text: str) -> str:
    match = re.search(r'[Pp]ath "([^"]*)"', text)
    return repr(match[1][:200]) if match else "the client does not say which"
