"""The model repository extension over HTTP: the index, and loading and unloading on request."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field

from tritonpy.dataplane import Dataplane
from tritonpy.errors import Internal, InvalidArg, TritonError, Unsupported
from tritonpy.frontends.http.codec.json_body import MOST_LAX_HERE, Json, parse_json
from tritonpy.frontends.http.infer import Body

_SLICE = 1024 * 1024  # a multiple of four characters, which make three bytes


class RepositoryCalls:
    """Calls of the paths under `/v2/repository`; the name of a repository comes first."""

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane

    async def index(self, body: Body, repository: str) -> Json:
        """List the models; a repository's name means nothing here, as in Triton."""
        document = parse_json(body) if body else {}
        wanted = document.get("ready", False) if isinstance(document, dict) else False
        if not isinstance(wanted, bool):
            raise InvalidArg("Invalid value for 'ready': expected a boolean")
        return await self._dataplane.repository_index(wanted)

    async def load(self, body: Body, repository: str, name: str) -> None:
        """Load a model, and return when it serves."""
        _refuse_repository(repository)
        if len(body) > MOST_LAX_HERE:
            # Not parsed in vain: the parser holds the interpreter's lock, and all other requests wait.
            self._dataplane.check_model_control()
            # On a thread a large body is read in many short steps, between which others run.
            wanted = await asyncio.to_thread(load_parameters, body)
        else:
            wanted = load_parameters(body)
        await self._dataplane.load_model(name, wanted.config, wanted.files, force=wanted.force)

    async def unload(self, body: Body, repository: str, name: str) -> None:
        """Take a model out of service."""
        _refuse_repository(repository)
        await self._dataplane.unload_model(name, _unload_dependents(body))


@dataclass(slots=True)
class LoadParameters:
    """The body of a load request.

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
    """The body of an unload request; what cannot be read is ignored, as in Triton."""
    try:
        return parse_json(body)["parameters"]["unload_dependents"] is True if body else False
    except (TritonError, TypeError, LookupError):
        return False


def _boolean(value: Json) -> bool:
    if not isinstance(value, bool):
        raise Internal("attempt to access JSON non-boolean as boolean")
    return value


def _decoded(key: str, value: str) -> bytes:
    decoded = bytearray()
    try:
        for start in range(0, len(value), _SLICE):
            if decoded and value[start - 1] == "=":
                raise ValueError("Excess data after padding")
            decoded += base64.b64decode(value[start : start + _SLICE], validate=True)
    except ValueError as exc:
        raise InvalidArg(f"load parameter '{key}' is not base64: {exc}") from None
    return bytes(decoded)


def _refuse_repository(repository: str) -> None:
    if repository:
        raise Unsupported("'repository_name' specification is not supported")
