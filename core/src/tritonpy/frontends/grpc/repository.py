"""The model repository extension over gRPC: the index, and loading and unloading on request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from google.protobuf.message import Message

from tritonpy import protos
from tritonpy.dataplane import Dataplane
from tritonpy.errors import InvalidArg, Unsupported


class RepositoryCalls:
    """The calls `RepositoryIndex`, `RepositoryModelLoad` and `RepositoryModelUnload`."""

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane

    def by_name(self) -> dict[str, Callable[[Message], Awaitable[Message]]]:
        """The calls by their names."""
        return {
            name: cast("Callable[[Message], Awaitable[Message]]", call)  # each with its own request type
            for name, call in {
                "RepositoryIndex": self._index,
                "RepositoryModelLoad": self._load,
                "RepositoryModelUnload": self._unload,
            }.items()
        }

    async def _index(self, request: protos.RepositoryIndexRequest) -> Message:
        _refuse_repository(request.repository_name)
        entries = await self._dataplane.repository_index(request.ready)
        models = [protos.RepositoryIndexResponse.ModelIndex(**entry) for entry in entries]
        return protos.RepositoryIndexResponse(models=models)

    async def _load(self, request: protos.RepositoryModelLoadRequest) -> Message:
        _refuse_repository(request.repository_name)
        config: str | None = None
        files: dict[str, bytes] = {}
        force = False
        for key, value in request.parameters.items():
            if key == "config":
                _require(value, "string_param", f"load parameter '{key}'")
                config = value.string_param
            elif key.startswith("file:"):
                _require(value, "bytes_param", f"load parameter '{key}'")
                files[key] = value.bytes_param
            elif key == "force":
                _require(value, "bool_param", f"load parameter '{key}'")
                force = value.bool_param
            else:
                raise InvalidArg(f"unrecognized load parameter '{key}'.")
        await self._dataplane.load_model(request.model_name, config, files, force=force)
        return protos.RepositoryModelLoadResponse()

    async def _unload(self, request: protos.RepositoryModelUnloadRequest) -> Message:
        _refuse_repository(request.repository_name)
        unload_dependents = False
        if "unload_dependents" in request.parameters:
            value = request.parameters["unload_dependents"]
            _require(value, "bool_param", "'unload_dependents' parameter")
            unload_dependents = value.bool_param
        await self._dataplane.unload_model(request.model_name, unload_dependents)
        return protos.RepositoryModelUnloadResponse()


def _refuse_repository(name: str) -> None:
    if name:
        raise Unsupported("'repository_name' specification is not supported")


def _require(value: protos.ModelRepositoryParameter, kind: str, what: str) -> None:
    if value.WhichOneof("parameter_choice") != kind:
        raise InvalidArg(f"invalid value type for {what}, expected {kind}.")
