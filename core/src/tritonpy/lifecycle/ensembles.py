"""Ensembles and the models that they are made of: how they are bound to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.loading.ensemble_load import SettledEnsemble, bind_ensemble
from tritonpy.lifecycle.loading.settings import LoaderSettings
from tritonpy.lifecycle.record import Binding, ModelRecord
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.model.model import LoadedModel
from tritonpy.repository.layout import ModelKey

MOST_NESTED = 50
"""Ensembles inside each other; each level is a call inside a call."""


class Ensembles:
    """Binds ensembles to the models that serve; on the loop only.

    An ensemble is wanted as long as its record has its configuration, also while it cannot be served for lack
    of a model: as soon as that one comes, or is mended, it can.

    Args:
        registry: the models.
        settings: of the server.
    """

    def __init__(self, registry: ModelRegistry, settings: LoaderSettings) -> None:
        self._registry = registry
        self._settings = settings

    def is_needed(self, name: str) -> bool:
        """True if an ensemble is made of a model of this name."""
        return any(name in ensemble.model_names for ensemble in self._wanted().values())

    def bind(self, record: ModelRecord) -> Sequence[LoadedModel]:
        """The versions of an ensemble, made of the models that serve now; those it has if these are the same.

        Raises:
            InvalidArg: it cannot be served now, in Triton's words.
        """
        ensemble = record.ensemble
        assert ensemble is not None  # callers ask for ensembles only
        try:
            self._check_circle(ensemble)
            found = [self._model(ensemble, step) for step in ensemble.steps]
            models = [model for _, model in found]
            binding = record.binding
            if binding is None or binding.ensemble is not ensemble or binding.models != models:
                names = [str(key) for key, _ in found]
                loaded = bind_ensemble(ensemble, models, names, self._settings)
                binding = record.binding = Binding(ensemble, models, loaded)
        except InvalidArg as error:
            record.binding_failure = error.message
            raise
        record.binding_failure = ""
        return binding.loaded

    def affected_by(self, key: ModelKey) -> Iterator[ModelRecord]:
        """The ensembles that are made of a model, directly or not; each behind those that it is made of."""
        wanted = self._wanted()
        wanted.pop(key, None)
        affected = {key.name}
        found: dict[ModelKey, SettledEnsemble] = {}
        while more := [each for each in wanted if not affected.isdisjoint(wanted[each].model_names)]:
            found |= {each: wanted.pop(each) for each in more}
            affected.update(each.name for each in more)
        while found:
            names = {each.name for each in found}
            ready = [
                each
                for each, ensemble in found.items()
                if names.isdisjoint({*ensemble.model_names} - {each.name})
            ]
            for each in ready or list(found):  # the rest goes in circles
                yield self._registry.record(each)
                del found[each]

    def _wanted(self) -> dict[ModelKey, SettledEnsemble]:
        return {record.key: record.ensemble for record in self._registry.records() if record.ensemble}

    def _model(self, ensemble: SettledEnsemble, step: JsonObject) -> tuple[ModelKey, LoadedModel]:
        name, version = step["model_name"], int(step.get("model_version", -1))
        record = self._step_record(ensemble.key, name)
        unavailable = f"ensemble {ensemble.key} contains models that are not available or ambiguous: {name}"
        if record is None:
            raise InvalidArg(unavailable)
        key, versions = record.key, record.models
        if not versions and record.binding_failure:
            raise InvalidArg(
                f"ensemble '{ensemble.key}' depends on '{key}' which is not valid. Model '{key}' failed with "
                f"error: {record.binding_failure}"
            )
        if not versions:
            raise InvalidArg(
                f"ensemble '{ensemble.key}' depends on '{key}' which has no loaded version. Model '{key}' "
                f"loading failed with error: {record.failure}"
                if record.failure
                else unavailable
            )
        if version == -1:
            return key, versions[-1]
        for model in versions:
            if model.version == version:
                return key, model
        raise InvalidArg(
            f"ensemble '{ensemble.key}' depends on '{key}' whose required version {version} is not loaded."
        )

    def _step_record(self, ensemble: ModelKey, name: str) -> ModelRecord | None:
        """The model that a step means: one of the ensemble's own namespace, or else the only one there is."""
        records = self._registry.records_of(name)
        serving = [record for record in records if record.models]
        for record in serving or records:
            if record.key.namespace == ensemble.namespace:
                return record
        if serving:
            records = serving
        return records[0] if len(records) == 1 else None

    def _ensembles_in(self, ensemble: SettledEnsemble) -> Iterator[SettledEnsemble]:
        """The ensembles among the models that an ensemble is made of."""
        for name in ensemble.model_names:
            records = self._registry.records_of(name)
            own = [record for record in records if record.key.namespace == ensemble.key.namespace]
            for record in own or records:
                if record.ensemble is not None:
                    yield record.ensemble

    def _check_circle(self, ensemble: SettledEnsemble) -> None:
        """Refuse an ensemble that is a part of itself, or with more levels than calls can return from."""
        seen: set[ModelKey] = set()
        level = [ensemble]
        for _ in range(MOST_NESTED):
            following: list[SettledEnsemble] = []
            for parent in level:
                for inner in self._ensembles_in(parent):
                    if inner.key == ensemble.key:
                        raise InvalidArg(
                            f"circular dependency between ensembles: {ensemble.key} -> ... -> {parent.key} "
                            f"-> {ensemble.key}"
                        )
                    if inner.key not in seen:
                        seen.add(inner.key)
                        following.append(inner)
            if not following:
                return
            level = following
        raise InvalidArg(
            f"ensemble {ensemble.key} has more than {MOST_NESTED} ensembles inside each other; expected fewer"
        )
