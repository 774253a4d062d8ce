"""Whether what is served now is what a trial measured: configurations compared as a load completes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tritonpy.config.complete import normalize
from tritonpy.config.read import config_from_dict
from tritonpy.config.write import config_to_dict
from tritonpy.errors import TritonError

from tritonpy_analyze.analysis import Trial
from tritonpy_analyze.models import configurations, model_of
from tritonpy_analyze.overrides import overridden
from tritonpy_analyze.space import LOAD_SETTINGS, Choice, Value

JsonObject = dict[str, Any]  # Any: JSON


class Served:
    """What is served now, beside the configurations that an analysis began with.

    Args:
        began: those, by model; as complete as they were known.
        served: gives the configuration that a model has now; empty for one that is not loaded.
    """

    def __init__(self, began: Mapping[str, JsonObject], served: Callable[[str], JsonObject]) -> None:
        self._models = {
            name: model_of({**config, "name": name}, str(config.get("backend", "")))
            for name, config in began.items()
        }
        self._served = {name: served(name) for name in began}
        self._complete = {name: _complete(config, name) for name, config in self._served.items()}

    @property
    def unloaded(self) -> list[str]:
        """The models of the analysis that are not loaded."""
        return [name for name, config in self._served.items() if not config]

    def changes(self, choice: Choice) -> dict[str, Value]:
        """The settings of a choice that differ from what is served."""
        return {
            name: value
            for name, value in choice.items()
            if name not in LOAD_SETTINGS and not self._has(name, value)
        }

    def _has(self, name: str, value: Value) -> bool:
        model, _, setting = name.partition(".")
        config = self._served.get(model)
        if not config or model not in self._models:
            return False
        try:
            changed = overridden(config, {setting: value}, self._models[model].backend)
        except TritonError:
            return False
        return _complete(changed, model) == self._complete[model]

    def differing(self, trial: Trial) -> list[str]:
        """The fields in which what a trial measured is not what is served, as `MODEL.FIELD`."""
        try:
            tried = configurations(self._models, {} if trial.is_now else trial.choice)
        except (TritonError, KeyError):
            return ["?"]
        found = []
        for name, config in tried.items():
            then, now = _complete(config, name), self._complete[name]
            found += [f"{name}.{key}" for key in sorted({*then, *now}) if then.get(key) != now.get(key)]
        return found


def _complete(config: JsonObject, name: str) -> JsonObject:
    """A configuration with every default said; as it is where it cannot be read."""
    try:
        message = config_from_dict(config, name)
    except TritonError:
        return config
    message.name = name
    normalize(message)
    for group in message.instance_group:
        group.name = ""  # the default one depends on whether a configuration has groups at all
    return config_to_dict(message)
