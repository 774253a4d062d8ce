"""Rules about ensembles that can be judged without looking at other models."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.config.schema import ModelConfig, ModelEnsembling
from tritonpy.errors import InvalidArg


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
    """Walk back from a tensor that is never written to one that nothing writes, or once around a circle."""
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
