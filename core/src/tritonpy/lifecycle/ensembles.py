"""The ensembles that are wanted, and which models each of them is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.lifecycle.loading.ensemble_load import SettledEnsemble, bind_ensemble
from tritonpy.lifecycle.loading.settings import LoaderSettings
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.model.model import LoadedModel
from tritonpy.repository.key import ModelKey

MOST_NESTED = 50
"""Ensembles inside each other; each level is a call inside a call."""


@dataclass(frozen=True, slots=True)
class _Binding:
    """What was made of an ensemble, from which models."""

    ensemble: SettledEnsemble
    models: Sequence[LoadedModel]
    loaded: Sequence[LoadedModel]


class Ensembles:
    """Binds ensembles to the models that serve; on the loop only.

    An ensemble stays here while it is wanted, also when it cannot be served for lack of a model: as soon as
    that one comes, or is mended, it can.

    Args:
        registry: the models.
        settings: of the server.
    """

    def __init__(self, registry: ModelRegistry, settings: LoaderSettings) -> None:
        self._registry = registry
        self._settings = settings
        self._wanted: dict[ModelKey, SettledEnsemble] = {}
        self._bindings: dict[ModelKey, _Binding] = {}
        self._failures: dict[ModelKey, str] = {}

    def get(self, key: ModelKey) -> SettledEnsemble | None:
        """The ensemble that is wanted under this name."""
        return self._wanted.get(key)

    def want(self, ensemble: SettledEnsemble) -> None:
        """Take an ensemble in, in place of the one that was wanted before."""
        self._wanted[ensemble.key] = ensemble

    def restore(self, key: ModelKey, ensemble: SettledEnsemble | None) -> None:
        """Go back to what was wanted before; None for no ensemble."""
        self._failures.pop(key, None)
        if ensemble is None:
            self._wanted.pop(key, None)
        else:
            self._wanted[key] = ensemble

    def drop(self, key: ModelKey) -> SettledEnsemble | None:
        """Nobody wants this one any more; what it was, if it is one."""
        self._bindings.pop(key, None)
        self._failures.pop(key, None)
        return self._wanted.pop(key, None)

    def is_needed(self, name: str) -> bool:
        """Whether an ensemble is made of a model of this name."""
        return any(name in ensemble.model_names for ensemble in self._wanted.values())

    def bind(self, ensemble: SettledEnsemble) -> Sequence[LoadedModel]:
        """The versions of an ensemble, made of the models that serve now; those it has if these are the same.

        Raises:
            InvalidArg: it cannot be served now, in Triton's words.
        """
        key = ensemble.key
        try:
            self._check_circle(ensemble)
            found = [self._model(ensemble, step) for step in ensemble.steps]
            models = [model for _, model in found]
            binding = self._bindings.get(key)
            if binding is None or binding.ensemble is not ensemble or binding.models != models:
                names = [str(step_key) for step_key, _ in found]
                loaded = bind_ensemble(ensemble, models, names, self._settings)
                binding = self._bindings[key] = _Binding(ensemble, models, loaded)
        except InvalidArg as error:
            self._failures[key] = error.message
            raise
        self._failures.pop(key, None)
        return binding.loaded

    def unbind(self, key: ModelKey) -> None:
        """What it was bound to is not served any more."""
        self._bindings.pop(key, None)

    def affected_by(self, key: ModelKey) -> Iterator[SettledEnsemble]:
        """The ensembles that are made of a model, directly or not; each behind those that it is made of."""
        affected = {key.name}
        rest = [ensemble for ensemble in self._wanted.values() if ensemble.key != key]
        found: list[SettledEnsemble] = []
        while more := [ensemble for ensemble in rest if not affected.isdisjoint(ensemble.model_names)]:
            rest = [ensemble for ensemble in rest if ensemble not in more]
            found += more
            affected.update(ensemble.key.name for ensemble in more)
        left = {ensemble.key.name for ensemble in found}
        while found:
            ready = [each for each in found if left.isdisjoint({*each.model_names} - {each.key.name})]
            yield from ready or found  # what is left goes in circles
            found = [ensemble for ensemble in found if ready and ensemble not in ready]
            left = {ensemble.key.name for ensemble in found}

    def _model(self, ensemble: SettledEnsemble, step: JsonObject) -> tuple[ModelKey, LoadedModel]:
        name, version = step["model_name"], int(step.get("model_version", -1))
        key = self._key_of(ensemble.key, name)
        unavailable = f"ensemble {ensemble.key} contains models that are not available or ambiguous: {name}"
        if key is None:
            raise InvalidArg(unavailable)
        versions = self._registry.versions_of(key)
        if not versions and key in self._failures:
            raise InvalidArg(
                f"ensemble '{ensemble.key}' depends on '{key}' which is not valid. Model '{key}' failed with "
                f"error: {self._failures[key]}"
            )
        if not versions:
            failure = self._registry.failure_of(key)
            raise InvalidArg(
                f"ensemble '{ensemble.key}' depends on '{key}' which has no loaded version. Model '{key}' "
                f"loading failed with error: {failure}"
                if failure
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

    def _key_of(self, ensemble: ModelKey, name: str) -> ModelKey | None:
        """Whose model a step means: one of the ensemble's own namespace, or else the only one there is."""
        own = ModelKey(name, ensemble.namespace)
        keys = self._registry.keys_of(name)
        serving = [key for key in keys if self._registry.versions_of(key)]
        if own in serving or (own in keys and not serving):
            return own
        keys = serving or keys
        return keys[0] if len(keys) == 1 else None

    def _ensembles_in(self, ensemble: SettledEnsemble) -> Iterator[SettledEnsemble]:
        """Those of the models it is made of that are ensembles themselves."""
        for name in ensemble.model_names:
            own = ModelKey(name, ensemble.key.namespace)
            others = [
                key for key in self._wanted if key.name == name and own not in self._registry.keys_of(name)
            ]
            for key in [own] if own in self._wanted else others:
                yield self._wanted[key]

    def _check_circle(self, ensemble: SettledEnsemble) -> None:
        """No ensemble is a part of itself, nor are so many inside each other that calls would not return."""
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
