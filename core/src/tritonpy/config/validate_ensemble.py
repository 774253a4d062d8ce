"""Rules about ensembles: their own graph, and its fit with the models that the steps name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.protos import ModelConfig, ModelEnsembling


def check_ensemble_has_no_instances(config: ModelConfig) -> None:
    """An ensemble executes nothing itself, so it has no instances to place, tune or warm up."""
    if not config.HasField("ensemble_scheduling"):
        return
    if config.instance_group:
        raise InvalidArg(f"instance group should not be specified for ensemble '{config.name}'")
    if config.HasField("optimization"):
        raise InvalidArg(f"optimization should not be specified for ensemble '{config.name}'")
    if config.model_warmup:
        raise InvalidArg(f"model_warmup can not be specified for ensemble '{config.name}'")


def check_ensemble_graph(config: ModelConfig) -> None:
    """The steps connect every input of the ensemble to its outputs, and leave no tensor over."""
    if not config.HasField("ensemble_scheduling"):
        return
    steps = config.ensemble_scheduling.step
    _check_steps(steps, config)
    inputs = [tensor.name for tensor in config.input]
    outputs = [tensor.name for tensor in config.output]
    read = {tensor for step in steps for tensor in step.input_map.values()}
    written = {tensor for step in steps for tensor in step.output_map.values()}
    for tensor in inputs:
        if tensor not in read | written:
            raise InvalidArg(f"ensemble input '{tensor}' for ensemble {config.name}' is not used")
    for tensor in outputs:
        if tensor not in read | written:
            raise InvalidArg(f"ensemble output '{tensor}' for ensemble {config.name}' is not used")
    reached = _reached_tensors(steps, set(inputs))
    for tensor in outputs:
        if tensor not in reached:
            missing = _first_unconnected(tensor, steps, reached)
            raise InvalidArg(
                f"output '{tensor}' for ensemble '{config.name}' is not written: at least one of its "
                f"depending tensors, '{missing}', is not connected"
            )
    for tensor in sorted(written - read - set(outputs)):
        raise InvalidArg(f"ensemble tensor '{tensor}' is unused in ensemble '{config.name}'")


def _check_steps(steps: Sequence[ModelEnsembling.Step], config: ModelConfig) -> None:
    if not steps:
        raise InvalidArg(f"must specify 'step' for ensemble '{config.name}'")
    written: set[str] = set()
    for index, step in enumerate(steps):
        where = f"in step {index} of ensemble '{config.name}'"
        if not step.model_name:
            raise InvalidArg(f"must specify 'model_name' {where}")
        if not step.input_map:
            raise InvalidArg(f"must specify 'input_map' {where}")
        if not step.output_map:
            raise InvalidArg(f"must specify 'output_map' {where}")
        for _, tensor in sorted(step.output_map.items()):
            if tensor in written:
                raise InvalidArg(
                    f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble "
                    f"'{config.name}' step {index}"
                )
            written.add(tensor)


def _reached_tensors(steps: Sequence[ModelEnsembling.Step], inputs: set[str]) -> set[str]:
    """The tensors that exist once every step that can run has run."""
    missing = [set(step.input_map.values()) for step in steps]  # each tensor is struck off once it is reached
    readers: dict[str, list[int]] = {}
    for index, tensors in enumerate(missing):
        for tensor in tensors:
            readers.setdefault(tensor, []).append(index)
    reached: set[str] = set()
    due = list(inputs)
    while due:
        tensor = due.pop()
        if tensor in reached:
            continue
        reached.add(tensor)
        for index in readers.get(tensor, ()):
            missing[index].discard(tensor)
            if not missing[index]:
                due.extend(steps[index].output_map.values())
    return reached


def _first_unconnected(tensor: str, steps: Sequence[ModelEnsembling.Step], reached: set[str]) -> str:
    """Walk back from a tensor that is never written to one without a writer, or once around a cycle."""
    writers = {written: step for step in steps for written in step.output_map.values()}
    seen: set[str] = set()
    while True:
        seen.add(tensor)
        writer = writers.get(tensor)
        if writer is None:
            return tensor
        before = min(set(writer.input_map.values()) - reached)
        if before in seen:
            return tensor
        tensor = before


_FROM_INPUTS = -1


@dataclass(frozen=True, slots=True)
class StepModel:
    """A model that an ensemble is made of.

    Attributes:
        name: as messages write it, with its namespace if it has one.
        config: its settled configuration.
    """

    name: str
    config: JsonObject

    @property
    def is_decoupled(self) -> bool:
        """The model may answer a request any number of times."""
        return bool(self.config.get("model_transaction_policy", {}).get("decoupled", False))


@dataclass(frozen=True, slots=True)
class _Inferred:
    """A tensor as one model describes it.

    Attributes:
        model: the model that declares it.
        data_type: as in a configuration.
        dims: without the batch dimension.
        shape: with it, if the model batches.
    """

    model: str
    data_type: str
    dims: Sequence[int]
    shape: Sequence[int]

    @classmethod
    def of(cls, tensor: JsonObject, model: str, max_batch_size: int) -> _Inferred:
        dims = [int(dim) for dim in tensor.get("dims", ())]
        return cls(model, tensor["data_type"], dims, [-1, *dims] if max_batch_size > 0 else dims)


def check_steps(name: str, config: JsonObject, models: Sequence[StepModel]) -> None:
    """The tensors of an ensemble fit what its models take and give.

    Args:
        name: the ensemble, as messages write it.
        config: its configuration, the graph of which is found sound.
        models: the model of each step.

    Raises:
        InvalidArg: the first rule that is broken, in Triton's words.
    """
    max_batch_size = config.get("max_batch_size", 0)
    tensors = {
        tensor["name"]: _Inferred.of({**tensor, "dims": inner_dims(tensor)}, name, max_batch_size)
        for field in ("input", "output")
        for tensor in config.get(field, ())
    }
    for step, model in zip(config["ensemble_scheduling"]["step"], models, strict=True):
        most = model.config.get("max_batch_size", 0)
        if 0 < most < max_batch_size:
            raise InvalidArg(
                f"ensemble {name} allows maximum batch size {max_batch_size}, but it contains model "
                f"{model.name} which only allows maximum batch size to be {most}"
            )
        _check_mapping(f"in ensemble {name}, ", step, model)
        for field, names in (("input", step["input_map"]), ("output", step["output_map"])):
            for tensor in model.config.get(field, ()):
                if tensor["name"] in names:
                    inferred = _Inferred.of(tensor, model.name, most)
                    known = tensors.setdefault(names[tensor["name"]], inferred)
                    _check_consistent(f"in ensemble {name}, ", names[tensor["name"]], known, inferred)
    _check_overwriting(name, config)
    decoupled_origins(name, config, [model.is_decoupled for model in models])


def inner_dims(tensor: JsonObject) -> tuple[int, ...]:
    """The dims of an ensemble's own tensor as its steps see it: those of the reshape, if it has one."""
    reshape = tensor.get("reshape")
    return tuple(map(int, tensor.get("dims", ()) if reshape is None else reshape.get("shape", ())))


