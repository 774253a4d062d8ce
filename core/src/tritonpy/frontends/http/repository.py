"""The model repository extension over HTTP: the index, and loading and unloading on request."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tritonpy.errors import Internal, InvalidArg, TritonError, Unsupported
from tritonpy.frontends.dataplane import Dataplane
from tritonpy.frontends.http.infer import Body
from tritonpy.frontends.http.json_body import Json, parse_json

_PATH = re.compile(r"/v2/repository(?:/([^/]+))?/(?:index|models/([^/]+)/(load|unload))\Z")

Call = Callable[[Body], Awaitable[Json]]
"""Takes a request's body and gives the JSON to answer with, or None for an answer without a body."""


class RepositoryCalls:
    """What a POST to the paths under `/v2/repository` does."""

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane

    def find(self, path: str) -> Call | None:
        """What answers a path, or None when nothing does."""
        match = _PATH.match(path)
        if match is None:
            return None
        repository, name, what = match.groups()
        if what is None:
            return self._index
        if repository is not None:
            return _refuse_repository
        if what == "load":
            return lambda body: self._load(name, body)
        return lambda body: self._unload(name, body)

    async def _index(self, body: Body) -> Json:
        document = parse_json(body) if body else {}
        wanted = document.get("ready", False) if isinstance(document, dict) else False
        return await self._dataplane.repository_index(_boolean(wanted))

    async def _load(self, name: str, body: Body) -> None:
        wanted = load_parameters(body)
        await self._dataplane.load_model(name, wanted.config, wanted.files, force=wanted.force)

    async def _unload(self, name: str, body: Body) -> None:
        await self._dataplane.unload_model(name, _unload_dependents(body))


@dataclass(slots=True)
class LoadParameters:
    """What a load request says.

    Attributes:
        config: the configuration as JSON; None for what lies in the model's directory.
        files: contents by key, such as `file:1/model.py`.
        force: load the model even if nothing has changed.
    """

    config: str | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    force: bool = False


def load_parameters(body: Body) -> LoadParameters:
    """Read the body of a load request; an empty one, or one that is no object, says nothing.

    Raises:
        Internal: it is not JSON, or a parameter is unknown or of the wrong type; the code is Triton's.
        InvalidArg: a file is not base64.
    """
    document = parse_json(body) if body else {}
    parameters = document.get("parameters", {}) if isinstance(document, dict) else {}
    if not isinstance(parameters, dict):
        raise Internal("attempt to get members for non-object")
    read = LoadParameters()
    for key, value in parameters.items():
        if key == "force":
            read.force = _boolean(value)
        elif not isinstance(value, str):
            raise Internal("attempt to access JSON non-string as string")
        elif key == "config":
            read.config = value
        elif key.startswith("file:"):
            read.files[key] = _decoded(key, value)
        else:
            raise Internal(
                f"unexpected error on creating Triton parameter: '{key}' is not one of 'config', "
                f"'file:<version>/<path>' and 'force'"
            )
    return read


def _unload_dependents(body: Body) -> bool:
    """What an unload request says; whatever cannot be read is ignored, as in Triton."""
    try:
        return parse_json(body)["parameters"]["unload_dependents"] is True if body else False
    except (TritonError, TypeError, LookupError):
        return False


def _boolean(value: Json) -> bool:
    if not isinstance(value, bool):
        raise Internal("attempt to access JSON non-boolean as boolean")
    return value


def _decoded(key: str, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as exc:
        raise InvalidArg(f"load parameter '{key}' is not base64: {exc}") from None


async def _refuse_repository(_: Body) -> None:
    raise Unsupported("'repository_name' specification is not supported")
