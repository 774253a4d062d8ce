"""Rules about implicit state."""

from __future__ import annotations

from tritonpy.config.schema import KIND_CPU, KIND_MODEL, DataType, ModelConfig, ModelSequenceBatching
from tritonpy.errors import InvalidArg


def check_states(config: ModelConfig) -> None:
    """States are described in full, and an initial state describes exactly the tensor it starts."""
    seen = {"input_name": set[str](), "output_name": set[str]()}
    for state in config.sequence_batching.state:
        _check_state(state, config)
        for field, names in seen.items():
            name = getattr(state, field)
            if name in names:  # Triton ignores one of them, and says so in its log
                raise InvalidArg(
                    f"Detected duplicate '{field}' in the state configuration: '{name}' for {config.name}"
                )
            names.add(name)
        _check_growable(state, config)
        if len(state.initial_state) > 1:
            raise InvalidArg(
                f"initial_state field for state input '{state.input_name}' must contain exactly one or zero "
                f"element. Found '{len(state.initial_state)}' elements."
            )
        for initial in state.initial_state:
            _check_initial_state(state, initial)


def _check_state(state: ModelSequenceBatching.State, config: ModelConfig) -> None:
    """What Triton does not check, and dies of at the first request."""
    if not (state.input_name and state.output_name):
        raise InvalidArg(
            f"sequence batching state must specify 'input_name' and 'output_name' for {config.name}"
        )
    which = f"sequence batching state '{state.input_name}'"
    if state.data_type == DataType.TYPE_INVALID:
        raise InvalidArg(f"{which} must specify 'data_type' for {config.name}")
    if any(dim < -1 for dim in state.dims):
        raise InvalidArg(
            f"{which} dimension must be integer >= 0, or -1 to indicate a variable-size dimension for "
            f"{config.name}"
        )


def _check_growable(state: ModelSequenceBatching.State, config: ModelConfig) -> None:
    """Memory that grows without being moved is the GPU's."""
    if not state.use_growable_memory:
        return
    if not state.use_same_buffer_for_input_output:
        raise InvalidArg(
            f"In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input "
            f"name '{state.input_name}'."
        )
    if any(group.kind in (KIND_CPU, KIND_MODEL) for group in config.instance_group):
        raise InvalidArg(
            f"'use_growable_memory' can only work with KIND_GPU model instances right now. Please either "
            f"change the instance type to KIND_GPU or set 'use_growable_memory' to false for state input "
            f"name '{state.input_name}'."
        )


def _check_initial_state(
    state: ModelSequenceBatching.State, initial: ModelSequenceBatching.InitialState
) -> None:
    name = state.input_name
    if not initial.name:
        raise InvalidArg(f"Field 'name' must be set when using initial_state for state input '{name}'.")
    if initial.data_type != state.data_type:
        raise InvalidArg(
            f"The data type used for 'initial_state' field of state '{name}' does not match the state data "
            f"type."
        )
    if len(initial.dims) != len(state.dims):
        raise InvalidArg(
            f"Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state "
            f"input '{name}'. {len(initial.dims)} != {len(state.dims)}"
        )
    for given, described in zip(initial.dims, state.dims, strict=True):
        if given < 0:
            raise InvalidArg(
                f"'initial_state' field for state input name '{name}' contains variable dimensions."
            )
        if described not in (given, -1):
            raise InvalidArg(
                f"'initial_state' dim for input name '{name}' doesn't match 'state' dim description. "
                f"{given} != {described}"
            )
    if initial.WhichOneof("state_data") is None:
        raise InvalidArg(f"initial_state setting expects state'{name}' to have state_data set")
