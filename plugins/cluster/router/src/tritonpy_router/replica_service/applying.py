"""Brings the server to what routers want of its models; a wish older than one that was met is refused."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tritonpy.errors import exception_text
from tritonpy.frontends.grpc.status import STATUS, Status
from tritonpy.plugin import Dataplane, TritonError

from tritonpy_router.protos import AppliedModel, ApplyRequest, ApplyResponse, DesiredModel


@dataclass(frozen=True, slots=True)
class _Met:
    """The last wish for a model that was met.

    Attributes:
        revision: of it.
        digest: of all it said.
    """

    revision: int
    digest: bytes


class Applier:
    """Loads and unloads models; on the loop only.

    Args:
        dataplane: does it.

    Attributes:
        revision: the highest that was met; 0 before any.
    """

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane
        self._met: dict[str, _Met] = {}
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}  # and how many have it or wait
        self.revision = 0

    async def apply(self, request: ApplyRequest) -> ApplyResponse:
        """Meet wishes side by side, those for one model in their order; each has its own outcome."""
        outcomes = await asyncio.gather(*(self._apply(model) for model in request.models))
        return ApplyResponse(models=outcomes)

    async def _apply(self, model: DesiredModel) -> AppliedModel:
        name = model.name
        async with self._turn(name):
            met = self._met.get(name)
            if met is not None and model.revision < met.revision:
                return AppliedModel(
                    name=name,
                    code=Status.FAILED_PRECONDITION,
                    message=f"revision {model.revision} for model '{name}' is older than {met.revision}, "
                    f"which was applied",
                    revision=met.revision,
                )
            digest = hashlib.sha256(model.SerializeToString(deterministic=True)).digest()
            try:
                if met != _Met(model.revision, digest) or not self._is_so(model):
                    await self._do(model)
            except TritonError as exc:
                return self._failed(name, STATUS[exc.code], exc.message)
            except Exception as exc:  # a fault of the server; whoever asks is told, and other models go on
                return self._failed(name, Status.INTERNAL, exception_text(exc))
            self._met[name] = _Met(model.revision, digest)
            self.revision = max(self.revision, model.revision)
            return AppliedModel(name=name, revision=model.revision)

    def _failed(self, name: str, code: Status, message: str) -> AppliedModel:
        met = self._met.get(name)
        return AppliedModel(name=name, code=code, message=message, revision=met.revision if met else 0)

    def _is_so(self, model: DesiredModel) -> bool:
        """Whether a wish that was met still is."""
        is_loaded = any(row.name == model.name for row in self._dataplane.model_activity())
        return is_loaded == (model.action == DesiredModel.LOAD)

    async def _do(self, model: DesiredModel) -> None:
        if model.action == DesiredModel.LOAD:
            config = model.config if model.HasField("config") else None
            await self._dataplane.load_model(model.name, config, dict(model.files), force=model.force)
        else:
            await self._dataplane.unload_model(model.name, model.unload_dependents)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """One change of a model at a time, in the order of their coming; keeps nothing of those without."""
        lock, count = self._turns.get(name, (asyncio.Lock(), 0))
        self._turns[name] = (lock, count + 1)
        try:
            async with lock:
                yield
        finally:
            lock, count = self._turns.pop(name)
            if count > 1:
                self._turns[name] = (lock, count - 1)
