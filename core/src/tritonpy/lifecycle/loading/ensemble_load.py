"""From the configuration of an ensemble to one that takes requests: nothing has to be started for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Never

from tritonpy.config.named_files import Labels, read_labels
from tritonpy.config.validate_ensemble import StepModel, check_steps
from tritonpy.errors import TritonError
from tritonpy.handles import Backend, BackendAttributes, JsonObject, Model
from tritonpy.lifecycle.loading.caching import check_cached_steps, generation_of_ensemble, with_cache
from tritonpy.lifecycle.loading.instance_update import copied_config
from tritonpy.lifecycle.loading.settings import LoaderSettings
from tritonpy.lifecycle.prepared_model import PreparedModel
from tritonpy.lifecycle.resolved_config import proposed_config, settled_config
from tritonpy.model.instance_set import InstanceSet
from tritonpy.model.model import LoadedModel
from tritonpy.model.placement import Slot
from tritonpy.model.signature import Signature
from tritonpy.repository.layout import ModelKey
from tritonpy.scheduler.ensemble.ensemble import EnsembleScheduler
from tritonpy.scheduler.ensemble.plan import Plan
from tritonpy.scheduler.strategy_finder import PATH_PARAMETER, UNASKED
from tritonpy.stats import ModelStats

_log = logging.getLogger("tritonpy.repository")


@dataclass(frozen=True, slots=True)
class SettledEnsemble:
    """An ensemble that only has to be bound to its models.

    Attributes:
        key: the ensemble.
        config: its configuration, sound as far as that can be said without its models.
        versions: those that are to be served.
        directory: its files.
        labels: those that it names itself.
    """

    key: ModelKey
    config: JsonObject
    versions: Sequence[int]
    directory: Path
    labels: Labels

    @property
    def steps(self) -> Sequence[JsonObject]:
        """As the configuration has them."""
        steps: Sequence[JsonObject] = self.config["ensemble_scheduling"]["step"]
        return steps

    @property
    def model_names(self) -> list[str]:
        """The models that it is made of, each once."""
        return list(dict.fromkeys(step["model_name"] for step in self.steps))


def settle_ensemble(prepared: PreparedModel, versions: Sequence[int]) -> SettledEnsemble:
    """Make the configuration of an ensemble explicit, and check it; blocking.

    Raises:
        TritonError: a rule is broken, or a label file is not there.
    """
    directory = prepared.directory
    document = proposed_config(copied_config(prepared.config), BackendAttributes())
    config = settled_config(document, BackendAttributes(), directory.path, name=directory.name)
    labels = read_labels(config, directory.path)
    strategy = config.get("parameters", {}).get(PATH_PARAMETER)
    if strategy is not None:
        _log.warning(UNASKED, strategy.get("string_value", ""), directory.name, "is an ensemble")
    return SettledEnsemble(prepared.source.key, config, versions, directory.path, labels)


def bind_ensemble(
    ensemble: SettledEnsemble,
    models: Sequence[LoadedModel],
    names: Sequence[str],
    settings: LoaderSettings,
) -> list[LoadedModel]:
    """Every version of an ensemble, made of these models.

    Args:
        ensemble: its configuration.
        models: that of each step, which is held until the ensemble is closed.
        names: what messages call them.
        settings: of the server.

    Raises:
        InvalidArg: the ensemble does not fit them.
    """
    step_models = [StepModel(name, model.config) for name, model in zip(names, models, strict=True)]
    check_steps(str(ensemble.key), ensemble.config, step_models)
    is_decoupled = any(model.is_decoupled for model in models)
    config = {**ensemble.config, "model_transaction_policy": {"decoupled": is_decoupled}}
    labels = {**_inherited_labels(ensemble, models), **ensemble.labels}
    return [_load(ensemble, version, config, models, labels, settings) for version in ensemble.versions]


def _load(
    ensemble: SettledEnsemble,
    version: int,
    config: JsonObject,
    models: Sequence[LoadedModel],
    labels: Labels,
    settings: LoaderSettings,
) -> LoadedModel:
    began_s = time.monotonic()
    handle = Model(ensemble.key.name, version, config, ensemble.directory, Backend(""))
    stats = ModelStats(latencies=settings.latencies(config))
    check_cached_steps(handle, models)
    generation = generation_of_ensemble(handle, models)
    plan = Plan(handle.name, config, models, [model.signature for model in models])
    steps = tuple(dict.fromkeys(models))
    for step in steps:
        step.hold()

    async def close(error: TritonError | None) -> None:
        for step in steps:
            step.release()

    return LoadedModel(
        handle,
        Signature(config),
        stats,
        with_cache(EnsembleScheduler(plan, stats), handle, stats, settings.cache, generation),
        InstanceSet(_no_instance, is_parallel=False, on_start=_no_start),
        close,
        load_duration_s=time.monotonic() - began_s,
        labels=labels,
        steps=steps,
        generation=generation,
    )


def _inherited_labels(ensemble: SettledEnsemble, models: Sequence[LoadedModel]) -> Labels:
    """Labels of tensors that the models which make them have."""
    return {
        tensor: model.labels[output]
        for step, model in zip(ensemble.steps, models, strict=True)
        for output, tensor in step["output_map"].items()
        if output in model.labels
    }


async def _no_instance(slot: Slot) -> Never:
    raise AssertionError(f"an ensemble has no instances, but one was to be started for {slot}")


def _no_start(what: str) -> None:
    """Do nothing: an ensemble starts no instances."""
