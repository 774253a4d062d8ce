"""Rules about the dynamic batcher, the sequence batcher and implicit state."""

from __future__ import annotations

from collections.abc import Iterable

from tritonpy.errors import InvalidArg
from tritonpy.protos import DataType, ModelConfig, ModelQueuePolicy, ModelSequenceBatching

_Control = ModelSequenceBatching.Control
_FALSE_TRUE_KINDS = (
    _Control.CONTROL_SEQUENCE_START,
    _Control.CONTROL_SEQUENCE_END,
    _Control.CONTROL_SEQUENCE_READY,
)
_CORRELATION_ID_TYPES = (
    DataType.TYPE_UINT64,
    DataType.TYPE_INT64,
    DataType.TYPE_UINT32,
    DataType.TYPE_INT32,
    DataType.TYPE_STRING,
)


def check_dynamic_batching(config: ModelConfig) -> None:
    """Preferred sizes fit the largest batch, priorities exist, and ordering does not contradict them."""
    if not config.HasField("dynamic_batching"):
        return
    batching = config.dynamic_batching
    _check_preferred_sizes(batching.preferred_batch_size, "dynamic batching preferred size", config)
    levels = batching.priority_levels
    if levels > 0:
        if not 1 <= batching.default_priority_level <= levels:
            raise InvalidArg(f"default priority level must be in range [1, {levels}] for {config.name}")
        if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
            raise InvalidArg(
                f"priority queue policy must have priority level in range [1, {levels}] for {config.name}"
            )
    if batching.preserve_ordering:
        if levels > 1:
            raise InvalidArg(
                f"Only one priority level is allowed when 'preserve_ordering' is true for {config.name}"
            )
        policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
        if any(map(_delays, policies)):
            raise InvalidArg(
                f"Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for "
                f"{config.name}"
            )


def _delays(policy: ModelQueuePolicy) -> bool:
    """True if the policy delays requests; without a timeout it never does, and Triton accepts it."""
    return policy.timeout_action == ModelQueuePolicy.DELAY and policy.default_timeout_microseconds > 0


def _check_preferred_sizes(sizes: Iterable[int], what: str, config: ModelConfig) -> None:
    for size in sizes:
        if size <= 0:
            raise InvalidArg(f"{what} must be positive for {config.name}")
        if size > config.max_batch_size:
            raise InvalidArg(f"{what} must be <= max batch size for {config.name}")


def check_sequence_batching(config: ModelConfig) -> None:
    """Control tensors carry what their kind needs, and the strategy's numbers make sense."""
    if not config.HasField("sequence_batching"):
        return
    batching = config.sequence_batching
    _check_control_names(config)
    for kind in _FALSE_TRUE_KINDS:
        for control in _single_control(config, kind):
            _check_false_true(control, config)
    for control in _single_control(config, _Control.CONTROL_SEQUENCE_CORRID):
        _check_correlation_id(control, config)
    if not 0.0 <= batching.direct.minimum_slot_utilization <= 1.0:
        raise InvalidArg(
            f"sequence batching minimum slot utilization must be in range (0.0, 1.0] for {config.name}"
        )
    if batching.HasField("oldest"):
        what = "sequence batching preferred batch size"
        _check_preferred_sizes(batching.oldest.preferred_batch_size, what, config)


def _check_control_names(config: ModelConfig) -> None:
    seen: set[str] = set()
    for tensor in config.sequence_batching.control_input:
        if not tensor.name:
            raise InvalidArg(f"sequence batching control tensor must have a name for {config.name}")
        if tensor.name in seen:
            raise InvalidArg(
                f"sequence batching control tensor '{tensor.name}' is specified for multiple control kinds "
                f"for {config.name}"
            )
        seen.add(tensor.name)


def _single_control(config: ModelConfig, kind: int) -> list[ModelSequenceBatching.Control]:
    """The control of this kind in a list of one or none; two are refused."""
    found = [
        control
        for tensor in config.sequence_batching.control_input
        for control in tensor.control
        if control.kind == kind
    ]
    if len(found) > 1:
        raise InvalidArg(
            f"sequence batching specifies multiple {_Control.Kind.Name(kind)} tensors for {config.name}"
        )
    return found


def _check_false_true(control: ModelSequenceBatching.Control, config: ModelConfig) -> None:
    kind = _Control.Kind.Name(control.kind)
    given = _false_true_values(control)
    if not given:
        raise InvalidArg(
            f"sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
            f"'bool_false_true' for {kind} for {config.name}"
        )
    if len(given) > 1:
        raise InvalidArg(
            f"sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
            f"'bool_false_true' for {kind} for {config.name}"
        )
    for name, count in given.items():
        if count != 2:
            raise InvalidArg(
                f"sequence batching control '{name}' must have exactly 2 entries for {kind} for {config.name}"
            )


def _check_correlation_id(control: ModelSequenceBatching.Control, config: ModelConfig) -> None:
    kind = _Control.Kind.Name(control.kind)
    if _false_true_values(control):
        raise InvalidArg(
            f"sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
            f"'bool_false_true' for {kind} for {config.name}"
        )
    if control.data_type not in _CORRELATION_ID_TYPES:
        raise InvalidArg(
            f"unexpected data type for control {kind} for {config.name}. Allowed data types are TYPE_UINT64, "
            f"TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
        )


def _false_true_values(control: ModelSequenceBatching.Control) -> dict[str, int]:
    """Numbers of values of the three forms, without those that are empty."""
    counts = {
        "int32_false_true": len(control.int32_false_true),
        "fp32_false_true": len(control.fp32_false_true),
        "bool_false_true": len(control.bool_false_true),
    }
    return {name: count for name, count in counts.items() if count}


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
    """Rules that Triton does not check; it crashes at the first request instead."""
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
    """Refuse growable memory for instances that are not on GPUs."""
    if not state.use_growable_memory:
        return
    if not state.use_same_buffer_for_input_output:
        raise InvalidArg(
            f"In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input "
            f"name '{state.input_name}'."
        )
    if any(group.kind in (group.KIND_CPU, group.KIND_MODEL) for group in config.instance_group):
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
