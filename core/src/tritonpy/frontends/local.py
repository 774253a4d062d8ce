"""The data plane of the models in this process."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from tritonpy.dataplane import ModelActivity, TensorSpec, Unready
from tritonpy.errors import InvalidArg, TritonError, Unsupported
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.model_control import ModelControl
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.model.model import LoadedModel
from tritonpy.stats import statistics_json
from tritonpy.version import __version__

_log = logging.getLogger("tritonpy.frontends")

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

_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
_PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")


class LocalDataplane:
    """Answers frontends from a registry of loaded models; satisfies `Dataplane`.

    Args:
        registry: the models.
        control: loads and unloads them.
        server_id: the name in the server metadata.
        strict_readiness: ready only when no model failed to load.
        allow_sent_code: take files with requests to load a model.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        control: ModelControl,
        *,
        server_id: str,
        strict_readiness: bool,
        allow_sent_code: bool = True,
    ) -> None:
        self._registry = registry
        self._control = control
        self._server_id = server_id
        self._strict_readiness = strict_readiness
        self._allow_sent_code = allow_sent_code
        self._is_serving = False
        self._is_stopping = False

    def set_serving(self) -> None:
        """The models have been loaded: readiness may be true from now on."""
        self._is_serving = True
        self._control.set_serving(True)

    def set_stopping(self) -> None:
        """The server is going away: readiness is false from now on."""
        self._is_stopping = True
        self._control.set_serving(False)

    @property
    def is_serving(self) -> bool:
        """The models have been loaded, and the server is not going away."""
        return self._is_serving and not self._is_stopping

    def is_live(self) -> bool:
        return self._registry.failure is None

    def is_ready(self) -> bool:
        return self.why_not_ready() is None

    def why_not_ready(self) -> Unready | None:
        unready = None
        if self._is_stopping:
            unready = Unready("the server is not ready: it is stopping")
        elif self._registry.failure is not None:
            unready = Unready(f"the server is not ready: {self._registry.failure.message}")
        elif not self._is_serving:
            unready = Unready("the server is not ready: it is starting")
        elif self._strict_readiness and (models := tuple(self._registry.unready())):
            names = ", ".join(dict.fromkeys(f"'{row['name']}'" for row in models))
            unready = Unready(f"the server is not ready: it waits for {names}", models)
        if unready is not None:
            _log.debug("%s", unready.reason)
        return unready

    async def model_ready(self, name: str, version: str = "") -> bool:
        return not await self.why_model_not_ready(name, version)

    async def why_model_not_ready(self, name: str, version: str = "") -> str:
        self._registry.check_failure()
        reason = await self._control.why_not_ready(name, version)
        if reason:
            _log.debug("model '%s' is not ready: %s", name, reason)
        return reason

    def find(self, name: str, version: str = "") -> LoadedModel:
        return self._registry.find(name, version)

    def server_metadata(self) -> JsonObject:
        return {"name": self._server_id, "version": __version__, "extensions": list(EXTENSIONS)}

    def model_metadata(self, name: str, version: str = "") -> JsonObject:
        model = self._registry.find(name, version)
        return {
            "name": model.name,
            "versions": [model.version_text]
            if version
            else list(map(str, self._registry.ready_versions(name))),
            "platform": model.config.get("platform") or model.config.get("backend", ""),
            "inputs": _tensors(model.inputs),
            "outputs": _tensors(model.outputs),
        }

    def model_statistics(self, name: str = "", version: str = "") -> JsonObject:
        models = self._loaded(name, version)
        return {
            "model_stats": [
                statistics_json(model.name, model.version_text, model.stats, _memory_json(model))
                for model in models
            ]
        }

    def model_activity(self) -> Sequence[ModelActivity]:
        return [_activity(model) for model in self._registry.all_models()]

    def model_explanation(self, name: str, version: str = "") -> JsonObject:
        return {"models": [_explanation(model) for model in self._loaded(name, version)]}

    async def repository_index(self, ready: bool = False) -> list[JsonObject]:
        self._registry.check_failure()
        return await self._control.index(ready)

    def check_model_control(self) -> None:
        self._control.check_allowed()

    async def load_model(
        self,
        name: str,
        config: str | None = None,
        files: Mapping[str, bytes] | None = None,
        *,
        force: bool = False,
    ) -> None:
        if files and not self._allow_sent_code:
            raise Unsupported(
                f"load of model '{name}' with files is refused: what they hold would be executed, and the "
                f"server was started with --allow-sent-code=false; a configuration may be sent"
            )
        await self._control.load(name, config, files, force=force)

    async def unload_model(self, name: str, unload_dependents: bool = False) -> None:
        await self._control.unload(name, unload_dependents)

    async def offer_model(
        self, name: str, config: JsonObject, files: Mapping[str, bytes], backend: object
    ) -> None:
        await self._control.offer(name, config, files, backend)

    async def withdraw_model(self, name: str, backend: str) -> None:
        await self._control.withdraw(name, backend)

    def _loaded(self, name: str, version: str) -> list[LoadedModel]:
        """One version, or all of a model that are loaded, or of all models."""
        self._registry.check_failure()
        if not name:
            return self._registry.all_models()
        found = self._found_for_statistics(name, version)
        return [found] if version else self._registry.loaded_as(name)

    def _found_for_statistics(self, name: str, version: str) -> LoadedModel:
        try:
            return self._registry.find(name, version)
        except InvalidArg:  # no version number at all
            raise
        except TritonError:
            if self._registry.loaded_as(name):
                raise InvalidArg(f"requested model version is not available for model '{name}'") from None
            raise InvalidArg(f"requested model '{name}' is not available") from None