def decoupled_origins(name: str, config: JsonObject, is_decoupled: Sequence[bool]) -> list[int]:
    """For each step the decoupled step whose responses its inputs come from; -1 for the request itself.

    Each response of a decoupled step has the steps behind it run anew, so what belongs together must come
    from one of them.

    Args:
        name: the ensemble, as messages write it.
        config: its configuration.
        is_decoupled: of each step, whether its model is.

    Raises:
        InvalidArg: the inputs of a step, or the outputs of the ensemble, come from several.
    """
    steps = config["ensemble_scheduling"]["step"]
    origins = dict.fromkeys((tensor["name"] for tensor in config.get("input", ())), _FROM_INPUTS)
    of_step: dict[int, int] = {}
    for index in in_order(config):
        origin = _common_origin([origins[tensor] for tensor in steps[index]["input_map"].values()])
        if origin is None:
            raise _mixed(name, _first_to_name(name, config, next(iter(steps[index]["output_map"].values()))))
        of_step[index] = origin
        for tensor in steps[index]["output_map"].values():
            origins[tensor] = index if is_decoupled[index] else origin
    if _common_origin([origins[tensor["name"]] for tensor in config.get("output", ())]) is None:
        raise _mixed(name, name)
    return [of_step.get(index, _FROM_INPUTS) for index in range(len(steps))]


