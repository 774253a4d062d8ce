"""What every frontend calls: nothing in here knows a protocol, nothing behind it knows a frontend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tritonpy.frontends.classification import OutputClasses
from tritonpy.handles import JsonObject
from tritonpy.model.signature import TensorSpec
from tritonpy.request import InferRequest

EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)
"""The protocol extensions this server implements, as its metadata lists them."""


@dataclass(frozen=True, slots=True)
class Unready:
    """Why the server is not ready.

    Attributes:
        reason: in words.
        models: rows as in the repository index, of what is in the way.
    """

    reason: str
    models: tuple[JsonObject, ...] = ()


class Dataplane(Protocol):
    """The server as a frontend sees it; local now, another process's later. On the loop only.

    Versions are strings as the client wrote them, "" for the newest ready one. Methods that take a model
    raise `NotFound`, `Unavailable` or `InvalidArg` with Triton's text when there is no such version.
    """

    def is_live(self) -> bool:
        """Whether the server runs at all."""

    def is_ready(self) -> bool:
        """Whether every model that should serve does, or the server is strict about none of them."""

    def why_not_ready(self) -> Unready | None:
        """What is missing for `is_ready`; None when nothing is."""

    async def model_ready(self, name: str, version: str = "") -> bool:
        """Whether a model version would take requests, and says so if asked; False for an unknown one."""

    async def why_model_not_ready(self, name: str, version: str = "") -> str:
        """What is missing for `model_ready`; "" when nothing is."""

    def server_metadata(self) -> JsonObject:
        """Name, version and extensions of the server."""

    def model_metadata(self, name: str, version: str = "") -> JsonObject:
        """Versions, platform, inputs and outputs of a model."""

    def model_config(self, name: str, version: str = "") -> JsonObject:
        """The normalised configuration of a model version."""

    def model_statistics(self, name: str = "", version: str = "") -> JsonObject:
        """`model_stats` of one version, of all versions of a model, or of everything."""

    def model_explanation(self, name: str, version: str = "") -> JsonObject:
        """`models`: what one version does with its requests, or all versions of a model that are loaded."""

    async def repository_index(self, ready: bool = False) -> list[JsonObject]:
        """Name, version, state and reason of every model version, or of the ready ones only."""

    def check_model_control(self) -> None:
        """Refuse to load and unload, before anybody reads what a large request brings.

        Raises:
            Unavailable: the server does not do it, or not now.
        """

    async def load_model(
        self,
        name: str,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        *,
        force: bool = False,
    ) -> None:
        """Load a model, or load it anew beside itself; returns when it serves.

        Args:
            name: the model.
            config: its configuration as JSON; None for what lies in its directory.
            files: contents by path, such as `file:1/model.py`; with any, these are all the files there are.
            force: also when nothing has changed.

        Raises:
            TritonError: what served before still does.
        """

    async def unload_model(self, name: str, unload_dependents: bool = False) -> None:
        """Take a model out of service; it is finalised when it has answered what it accepted.

        Raises:
            Unavailable: the server does not unload on request.
        """

    def is_decoupled(self, name: str, version: str = "") -> bool:
        """Whether a request may get any number of responses."""

    def input_specs(self, name: str, version: str = "") -> Mapping[str, TensorSpec]:
        """The inputs of a model version, by name."""

    def output_classes(self, name: str, version: str, output: str) -> OutputClasses:
        """What the elements of an output stand for; one that the model does not have gets no labels."""

    def infer(self, request: InferRequest) -> None:
        """Accept a request; its answers go to `request.sink`, exactly one of them final.

        Raises:
            TritonError: the request is refused; its sink will hear nothing.
        """
