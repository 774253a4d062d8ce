"""Each number of a configuration that could size something, as small and as large as its type allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .cases import IO, Case, dynamic, group, python, sequence, state, warm_input

INT32 = (0, -1, -(2**31), 2**31 - 1)
UINT32 = (0, 2**31 - 1, 2**32 - 1)
INT64 = (0, -2, -(2**63), 2**63 - 1)
UINT64 = (0, 2**63 - 1, 2**64 - 1)
ZEROS = "data_type: TYPE_FP32 zero_data: true dims:"
_ANY = "data_type: TYPE_FP32 dims: [-1]"
OF_ANY_SIZE = f"input {{ name: 'A' {_ANY} }} output {{ name: 'B' {_ANY} }}"


@dataclass(frozen=True)
class Extreme:
    """One number.

    Attributes:
        values: what it is set to.
        case: the configuration that sets it.
        refusals: which of the values are refused, and what the real server says then; `@` is the model.
        ours: the same where ours says something else, or is the only one that says anything.
        fatal: values over which the real server ends, because it makes so many of something.
    """

    values: tuple[int, ...]
    case: Callable[[int], Case]
    refusals: dict[int, str]
    ours: dict[int, str]
    fatal: tuple[int, ...] = ()


def _extreme(
    values: tuple[int, ...],
    case: Callable[[int], Case],
    refusals: dict[int, str] | None = None,
    ours: dict[int, str] | None = None,
    fatal: tuple[int, ...] = (),
) -> Extreme:
    return Extreme(values, case, refusals or {}, (refusals or {}) | (ours or {}), fatal)


_NEGATIVE_BATCH = dict.fromkeys(INT32[1:3], "'max_batch_size' must be non-negative value for @")
_DIM = dict.fromkeys(
    INT64[:3],
    "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for @",
)
_STATE_DIM = dict.fromkeys(
    INT64[1:3],
    "sequence batching state 'i' dimension must be integer >= 0, or -1 to indicate a variable-size "
    "dimension for @",
)
_STATE_SIZE = {2**63 - 1: "state 'i' does not fit into memory, got dims [9223372036854775807]"}
_ALL_LEVELS = f"priority_levels: {2**64 - 1} default_priority_level: "


def _both(fields: str) -> Case:
    return python(
        f"input {{ name: 'A' data_type: TYPE_FP32 {fields} }} "
        f"output {{ name: 'B' data_type: TYPE_FP32 {fields} }}"
    )


EXTREMES = {
    "latest": _extreme(
        UINT32,
        lambda n: python(f"version_policy {{ latest {{ num_versions: {n} }} }} {IO}"),
        {0: "at least one version must be available under the version policy of model '@'"},
    ),
    "specific": _extreme(
        INT64, lambda n: python(f"version_policy {{ specific {{ versions: [1, {n}] }} }} {IO}")
    ),
    "max_batch_size": _extreme(INT32, lambda n: python(f"max_batch_size: {n} {IO}"), _NEGATIVE_BATCH),
    "dims": _extreme(INT64, lambda n: _both(f"dims: [{n}]"), _DIM),
    "reshape": _extreme(INT64, lambda n: _both(f"dims: [{n}] reshape {{ shape: [{n}] }}"), _DIM),
    "preferred": _extreme(
        INT32,
        lambda n: dynamic(f"preferred_batch_size: [{n}]"),
        dict.fromkeys(INT32[:3], "dynamic batching preferred size must be positive for @")
        | {2**31 - 1: "dynamic batching preferred size must be <= max batch size for @"},
    ),
    "preferred_as_large": _extreme(
        INT32[3:],
        lambda n: python(f"max_batch_size: {n} dynamic_batching {{ preferred_batch_size: [{n}] }} {IO}"),
    ),
    "delay": _extreme(UINT64, lambda n: dynamic(f"max_queue_delay_microseconds: {n}")),
    "levels": _extreme(UINT64, lambda n: dynamic(f"priority_levels: {n} default_priority_level: 1")),
    "default_level": _extreme(
        UINT64,
        lambda n: dynamic(f"{_ALL_LEVELS}{n}"),
        {0: f"default priority level must be in range [1, {2**64 - 1}] for @"},
    ),
    "level_policy": _extreme(
        UINT64,
        lambda n: dynamic(
            f"{_ALL_LEVELS} 1 priority_queue_policy {{ key: {n} value {{ max_queue_size: 1 }} }}"
        ),
        {0: f"priority queue policy must have priority level in range [1, {2**64 - 1}] for @"},
    ),
    "timeout": _extreme(
        UINT64, lambda n: dynamic(f"default_queue_policy {{ default_timeout_microseconds: {n} }}")
    ),
    "queue_size": _extreme(UINT32, lambda n: dynamic(f"default_queue_policy {{ max_queue_size: {n} }}")),
    "idle": _extreme(UINT64, lambda n: sequence(f"max_sequence_idle_microseconds: {n}")),
    "direct_delay": _extreme(
        UINT64,
        lambda n: sequence(f"direct {{ max_queue_delay_microseconds: {n} minimum_slot_utilization: 1.0 }}"),
    ),
    "oldest_delay": _extreme(
        UINT64,
        lambda n: sequence(f"oldest {{ max_queue_delay_microseconds: {n} max_candidate_sequences: 4 }}"),
    ),
    "candidates": _extreme(
        INT32, lambda n: sequence(f"oldest {{ max_candidate_sequences: {n} }}"), fatal=INT32[3:]
    ),
    "direct_slots": _extreme(
        INT32,
        lambda n: python(f"max_batch_size: {n} sequence_batching {{ direct {{}} }} {IO}"),
        _NEGATIVE_BATCH,
        fatal=INT32[3:],
    ),
    "state_dims": _extreme(
        INT64,
        lambda n: sequence(f"state {{ input_name: 'i' output_name: 'o' data_type: TYPE_FP32 dims: [{n}] }}"),
        ours=_STATE_DIM | _STATE_SIZE,
    ),
    "initial_state_dims": _extreme(
        INT64,
        lambda n: state(f"dims: [{n}]", f"name: 'n' {ZEROS} [{n}]"),
        ours=_STATE_DIM | _STATE_SIZE,
        fatal=(INT64[1], INT64[3]),
    ),
    "instance_count": _extreme(
        INT32,
        lambda n: group(f"count: {n} kind: KIND_CPU"),
        ours={2**31 - 1: "instance group @_0 of model @ makes 2147483647 instances"},
        fatal=INT32[3:],
    ),
    "gpus": _extreme(
        INT32,
        lambda n: group(f"kind: KIND_GPU gpus: [{n}]"),
        {n: f"instance group @_0 of model @ specifies invalid or unsupported gpu id {n}." for n in INT32},
    ),
    "resource": _extreme(
        UINT32,
        lambda n: group(f"kind: KIND_CPU rate_limiter {{ resources {{ name: 'r' count: {n} }} }}"),
    ),
    "priority": _extreme(UINT32, lambda n: group(f"kind: KIND_CPU rate_limiter {{ priority: {n} }}")),
    "secondary": _extreme(
        INT64, lambda n: group(f"kind: KIND_CPU secondary_devices {{ kind: KIND_NVDLA device_id: {n} }}")
    ),
    "warmup_rows": _extreme(
        UINT32,
        lambda n: python(
            f"max_batch_size: {2**31 - 1} {IO} "
            f"model_warmup {{ name: 'w' batch_size: {n} {warm_input(f'{ZEROS} [2]')} }}"
        ),
        ours={
            n: f"failed to run warmup sample 'w': batch size {n} for '@_0', max allowed is "
            for n in UINT32[1:]
        },
        fatal=UINT32[1:],
    ),
    "warmup_dims": _extreme(
        INT64,
        lambda n: python(
            f"{OF_ANY_SIZE} model_warmup {{ name: 'w' batch_size: 1 {warm_input(f'{ZEROS} [{n}]')} }}"
        ),
        ours=dict.fromkeys(
            INT64[1:3],
            "warmup setting expects all variable-size dimensions are specified for input 'A'",
        )
        | {2**63 - 1: "warmup setting expects input 'A' to fit into memory, got dims [9223372036854775807]"},
        fatal=INT64[1:],
    ),
    "graph_level": _extreme(INT32, lambda n: python(f"optimization {{ graph {{ level: {n} }} }} {IO}")),
    "graph_spec": _extreme(
        INT32, lambda n: python(f"optimization {{ cuda {{ graph_spec {{ batch_size: {n} }} }} }} {IO}")
    ),
    "gather": _extreme(
        UINT32, lambda n: python(f"optimization {{ gather_kernel_buffer_threshold: {n} }} {IO}")
    ),
}


def name_of(field: str, value: int) -> str:
    """The model that sets a number to a value."""
    return f"{field}_{value}".replace("-", "minus_")
