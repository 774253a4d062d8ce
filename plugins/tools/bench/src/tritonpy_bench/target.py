"""The server that is measured, as it is asked before and after: facts about the model, and statistics."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import click
from tritonpy.cli.http_client import HttpClient, model_path

from tritonpy_bench.errors import BenchError
from tritonpy_bench.tls import TlsFiles

JsonObject = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """An input or output; its shape has no batch dimension, and -1 for what may be of any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    is_optional: bool = False
    is_batched: bool = True  # its first dimension is the batch's, if the model has one


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model wants, as its server tells it.

    Attributes:
        name: of the model.
        version: the one that was asked for, or the newest of those that serve.
        inputs: in the order of its metadata.
        outputs: likewise.
        max_batch_size: 0 for models without a batch dimension.
        is_decoupled: a request may have any number of responses.
        is_sequence: requests belong to sequences.
        steps: names of the models of an ensemble.
    """

    name: str
    version: str
    inputs: Sequence[TensorFacts]
    outputs: Sequence[TensorFacts]
    max_batch_size: int
    is_decoupled: bool
    is_sequence: bool
    steps: Sequence[str] = ()


class Target(Protocol):
    """Asks a server."""

    def metadata(self, model: str, version: str) -> JsonObject:
        """The model's metadata, as HTTP gives it."""

    def config(self, model: str, version: str) -> JsonObject:
        """The model's configuration, as HTTP gives it; empty if the server knows none."""

    def statistics(self, model: str, version: str) -> list[JsonObject]:
        """Statistics of a model's versions, as HTTP gives them; empty if the server keeps none."""

    def reasons(self, model: str, version: str) -> list[JsonObject]:
        """What `/explain` tells of a model's versions; empty if the server has no such thing."""

    def register(self, region: str, key: str, byte_size: int) -> None:
        """Register a region of the system's shared memory.

        Raises:
            BenchError: the server does not take it.
        """

    def unregister(self, region: str) -> None:
        """Forget a region; a server that is gone has forgotten it."""

    def register_cuda(self, region: str, handle: bytes, device: int, byte_size: int) -> None:
        """Register a region of a GPU's memory, by its handle for other processes.

        Raises:
            BenchError: the server does not take it.
        """

    def unregister_cuda(self, region: str) -> None:
        """Forget such a region."""

    def close(self) -> None:
        """End the connection."""


class HttpTarget:
    """A server asked over HTTP; satisfies `Target`."""

    def __init__(self, url: str, timeout_s: float, headers: Any = None, tls: TlsFiles = TlsFiles()) -> None:  # noqa: B008 - it is frozen
        if tls and "://" not in url:
            url = f"https://{url}"
        context = tls.context() if url.startswith("https://") else None
        try:
            self._client = HttpClient(url, timeout_s, context)
        except click.ClickException as error:
            raise BenchError(error.message) from None
        self._headers = dict(headers or {})

    def close(self) -> None:
        self._client.close()

    def metadata(self, model: str, version: str) -> JsonObject:
        found: JsonObject = self._get(model_path(model, version))
        return found

    def config(self, model: str, version: str) -> JsonObject:
        found: JsonObject = self._get(model_path(model, version) + "/config", {})
        return found

    def statistics(self, model: str, version: str) -> list[JsonObject]:
        return list(self._get(model_path(model, version) + "/stats", {}).get("model_stats", ()))

    def reasons(self, model: str, version: str) -> list[JsonObject]:
        return list(self._get(model_path(model, version) + "/explain", {}).get("models", ()))

    def register(self, region: str, key: str, byte_size: int) -> None:
        body = json.dumps({"key": key, "offset": 0, "byte_size": byte_size}).encode()
        self._post(f"/v2/systemsharedmemory/region/{region}/register", body)

    def unregister(self, region: str) -> None:
        with suppress(BenchError):
            self._post(f"/v2/systemsharedmemory/region/{region}/unregister", b"")

    def register_cuda(self, region: str, handle: bytes, device: int, byte_size: int) -> None:
        raw = {"b64": base64.b64encode(handle).decode()}
        body = json.dumps({"raw_handle": raw, "device_id": device, "byte_size": byte_size}).encode()
        self._post(f"/v2/cudasharedmemory/region/{region}/register", body)

    def unregister_cuda(self, region: str) -> None:
        with suppress(BenchError):
            self._post(f"/v2/cudasharedmemory/region/{region}/unregister", b"")

    def _get(self, path: str, instead: JsonObject | None = None) -> Any:  # Any: JSON
        try:
            answer = self._client.send("GET", path, headers=self._headers)
            if answer.status != 200:
                if instead is not None:
                    return instead
                where = f"HTTP status {answer.status} from {self._client.url}{path}"
                raise BenchError(f"{answer.error} ({where})")
            return answer.json()
        except click.ClickException as error:
            raise BenchError(error.message) from None

    def _post(self, path: str, body: bytes) -> None:
        try:
            answer = self._client.send("POST", path, body, self._headers)
        except click.ClickException as error:
            raise BenchError(error.message) from None
        if answer.status != 200:
            raise BenchError(f"{answer.error} (HTTP status {answer.status} from {self._client.url}{path})")


def model_facts(target: Target, model: str, version: str = "") -> ModelFacts:
    """Ask what a model wants.

    Raises:
        BenchError: the server does not serve it.
    """
    metadata = target.metadata(model, version)
    config = target.config(model, version)
    max_batch_size = int(config.get("max_batch_size", 0))
    settings = {entry["name"]: entry for entry in config.get("input", ())}
    inputs = [
        _tensor(entry, max_batch_size, settings.get(entry["name"], {}))
        for entry in metadata.get("inputs", ())
    ]
    outputs = [_tensor(entry, max_batch_size, {}) for entry in metadata.get("outputs", ())]
    steps = config.get("ensemble_scheduling", {}).get("step", ())
    versions = [*map(str, metadata.get("versions", ()))]
    newest = max(versions, key=lambda text: (len(text), text), default="")
    return ModelFacts(
        model,
        version or newest,
        inputs,
        outputs,
        max_batch_size,
        bool(config.get("model_transaction_policy", {}).get("decoupled")),
        "sequence_batching" in config,
        [*dict.fromkeys(step["model_name"] for step in steps)],
    )


def all_steps(target: Target, facts: ModelFacts) -> list[str]:
    """Names of the models of an ensemble, those of ensembles among them included."""
    found: list[str] = []
    waiting = list(facts.steps)
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found.append(name)
        steps = target.config(name, "").get("ensemble_scheduling", {}).get("step", ())
        waiting += [step["model_name"] for step in steps]
    return found


def _tensor(entry: JsonObject, max_batch_size: int, setting: JsonObject) -> TensorFacts:
    shape = tuple(int(size) for size in entry["shape"])
    is_batched = max_batch_size > 0 and not setting.get("is_shape_tensor", False)
    return TensorFacts(
        entry["name"],
        entry["datatype"],
        shape[1:] if is_batched else shape,
        bool(setting.get("optional")),
        is_batched,
    )
