"""What is asked for: the options of the command and the file that `--file` names, as one plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tritonpy.errors import InvalidArg

from tritonpy_analyze.goal import Constraint, Goal, parse_constraint, parse_weights

JsonObject = dict[str, Any]  # Any: YAML

_KEYS = {"models", "load", "objective", "max", "min", "search", "trials", "composing"}


@dataclass(slots=True)
class Plan:
    """A search, before models are looked at.

    Attributes:
        settings: values to try by model and setting; `*` is every model.
        concurrency, rate: values of the load; None where nothing was said.
        weights: of the objective.
        constraints: of it.
        search: its name; "" where nothing was said.
        trials: the most of them; 0 where nothing was said.
        composing: models that are called by those that are asked.
    """

    settings: dict[str, dict[str, object]] = field(default_factory=dict)
    concurrency: object = None
    rate: object = None
    weights: dict[str, float] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)
    search: str = ""
    trials: int = 0
    composing: list[str] = field(default_factory=list)

    def goal(self, models: Sequence[str]) -> Goal:
        """The goal; of several models without one the throughput of each, so that none is starved."""
        weights = self.weights
        if not weights:
            names = [f"{model}.throughput" for model in models] if len(models) > 1 else ["throughput"]
            weights = dict.fromkeys(names, 1.0)
        return Goal(weights, tuple(self.constraints))


def read_plan(path: Path) -> Plan:
    """Read a file.

    Raises:
        InvalidArg: it is no YAML, or has something that is not known.
        OSError: it cannot be read.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise InvalidArg(f"'{path}' is no YAML: {exc}") from exc
    _check(found, _KEYS, f"'{path}'")
    load, models = found.get("load") or {}, found.get("models") or {}
    _check(load, {"concurrency", "rate"}, f"'{path}': load")
    _check(models, None, f"'{path}': models")
    plan = Plan(
        concurrency=load.get("concurrency"),
        rate=load.get("rate"),
        search=str(found.get("search") or ""),
        trials=_number(found.get("trials") or 0, f"'{path}': trials"),
        composing=[str(each) for each in found.get("composing") or []],
    )
    for model, settings in models.items():
        _check(settings or {}, None, f"'{path}': models: {model}")
        for name, values in (settings or {}).items():
            if name in ("parameters", "config"):
                _check(values, None, f"'{path}': models: {model}: {name}")
                for key, each in values.items():
                    plan.settings.setdefault(str(model), {})[f"{name}.{key}"] = each
            else:
                plan.settings.setdefault(str(model), {})[str(name)] = values
    objective = found.get("objective") or {}
    if isinstance(objective, str):
        plan.weights = parse_weights((objective,))
    else:
        _check(objective, None, f"'{path}': objective")
        plan.weights = parse_weights(tuple(f"{metric}={weight}" for metric, weight in objective.items()))
        if not objective:
            plan.weights = {}
    for key in ("max", "min"):
        bounds = found.get(key) or {}
        _check(bounds, None, f"'{path}': {key}")
        for metric, bound in bounds.items():
            plan.constraints.append(parse_constraint(f"{metric}={bound}", is_least=key == "min"))
    return plan


def _check(found: object, keys: set[str] | None, where: str) -> None:
    if not isinstance(found, Mapping):
        raise InvalidArg(f"{where}: got {found!r}, expected keys and values")
    if keys is not None and (unknown := set(map(str, found)) - keys):
        raise InvalidArg(f"{where}: '{min(unknown)}' is not known; expected {', '.join(sorted(keys))}")


def _number(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidArg(f"{where}: got {value!r}, expected a number")
    return value


def add_setting(plan: Plan, text: str, models: Sequence[str]) -> None:
    """Add what `--set [MODEL.]SETTING=VALUES` says.

    Raises:
        InvalidArg: there is no `=`.
    """
    name, equals, values = text.partition("=")
    if not equals:
        raise InvalidArg(f"--set '{text}': expected SETTING=VALUES or MODEL.SETTING=VALUES")
    model = next((each for each in models if name.startswith(f"{each}.")), "*")
    setting = name.removeprefix(f"{model}.")
    plan.settings.setdefault(model, {})[setting] = values