def _tensors(specs: Mapping[str, TensorSpec]) -> list[JsonObject]:
    return [
        {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)} for spec in specs.values()
    ]


def _activity(model: LoadedModel) -> ModelActivity:
    stats = model.stats
    return ModelActivity(
        model.name,
        model.version,
        model.inflight_count,
        stats.pending_count,
        stats.queue_count,
        stats.queue_ns,
        stats.compute_input_ns + stats.compute_infer_ns + stats.compute_output_ns,
        len(model.instances),
    )


def _memory_json(model: LoadedModel) -> list[JsonObject]:
    """Memory that a model and its instances have reported to use, as its statistics show it."""
    return [
        {"type": usage.memory_type.name, "id": usage.device_id, "byte_size": usage.byte_size}
        for usage in model.memory_usage
    ]


def _explanation(model: LoadedModel) -> JsonObject:
    """Facts of one version for `corectl explain`: totals since it was loaded, and its state now.

    Args:
        model: the version.

    Returns:
        `scheduler` (its kind, and its part of the configuration), `seconds` since counting began, `closed`
        (batches by the reason why they left), `batch_sizes` (executions by size), `requests` and their
        `durations_ns`, `failures` by reason, `cache`; and, as they are now, `pending` and `instances`.
    """
    stats, config = model.stats, model.config
    kind = next((kind for kind in _SCHEDULERS if kind in config), "default")
    return {
        "name": model.name,
        "version": model.version_text,
        "scheduler": {"kind": kind, "settings": config.get(kind, {})},
        "max_batch_size": config.get("max_batch_size", 0),
        "strategy": model.strategy_name,
        "seconds": (time.monotonic_ns() - stats.since_ns) / 1e9,
        "closed": dict(stats.closed_counts),
        "batch_sizes": {
            str(size): {
                "count": batch.count,
                "ns": batch.compute_input_ns + batch.compute_infer_ns + batch.compute_output_ns,
            }
            for size, batch in sorted(stats.batch_stats.items())
        },
        "requests": {phase: getattr(stats, f"{phase}_count") for phase in _PHASES},
        "durations_ns": {phase: getattr(stats, f"{phase}_ns") for phase in _PHASES},
        "inferences": stats.inference_count,
        "executions": stats.execution_count,
        "failures": dict(stats.failures),
        "cache": {"hits": stats.cache_hit_count, "misses": stats.cache_miss_count},
        "pending": stats.pending_count,
        "instances": [
            {"name": instance.name, "is_ready": instance.is_ready, "executing": instance.depth}
            for instance in model.instances
        ],
    }