def in_order(config: JsonObject) -> list[int]:
    """The steps of an ensemble, each behind those that it needs; without those that can never run."""
    steps = config["ensemble_scheduling"]["step"]
    missing = [set(step["input_map"].values()) for step in steps]
    readers: dict[str, list[int]] = {}
    for index, tensors in enumerate(missing):
        for tensor in tensors:
            readers.setdefault(tensor, []).append(index)
    order: list[int] = []
    due = [tensor["name"] for tensor in config.get("input", ())]
    for tensor in due:  # grows meanwhile
        for index in readers.pop(tensor, ()):
            missing[index].discard(tensor)
            if not missing[index]:
                order.append(index)
                due.extend(steps[index]["output_map"].values())
    return order


def _check_mapping(where: str, step: JsonObject, model: StepModel) -> None:
    inputs = {tensor["name"]: tensor for tensor in model.config.get("input", ())}
    outputs = {tensor["name"] for tensor in model.config.get("output", ())}
    for name, tensor in sorted(step["input_map"].items()):
        if name not in inputs:
            raise InvalidArg(
                f"{where}ensemble tensor {tensor} is mapping to non-existing input {name} in model "
                f"{model.name}"
            )
    for name, tensor in inputs.items():
        if name not in step["input_map"] and not tensor.get("optional", False):
            raise InvalidArg(
                f"{where}input {name} in model {model.name} is not mapped to any ensemble tensors"
            )
    for name, tensor in sorted(step["output_map"].items()):
        if name not in outputs:
            raise InvalidArg(
                f"{where}ensemble tensor {tensor} is mapped from non-existing output {name} in model "
                f"{model.name}"
            )


def _check_consistent(where: str, tensor: str, known: _Inferred, other: _Inferred) -> None:
    if known.data_type != other.data_type:
        raise InvalidArg(
            f"{where}ensemble tensor {tensor}: inconsistent data type: {known.data_type} is inferred from "
            f"model {known.model} while {other.data_type} is inferred from model {other.model}"
        )
    if not (_are_alike(known.dims, other.dims) or _are_alike(known.shape, other.shape)):
        raise InvalidArg(
            f"{where}ensemble tensor {tensor}: inconsistent shape: {_shown(known.shape)} is inferred from "
            f"model {known.model} while {_shown(other.shape)} is inferred from model {other.model}"
        )


def _check_overwriting(name: str, config: JsonObject) -> None:
    """Refuse a tensor with two writers; Triton loads such an ensemble, and never answers its requests."""
    inputs = {tensor["name"] for tensor in config.get("input", ())}
    for index, step in enumerate(config["ensemble_scheduling"]["step"]):
        for output, tensor in sorted(step["output_map"].items()):
            if tensor in inputs:
                raise InvalidArg(
                    f"in ensemble {name}, ensemble tensor {tensor} is an input of the ensemble and cannot be "
                    f"mapped from output {output} in step {index}, too"
                )


def _common_origin(origins: Iterable[int]) -> int | None:
    """The common origin of these tensors; None if they have several."""
    distinct = set(origins)
    if len(distinct) > 1:
        return None
    return distinct.pop() if distinct else _FROM_INPUTS


def _mixed(name: str, model: str) -> InvalidArg:
    return InvalidArg(
        f"in ensemble {name}, step of model '{model}' receives inputs originated from different decoupled "
        f"models"
    )


def _first_to_name(name: str, config: JsonObject, tensor: str) -> str:
    """The model that Triton names with a tensor: the ensemble for its own, else the first step's."""
    own = [known["name"] for field in ("input", "output") for known in config.get(field, ())]
    steps = config["ensemble_scheduling"]["step"] if tensor not in own else []
    for step in steps:
        if tensor in step["input_map"].values() or tensor in step["output_map"].values():
            return str(step["model_name"])
    return name


def _are_alike(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(
        left == right or -1 in (left, right) for left, right in zip(one, other, strict=True)
    )


def _shown(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
