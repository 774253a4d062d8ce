"""The place of a repository in an object store: `s3://`, `gs://` and `as://` taken apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tritonpy.plugin import InvalidArg

Kind = Literal["s3", "gs", "as"]

_FORMS = {
    "s3": "s3://bucket/path, s3://host:port/bucket/path or s3://https://host:port/bucket/path",
    "gs": "gs://bucket/path",
    "as": "as://account/container/path",
}
_SERVER = re.compile(
    r"(?P<scheme>https?://)?(?P<host>[0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?"
)
_CONTAINER = re.compile(r"[0-9A-Za-z$][0-9A-Za-z._-]{0,254}")


@dataclass(frozen=True, slots=True)
class Location:
    """A repository in an object store.

    Attributes:
        root: as it was named on the command line.
        kind: the prefix without `://`.
        bucket: the bucket; in Azure the container.
        path: what the keys of all objects of the repository begin with, without slashes at its ends; "" for
            the whole bucket.
        endpoint: the server's URL, where the root names one; "" for the provider's own.
        account: Azure's storage account; "" elsewhere.
    """

    root: str
    kind: Kind
    bucket: str
    path: str
    endpoint: str = ""
    account: str = ""

    @property
    def place(self) -> str:
        """The same for two roots exactly when they are the same repository."""
        return "/".join(
            part for part in (f"{self.kind}:/", self.endpoint, self.account, self.bucket, self.path) if part
        )

    def key_of(self, name: str) -> str:
        """The prefix of the keys of a model's objects, without the slash behind it."""
        return f"{self.path}/{name}" if self.path else name


def read_location(root: str) -> Location:
    """Take a root apart.

    Args:
        root: begins with one of the prefixes and holds no secret; the server has looked.

    Raises:
        InvalidArg: it is not of the form that its prefix asks for.
    """
    kind, _, rest = root.partition("://")
    match kind:
        case "s3":
            return _read_s3(root, rest)
        case "gs":
            bucket, path = _split(rest)
            return Location(root, "gs", _checked(root, "gs", bucket), _checked_path(root, "gs", path))
        case _:
            account, tail = _split(rest)
            container, path = _split(tail)
            if not re.fullmatch(r"[0-9A-Za-z-]{1,255}", account):
                raise _malformed(root, "as", f"'{account}' is no storage account")
            return Location(
                root, "as", _checked(root, "as", container), _checked_path(root, "as", path), account=account
            )


def _read_s3(root: str, rest: str) -> Location:
    scheme = next((scheme for scheme in ("http://", "https://") if rest.startswith(scheme)), "")
    server, tail = _split(rest.removeprefix(scheme))
    endpoint = ""
    if scheme or ":" in server:
        match = _SERVER.fullmatch(server)
        if match is None or int(match["port"] or 1) not in range(1, 65536):
            raise _malformed(root, "s3", f"'{server}' is no host:port")
        # Without a scheme it is HTTP, as in Triton.
        endpoint = f"{scheme or 'http://'}{server}"
        bucket, path = _split(tail)
    else:
        bucket, path = server, tail
    return Location(
        root, "s3", _checked(root, "s3", bucket), _checked_path(root, "s3", path), endpoint=endpoint
    )


def _split(text: str) -> tuple[str, str]:
    head, _, tail = text.lstrip("/").partition("/")
    return head, tail


def _checked(root: str, kind: str, bucket: str) -> str:
    if not _CONTAINER.fullmatch(bucket):
        noun = "container" if kind == "as" else "bucket"
        raise _malformed(root, kind, f"'{bucket}' is no name of a {noun}")
    return bucket


def _checked_path(root: str, kind: str, path: str) -> str:
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") or not part.isprintable() for part in parts):
        raise _malformed(root, kind, "the path must not have '.', '..' or control characters")
    return "/".join(parts)


def _malformed(root: str, kind: str, reason: str) -> InvalidArg:
    return InvalidArg(
        f"model repository '{root}' cannot be read: {reason}; expected {_FORMS[kind]} (--model-repository)"
    )
