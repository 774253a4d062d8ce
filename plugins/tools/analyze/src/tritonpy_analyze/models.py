"""The models of an analysis: their configurations, their steps, and what to try unless somebody says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tritonpy.cli.config_preview import settled_preview
from tritonpy.config.load import find_config
from tritonpy.config.write import given_fields
from tritonpy.cores import usable_core_count
from tritonpy.devices.gpus import Gpus
from tritonpy.errors import InvalidArg, NotFound, TritonError
from tritonpy.lifecycle.loading.loader import LoaderSettings
from tritonpy.lifecycle.resolved_config import check_config, read_given_config
from tritonpy.protos import ModelConfig
from tritonpy.repository.layout import read_model

from tritonpy_analyze.overrides import THREADS, current, overridden
from tritonpy_analyze.space import Choice, Dimension, Value, values_of

JsonObject = dict[str, Any]  # Any: JSON

_DELAYS_US: tuple[Value, ...] = (0, 200, 1000, 4000)
_MOST_ROWS = 16
_MOST_INSTANCES = 4
_MOST_CONCURRENCY = 32


@dataclass(frozen=True, slots=True)
class AnalyzedModel:
    """A model whose configuration is searched.

    Attributes:
        name: of the model.
        config: what its configuration says, in the shape of `GET …/config`, nothing filled in.
        backend: by which it is executed; "" for an ensemble.
        steps: the models of an ensemble, by name.
        path: its directory; None for a model of a remote server.
        settled: the configuration that it has when it is loaded, as far as that is known without a load.
    """

    name: str
    config: JsonObject
    backend: str
    steps: tuple[str, ...] = ()
    path: Path | None = None
    settled: JsonObject = field(default_factory=dict)

    @property
    def is_ensemble(self) -> bool:
        """True if it is made of other models and has no instances."""
        return "ensemble_scheduling" in self.config

    @property
    def is_decoupled(self) -> bool:
        """True if it may answer a request several times."""
        policy = (self.settled or self.config).get("model_transaction_policy", {})
        return bool(policy.get("decoupled", False))


def read_models(
    repositories: Sequence[Path], names: Sequence[str], *, asks_backends: bool = True
) -> dict[str, AnalyzedModel]:
    """Read models and, behind them, all that ensembles are made of.

    Args:
        repositories: directories of models.
        names: of the models.
        asks_backends: let backends complete what a configuration does not say; they may read the files.

    Raises:
        NotFound: a model is in no repository.
        TritonError: its configuration is wrong.
    """
    found: dict[str, AnalyzedModel] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop(0)
        if name in found:
            continue
        path = next((each / name for each in repositories if (each / name).is_dir()), None)
        if path is None:
            places = ", ".join(f"'{each}'" for each in repositories)
            raise NotFound(f"model '{name}' is in no repository; looked in {places} (--model-repository)")
        found[name] = read_one(path)
        if asks_backends and not found[name].is_ensemble:
            found[name] = replace(found[name], settled=_settled(found[name], path))
        wanted += found[name].steps
    return found


def read_one(path: Path) -> AnalyzedModel:
    """Read one model from its directory."""
    directory = read_model(path.absolute())
    given = read_given_config(directory)
    checked = ModelConfig()
    checked.CopyFrom(given)
    check_config(checked, directory)
    return model_of(given_fields(given) | {"name": path.name}, checked.backend, path.absolute())


def _settled(model: AnalyzedModel, path: Path) -> JsonObject:
    """The configuration as a load would settle it; as it was given, where the backend cannot say."""
    gpus = Gpus()
    gpus.discover()
    try:
        return settled_preview(path, LoaderSettings(auto_complete_config=True, gpus=gpus))
    except (TritonError, OSError):
        return model.config


def model_of(config: JsonObject, backend: str, path: Path | None = None) -> AnalyzedModel:
    """A model by its configuration."""
    steps = config.get("ensemble_scheduling", {}).get("step", [])
    names = tuple(dict.fromkeys(step["model_name"] for step in steps))
    return AnalyzedModel(config["name"], config, "" if steps else backend, names, path, config)


def dimensions(
    models: Mapping[str, AnalyzedModel], given: Mapping[str, Mapping[str, object]]
) -> list[Dimension]:
    """The dimensions of a search: those that are given, or where a model has none, sensible ones.

    Args:
        models: by name.
        given: values by model and setting, as `values_of` reads them; `*` is every model that is executed.

    Raises:
        InvalidArg: a model is not analyzed, or a setting is not one of its.
    """
    if unknown := set(given) - set(models) - {"*"}:
        raise InvalidArg(
            f"'{min(unknown)}' is not analyzed; expected one of {', '.join(models)}, or * for all of them"
        )
    found = []
    for name, model in models.items():
        if model.is_ensemble:
            settings: dict[str, tuple[Value, ...]] = {}
        else:
            wanted = {**given.get("*", {}), **given.get(name, {})}
            settings = {key: values_of(value, f"{name}.{key}") for key, value in wanted.items()}
            if not wanted:
                settings = _sensible(model, is_step=len(models) > 1)
        for setting, values in settings.items():
            overridden(model.config, {setting: values[0]}, model.backend)  # refuses what is no setting
            found.append(Dimension(f"{name}.{setting}", values))
    return found


def _sensible(model: AnalyzedModel, *, is_step: bool) -> dict[str, tuple[Value, ...]]:
    """What to try of a model of which nobody has said anything; less of each where there are several."""
    cores = usable_core_count()
    now = int(str(current(model.settled, "instances")))
    settings: dict[str, tuple[Value, ...]] = {
        "instances": tuple(sorted({now, *range(1, max(2, min(cores, _MOST_INSTANCES)) + 1)}))
    }
    most = int(model.settled.get("max_batch_size", 0))
    if most > 0:
        powers = {1 << exponent for exponent in range(0, 11, 2 if is_step else 1)}
        settings["max_batch_size"] = tuple(
            sorted({most, *(size for size in powers if size <= max(most, _MOST_ROWS))})
        )
        if not is_step and "sequence_batching" not in model.config:
            delay = current(model.settled, "queue_delay_us")
            settings["queue_delay_us"] = tuple(sorted({*_DELAYS_US, delay}, key=lambda each: int(str(each))))
    if model.backend in THREADS and cores > 1:
        settings["threads"] = tuple(1 << exponent for exponent in range(cores.bit_length()))
    return settings


def load_dimension(concurrency: object, rate: object) -> Dimension:
    """The dimension of the load; powers of two of requests at once, unless somebody says.

    Raises:
        InvalidArg: both were given, or a value is no positive number.
    """
    if concurrency is not None and rate is not None:
        raise InvalidArg("a load has a concurrency or a rate, not both")
    name, given = (
        ("rate", rate) if rate is not None else ("concurrency", concurrency or f"1:{_MOST_CONCURRENCY}:x2")
    )
    values = values_of(given, name)
    kinds = (int, float) if name == "rate" else int
    for value in values:
        if not isinstance(value, kinds) or value <= 0:
            raise InvalidArg(f"{name}: got '{value}', expected a number above 0")
    return Dimension(name, values)


def start_of(models: Mapping[str, AnalyzedModel], found: Sequence[Dimension]) -> dict[str, Value]:
    """The values that the dimensions have in the configurations now."""
    start: dict[str, Value] = {}
    for dimension in found:
        name, _, setting = dimension.name.partition(".")
        if setting:
            start[dimension.name] = current(models[name].settled, setting, models[name].backend)
    return start


def configurations(models: Mapping[str, AnalyzedModel], choice: Choice) -> dict[str, JsonObject]:
    """The configurations of all models with the values of a choice.

    An ensemble takes no more rows than the least of its steps, so its `max_batch_size` follows theirs.

    Raises:
        InvalidArg: see `overridden`.
    """
    found: dict[str, JsonObject] = {}
    for name, model in models.items():
        prefix = f"{name}."
        settings = {
            key.removeprefix(prefix): value for key, value in choice.items() if key.startswith(prefix)
        }
        found[name] = overridden(model.config, settings, model.backend)
    for name, model in models.items():
        most = int(found[name].get("max_batch_size", 0))
        if model.is_ensemble and most > 0:
            rows = [int(found[step].get("max_batch_size", 0)) for step in _executed(models, model)]
            found[name]["max_batch_size"] = min([most, *rows])
    return found


def is_as_now(models: Mapping[str, AnalyzedModel], choice: Choice) -> bool:
    """True if the values of a choice are those that the models have when they are loaded as they are."""
    settled = {name: replace(model, config=model.settled) for name, model in models.items()}
    return configurations(settled, choice) == configurations(settled, {})


def _executed(models: Mapping[str, AnalyzedModel], ensemble: AnalyzedModel) -> list[str]:
    names = []
    for step in ensemble.steps:
        names += _executed(models, models[step]) if models[step].is_ensemble else [step]
    return names


def streaming(models: Mapping[str, AnalyzedModel], asked: Sequence[str]) -> frozenset[str]:
    """Those of the models that are asked that may answer several times, themselves or in a step."""

    def streams(name: str) -> bool:
        return models[name].is_decoupled or any(map(streams, models[name].steps))

    return frozenset(filter(streams, asked))


def config_path(model: AnalyzedModel) -> Path:
    """The file that has, or would have, the configuration of a local model."""
    assert model.path is not None
    return find_config(model.path) or model.path / "config.pbtxt"
