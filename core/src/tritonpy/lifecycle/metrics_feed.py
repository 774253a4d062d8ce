"""Snapshots of the loaded models for the metrics."""

from __future__ import annotations

import os

from tritonpy.devices.gpus import NO_GPUS, Gpus
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.metrics.models import ModelSnapshot
from tritonpy.metrics.server import WorkerSnapshot
from tritonpy.model.model import LoadedModel
from tritonpy.workers.instance import ProcessInstance


class MetricsFeed:
    """Copies the counters of the loaded models for the metrics.

    Args:
        registry: the models; read on the loop only.
        gpus: names the GPUs of instances.
    """

    def __init__(self, registry: ModelRegistry, gpus: Gpus = NO_GPUS) -> None:
        self._registry = registry
        self._gpus = gpus

    def models(self) -> list[ModelSnapshot]:
        """The counters of every model that is loaded, as they are now."""
        return [
            ModelSnapshot(
                model.name,
                model.version_text,
                model.stats.snapshot(),
                model.config.get("metric_tags", {}),
                load_duration_s=model.load_duration_s,
                namespace=key.namespace,
                gpu_uuid=self._gpu_uuid(model),
            )
            for key, model in self._registry.all_keyed()
        ]

    def workers(self) -> list[WorkerSnapshot]:
        """The processes behind the instances of models that take requests: their names are unique."""
        return [
            WorkerSnapshot(model.name, model.version_text, instance.name, instance.pid, key.namespace)
            for key, model in self._registry.all_keyed()
            for instance in model.instances
            if isinstance(instance, ProcessInstance) and instance.pid not in (0, os.getpid())
        ]

    def _gpu_uuid(self, model: LoadedModel) -> str:
        """The GPU that all instances of a model are on; "" if they are on several or on none."""
        if not self._gpus.ids:
            return ""
        slots = model.instance_set.slots
        ids = {slot.device_id if slot.kind == "KIND_GPU" else None for slot in slots}
        id = ids.pop() if len(ids) == 1 else None
        return self._gpus.uuid(id) if id is not None else ""
