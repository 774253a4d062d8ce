"""Settings in configurations: what the name of a dimension changes in a model's configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tritonpy.errors import InvalidArg

from tritonpy_analyze.space import Value

JsonObject = dict[str, Any]  # Any: JSON

STRATEGY = "TRITON_BATCH_STRATEGY_PATH"
THREADS = {
    "onnxruntime": "intra_op_thread_count",
    "pytorch": "INTRA_OP_THREAD_COUNT",
    "tensorflow": "TF_NUM_INTRA_THREADS",
    "litert": "NUM_THREADS",
}
"""The parameter of threads, by backend."""

SETTINGS = (
    "instances",
    "max_batch_size",
    "queue_delay_us",
    "preferred_batch_size",
    "threads",
    "strategy",
)
"""Names of settings; beside them `parameters.KEY`, and `config.PATH` for any other field."""


def overridden(config: JsonObject, settings: Mapping[str, Value], backend: str = "") -> JsonObject:
    """A copy of a configuration with other settings.

    Args:
        config: in the shape of `GET …/config`; anything may be left out.
        settings: by name; None leaves what is there, and takes away a strategy, a delay or preferred sizes.
        backend: of the model, where the configuration does not say it.

    Raises:
        InvalidArg: there is no such setting, or the model's backend or scheduler does not have it.
    """
    changed = copy.deepcopy(config)
    for name, value in settings.items():
        _set(changed, name, value, config.get("backend") or backend)
    most = int(changed.get("max_batch_size", 0))
    has_scheduler = any(f"{kind}_batching" in changed for kind in ("dynamic", "sequence"))
    if (
        most > 1
        and not has_scheduler
        and "ensemble_scheduling" not in changed
        and "max_batch_size" in settings
    ):
        changed["dynamic_batching"] = {}
    batching = changed.get("dynamic_batching", {})
    if "max_batch_size" in settings and "preferred_batch_size" in batching:
        preferred = batching["preferred_batch_size"]
        is_default = preferred == [config.get("max_batch_size")] and "preferred_batch_size" not in settings
        fitting = [] if is_default else [size for size in preferred if size <= most]
        batching["preferred_batch_size"] = fitting
        if not fitting:
            del batching["preferred_batch_size"]
    return changed


def _set(config: JsonObject, name: str, value: Value, backend: str) -> None:
    model = config.get("name", "")
    kind, _, rest = name.partition(".")
    if kind == "parameters" and rest:
        _set_parameter(config, rest, value)
    elif kind == "config" and rest:
        _set_path(config, rest, value)
    elif name == "strategy":
        _set_parameter(config, STRATEGY, value, removes=True)
    elif name == "threads":
        if backend not in THREADS:
            raise InvalidArg(
                f"model '{model}': the parameter of threads of backend '{backend}' is unknown; set it by "
                f"its name: parameters.KEY"
            )
        _set_parameter(config, THREADS[backend], value)
    elif name == "instances":
        if value is not None:
            groups = config.setdefault("instance_group", []) or [{}]
            config["instance_group"] = [group | {"count": value} for group in groups]
    elif name == "max_batch_size":
        if value is not None:
            config["max_batch_size"] = value
    elif name in ("queue_delay_us", "preferred_batch_size"):
        _set_batching(config, name, value)
    else:
        raise InvalidArg(
            f"model '{model}': there is no setting '{name}'; expected one of {', '.join(SETTINGS)}, "
            f"parameters.KEY or config.PATH"
        )


def _set_batching(config: JsonObject, name: str, value: Value) -> None:
    sequences = config.get("sequence_batching")
    if sequences is not None:
        kind = next((each for each in ("oldest", "direct") if each in sequences), "oldest")
        if name == "preferred_batch_size" and kind == "direct":
            raise InvalidArg(
                f"model '{config.get('name', '')}': the direct strategy of sequences has no preferred sizes"
            )
        batching = sequences.setdefault(kind, {})
    elif value is None or value == 0:
        batching = config.get("dynamic_batching", {})
    else:
        batching = config.setdefault("dynamic_batching", {})
    field = "max_queue_delay_microseconds" if name == "queue_delay_us" else name
    if value is None or value == 0:
        batching.pop(field, None)
    elif name == "queue_delay_us":
        batching[field] = value
    else:
        batching[field] = list(value) if isinstance(value, tuple) else [value]


def _set_parameter(config: JsonObject, key: str, value: Value, *, removes: bool = False) -> None:
    parameters = config.setdefault("parameters", {})
    if value is not None:
        parameters[key] = {"string_value": str(value)}
    elif removes:
        parameters.pop(key, None)


def _set_path(config: JsonObject, path: str, value: Value) -> None:
    if value is None:
        return
    *parents, last = path.split(".")
    place = config
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise InvalidArg(
                f"model '{config.get('name', '')}': config.{path} leads through '{parent}', a list"
            )
    place[last] = list(value) if isinstance(value, tuple) else value


def current(config: JsonObject, name: str, backend: str = "") -> Value:
    """The value that a setting has in a configuration; None where it says nothing."""
    parameters = config.get("parameters", {})
    if name.startswith("config."):
        return _at_path(config, name.removeprefix("config."))
    if name == "instances":
        groups = config.get("instance_group") or [{}]
        return int(groups[0].get("count", 1))
    if name == "max_batch_size":
        return int(config.get("max_batch_size", 0))
    key = name.removeprefix("parameters.")
    key = {"strategy": STRATEGY, "threads": THREADS.get(config.get("backend") or backend, "")}.get(key, key)
    if key in parameters:
        text = str(parameters[key].get("string_value", ""))
        return int(text) if text.isdecimal() else text
    sequences = config.get("sequence_batching", {})
    batching = config.get("dynamic_batching") or sequences.get("oldest") or sequences.get("direct") or {}
    if name == "queue_delay_us":
        return int(batching.get("max_queue_delay_microseconds", 0))
    if name == "preferred_batch_size" and batching.get("preferred_batch_size"):
        return tuple(batching["preferred_batch_size"])
    return None


def _at_path(config: JsonObject, path: str) -> Value:
    place: Any = config  # Any: JSON
    for part in path.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    if isinstance(place, list):
        return tuple(place) if not any(isinstance(each, dict | list) for each in place) else None
    return None if isinstance(place, dict) else place
