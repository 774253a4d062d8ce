"""Configurations that break a rule, and those that do not: what both servers are asked to load.

Every rule of the model configuration has a case here. The name of a case is the name of its model; the text
of a configuration may say it as `@`.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL = """\
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""

PYTHON = "backend: 'python' "
IO = "input { name: 'A' data_type: TYPE_FP32 dims: [2] } output { name: 'B' data_type: TYPE_FP32 dims: [2] } "
INPUT = "input { name: 'A' data_type: TYPE_FP32 dims: [2] } "
OUTPUT = "output { name: 'B' data_type: TYPE_FP32 dims: [2] } "


@dataclass(frozen=True)
class Case:
    """A model to load.

    Attributes:
        text: its `config.pbtxt`; None for a model without one.
        files: its other files: paths, or paths and contents.
    """

    text: str | None
    files: tuple[str | tuple[str, str], ...] = (("1/model.py", MODEL),)


def python(text: str, *files: str | tuple[str, str]) -> Case:
    return Case(PYTHON + text, (("1/model.py", MODEL), *files))


def a_input(fields: str, more: str = "") -> Case:
    return python(f"{more} input {{ name: 'A' {fields} }} {OUTPUT}")


def an_output(fields: str, more: str = "") -> Case:
    return python(f"{more} {INPUT} output {{ name: 'B' {fields} }}")


def dynamic(fields: str) -> Case:
    return python(f"max_batch_size: 4 dynamic_batching {{ {fields} }} {IO}")


def sequence(fields: str, more: str = "") -> Case:
    return python(f"max_batch_size: 4 sequence_batching {{ {fields} }} {IO} {more}")


def control(fields: str) -> Case:
    return sequence(f"control_input {{ name: 'S' control {{ {fields} }} }}")


def state(fields: str, initial: str) -> Case:
    return sequence(
        f"state {{ input_name: 'i' output_name: 'o' data_type: TYPE_FP32 {fields} "
        f"initial_state {{ {initial} }} }}"
    )


def batch_input(fields: str) -> Case:
    return python(f"max_batch_size: 4 {IO} batch_input {{ {fields} }}")


def batch_output(fields: str) -> Case:
    return python(f"max_batch_size: 4 {IO} batch_output {{ {fields} }}")


def group(fields: str) -> Case:
    return python(f"{IO} instance_group {{ {fields} }}")


def metric(fields: str) -> Case:
    return python(f"{IO} model_metrics {{ metric_control {{ {fields} }} }}")


def warmup(inputs: str, *files: str | tuple[str, str]) -> Case:
    return python(f"{IO} model_warmup {{ name: 'w' batch_size: 1 {inputs} }}", *files)


def warm_input(fields: str) -> str:
    return f"inputs {{ key: 'A' value {{ {fields} }} }}"


def step(model: str = "x", inputs: str = "A", outputs: str = "B") -> str:
    return (
        f"step {{ model_name: '{model}' model_version: -1 input_map {{ key: 'i' value: '{inputs}' }} "
        f"output_map {{ key: 'o' value: '{outputs}' }} }} "
    )


def ensemble(steps: str, more: str = "") -> Case:
    return Case(f"platform: 'ensemble' ensemble_scheduling {{ {steps} }} {IO} {more}", ("1/",))


BROKEN = {
    # What cannot be read at all.
    "unknown_field": python("nonsense: 3"),
    "unknown_field_inside": a_input("dimz: [2]"),
    "unfinished": python("input [ { name: 'A' "),
    "unknown_enum": a_input("data_type: TYPE_FP31 dims: [2]"),
    "number_as_text": python("max_batch_size: '8'"),
    "text_as_number": python("input { name: 3 }"),
    "number_too_large": python("max_batch_size: 4000000000"),
    "negative_unsigned": python("dynamic_batching { max_queue_delay_microseconds: -1 }"),
    "scalar_twice": python("max_batch_size: 1 max_batch_size: 2"),
    "two_schedulers": python("max_batch_size: 4 dynamic_batching {} sequence_batching {}"),
    "unclosed_string": python("parameters { key: 'k"),
    "message_as_scalar": python("version_policy: 3"),
    "json_as_text": Case('{"backend": "python"}'),
    "backend_twice": python("backend: 'onnxruntime'"),
    "byte_order_mark": Case("\ufeffbackend: 'python'"),
    "quoted_enum": python("input { name: 'A' data_type: 'TYPE_INT8' dims: [1] }"),
    "line_break_in_a_string": python("parameters { key: 'a' value { string_value: 'x\ny' } }"),
    # Name, backend, platform, files.
    "other_name": python("name: 'other'"),
    "negative_batch": python("max_batch_size: -1"),
    "unheard_platform": Case("platform: 'x'"),
    "unheard_backend": Case("backend: 'unheard'"),
    "unheard_file": Case("default_model_filename: 'net.onnx'"),
    "platform_of_another": Case("platform: 'pytorch_libtorch' backend: 'onnxruntime'"),
    "platform_missing": Case("backend: 'tensorflow'"),
    "no_backend": Case("", ("1/weights",)),
    "nothing_at_all": Case(None, ("1/",)),
    "no_version": Case(PYTHON, ()),
    "only_zero_padded_version": Case(PYTHON, (("01/model.py", MODEL),)),
    "name_in_two_parts": python("name: 'name_in' '_three_parts'"),
    "specific_none": python("version_policy { specific {} }"),
    "latest_none": python("version_policy { latest { num_versions: 0 } }"),
    "specific_missing": python("version_policy { specific { versions: [7] } }"),
    "missing_runtime": python("runtime: 'libtriton_nothing.so'"),
    "missing_label_file": an_output("data_type: TYPE_FP32 dims: [2] label_filename: 'no.txt'"),
    "missing_agent": python("model_repository_agents { agents { name: 'nothing' } }"),
    "agent_without_name": python("model_repository_agents { agents {} }"),
    # Dynamic batching.
    "preferred_0": dynamic("preferred_batch_size: [0]"),
    "preferred_negative": dynamic("preferred_batch_size: [-2]"),
    "preferred_too_large": dynamic("preferred_batch_size: [2, 9]"),
    "preferred_without_batching": python("dynamic_batching { preferred_batch_size: [1] }"),
    "no_default_level": dynamic("priority_levels: 2"),
    "default_level_too_high": dynamic("priority_levels: 2 default_priority_level: 3"),
    "policy_for_level_3_of_2": dynamic(
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value {} }"
    ),
    "policy_for_level_0": dynamic(
        "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 value {} }"
    ),
    "ordered_levels": dynamic("preserve_ordering: true priority_levels: 2 default_priority_level: 1"),
    "ordered_delay": dynamic(
        "preserve_ordering: true "
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1 }"
    ),
    "ordered_delay_of_a_level": dynamic(
        "preserve_ordering: true priority_levels: 1 default_priority_level: 1 priority_queue_policy "
        "{ key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } }"
    ),
    # Sequence batching.
    "control_without_type": control("kind: CONTROL_SEQUENCE_START"),
    "control_of_two_types": control(
        "kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] fp32_false_true: [0, 1]"
    ),
    "control_of_three_values": control("kind: CONTROL_SEQUENCE_END int32_false_true: [0, 1, 2]"),
    "control_of_one_value": control("kind: CONTROL_SEQUENCE_READY bool_false_true: [false]"),
    "control_without_name": sequence("control_input { control { fp32_false_true: [0, 1] } }"),
    "one_name_two_controls": sequence(
        "control_input { name: 'S' control { fp32_false_true: [0, 1] } }"
        "control_input { name: 'S' control { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1] } }"
    ),
    "two_starts": sequence(
        "control_input { name: 'S' control { fp32_false_true: [0, 1] } }"
        "control_input { name: 'T' control { fp32_false_true: [0, 1] } }"
    ),
    "correlation_id_without_type": control("kind: CONTROL_SEQUENCE_CORRID"),
    "correlation_id_as_float": control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"),
    "correlation_id_as_flag": control(
        "kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 int32_false_true: [0, 1]"
    ),
    "slot_utilization": sequence("direct { minimum_slot_utilization: 1.5 }"),
    "slot_utilization_negative": sequence("direct { minimum_slot_utilization: -0.5 }"),
    "slot_utilization_nan": sequence("direct { minimum_slot_utilization: nan }"),
    "oldest_preferred": sequence("oldest { preferred_batch_size: [9] }"),
    "oldest_preferred_0": sequence("oldest { preferred_batch_size: [0] }"),
    "two_initial_states": state("dims: [1]", "} initial_state {"),
    "initial_state_without_name": state("dims: [1]", "data_type: TYPE_FP32 dims: [1] zero_data: true"),
    "initial_state_of_another_type": state(
        "dims: [1]", "name: 'a' data_type: TYPE_INT32 dims: [1] zero_data: true"
    ),
    "initial_state_of_another_rank": state(
        "dims: [1]", "name: 'a' data_type: TYPE_FP32 dims: [1, 2] zero_data: true"
    ),
    "initial_state_of_another_size": state(
        "dims: [1]", "name: 'a' data_type: TYPE_FP32 dims: [2] zero_data: true"
    ),
    "initial_state_of_any_size": state(
        "dims: [-1]", "name: 'a' data_type: TYPE_FP32 dims: [-1] zero_data: true"
    ),
    "initial_state_without_data": state("dims: [1]", "name: 'a' data_type: TYPE_FP32 dims: [1]"),
    # Response cache and metrics.
    "cached_sequences": sequence("", "response_cache { enable: true }"),
    "cached_streams": python(
        IO + "response_cache { enable: true } model_transaction_policy { decoupled: true }"
    ),
    "metric_control": metric(""),
    "metric_family": metric("metric_identifier {}"),
    "metric_options": metric("metric_identifier { family: 'f' }"),
    "metric_buckets": metric("metric_identifier { family: 'f' } histogram_options {}"),
    # Inputs and outputs.
    "input_without_name": python("input { data_type: TYPE_FP32 dims: [2] }"),
    "input_without_type": a_input("dims: [2]"),
    "input_without_dims": a_input("data_type: TYPE_FP32"),
    "input_of_size_0": a_input("data_type: TYPE_FP32 dims: [0]"),
    "input_of_size_minus_2": a_input("data_type: TYPE_FP32 dims: [-2]"),
    "output_without_name": python("output { data_type: TYPE_FP32 dims: [2] }"),
    "output_without_type": an_output("dims: [2]"),
    "output_without_dims": an_output("data_type: TYPE_FP32"),
    "output_of_size_0": an_output("data_type: TYPE_FP32 dims: [0]"),
    "input_of_no_type": python("input { name: 'A' data_type: TYPE_INVALID dims: [1] }"),
    "input_of_type_77": python("input { name: 'A' data_type: 77 dims: [1] }"),
    "image_of_one_dimension": a_input("data_type: TYPE_FP32 dims: [2] format: FORMAT_NHWC"),
    "image_of_four_dimensions": a_input("data_type: TYPE_FP32 dims: [1, 2, 3, 4] format: FORMAT_NCHW"),
    "reshape_to_another_size": a_input("data_type: TYPE_FP32 dims: [2] reshape { shape: [3] }"),
    "reshape_to_more_wildcards": a_input("data_type: TYPE_FP32 dims: [2, -1] reshape { shape: [-1, -1] }"),
    "reshape_across_a_wildcard": a_input(
        "data_type: TYPE_FP32 dims: [2, -1, 3, -1] reshape { shape: [-1, 2, 3, -1] }"
    ),
    "reshape_of_a_wildcard_to_a_size": a_input("data_type: TYPE_FP32 dims: [-1] reshape { shape: [1] }"),
    "reshape_of_a_size_to_a_wildcard": a_input("data_type: TYPE_FP32 dims: [1] reshape { shape: [-1] }"),
    "reshape_to_0": a_input("data_type: TYPE_FP32 dims: [2] reshape { shape: [0] }"),
    "empty_reshape": a_input("data_type: TYPE_FP32 dims: [1] reshape {}"),
    "empty_reshape_of_two": a_input("data_type: TYPE_FP32 dims: [2] reshape {}", "max_batch_size: 2"),
    "output_reshape": an_output("data_type: TYPE_FP32 dims: [2] reshape { shape: [3] }"),
    "empty_output_reshape": an_output("data_type: TYPE_FP32 dims: [1] reshape {}"),
    "shape_tensor": a_input("data_type: TYPE_INT32 dims: [2] is_shape_tensor: true"),
    "output_shape_tensor": an_output("data_type: TYPE_INT32 dims: [2] is_shape_tensor: true"),
    "non_linear_input": a_input("data_type: TYPE_INT32 dims: [2, 3, 4] is_non_linear_format_io: true"),
    "non_linear_output": an_output("data_type: TYPE_INT32 dims: [2] is_non_linear_format_io: true"),
    # Batch inputs and outputs.
    "batch_input_type": batch_input("target_name: 'c' data_type: TYPE_INT64 source_input: 'A'"),
    "batch_input_from_nowhere": batch_input("target_name: 'c' data_type: TYPE_INT32 source_input: 'Z'"),
    "batch_input_from_two": batch_input("target_name: 'c' data_type: TYPE_INT32 source_input: ['A', 'A']"),
    "batch_input_from_none": batch_input("kind: BATCH_ITEM_SHAPE target_name: 'c' data_type: TYPE_INT32"),
    "batch_output_to_nowhere": batch_output("target_name: 'Z' source_input: 'A'"),
    "batch_output_twice": batch_output("target_name: ['B', 'B'] source_input: 'A'"),
    "batch_output_from_nowhere": batch_output("target_name: 'B' source_input: 'Z'"),
    "batch_output_from_none": batch_output("target_name: 'B'"),
    "batch_output_from_two": batch_output("target_name: 'B' source_input: ['A', 'A']"),
    "batch_output_wrong_twice": batch_output("target_name: ['Z', 'B'] source_input: 'Z'"),
    "batch_output_wrong_in_its_second_block": batch_output(
        "target_name: 'B' source_input: 'A' } batch_output { target_name: 'B'"
    ),
    "batch_input_wrong_twice": batch_input("data_type: TYPE_INT64 source_input: 'Z'"),
    "batch_input_wrong_three_times": batch_input("data_type: TYPE_INT64 source_input: ['Z', 'A']"),
    # Instance groups.
    "group_on_absent_gpus": group("kind: KIND_GPU"),
    "group_on_an_absent_gpu": group("kind: KIND_GPU gpus: [0]"),
    "cpu_group_with_gpus": group("kind: KIND_CPU gpus: [0]"),
    "automatic_group_on_an_absent_gpu": group("gpus: [0]"),
    "model_group_with_gpus": group("kind: KIND_MODEL gpus: [0]"),
    "group_with_profile": group("profile: '0'"),
    # Warmup.
    "warmup_of_any_size": warmup(warm_input("data_type: TYPE_FP32 dims: [-1] zero_data: true")),
    "warmup_without_data": warmup(warm_input("data_type: TYPE_FP32 dims: [2]")),
    "warmup_without_type": warmup(warm_input("dims: [2] zero_data: true")),
    "warmup_of_another_type": warmup(warm_input("data_type: TYPE_INT32 dims: [2] zero_data: true")),
    "warmup_of_another_shape": warmup(warm_input("data_type: TYPE_FP32 dims: [3] zero_data: true")),
    "warmup_without_inputs": warmup(""),
    "warmup_of_another_input": warmup(
        "inputs { key: 'Z' value { data_type: TYPE_FP32 dims: [2] zero_data: true } }"
    ),
    "warmup_missing_file": warmup(warm_input("data_type: TYPE_FP32 dims: [2] input_data_file: 'no'")),
    "warmup_short_file": warmup(
        warm_input("data_type: TYPE_FP32 dims: [2] input_data_file: 'short'"), ("warmup/short", "abc")
    ),
    # Ensembles.
    "ensemble_without_platform": Case(f"ensemble_scheduling {{ {step()} }} {IO}"),
    "ensemble_with_backend": Case(f"backend: 'python' ensemble_scheduling {{ {step()} }} {IO}"),
    "ensemble_with_both": Case(f"{PYTHON} platform: 'ensemble' ensemble_scheduling {{ {step()} }} {IO}"),
    "ensemble_without_scheduling": Case("platform: 'ensemble' " + IO, ("1/",)),
    "ensemble_with_dynamic_batching": ensemble(step(), "dynamic_batching {}"),
    "ensemble_with_negative_batch": ensemble(step(), "max_batch_size: -1"),
    "ensemble_with_groups": ensemble(step(), "instance_group { count: 1 }"),
    "ensemble_with_optimization": ensemble(step(), "optimization {}"),
    "ensemble_with_warmup": ensemble(step(), "model_warmup { name: 'w' }"),
    "ensemble_without_steps": ensemble(""),
    "step_without_model": ensemble(step(model="")),
    "step_without_inputs": ensemble(
        step(outputs="T") + "step { model_name: 'x' output_map { key: 'o' value: 'B' } }"
    ),
    "step_without_outputs": ensemble("step { model_name: 'x' input_map { key: 'i' value: 'A' } }"),
    "tensor_written_twice": ensemble(step() + step()),
    "input_not_used": ensemble(step(inputs="Z")),
    "output_not_used": ensemble(step(outputs="Z")),
    "output_not_written": ensemble(step(outputs="Q") + step(inputs="Z")),
    "output_behind_a_gap": ensemble(step(outputs="Q") + step(inputs="Z", outputs="Y") + step(inputs="Y")),
    "circle_of_steps": ensemble(
        step(outputs="Q")
        + "step { model_name: 'x' input_map { key: 'i' value: 'Y' } output_map { key: 'o' value: 'Z' } }"
        + "step { model_name: 'x' input_map { key: 'i' value: 'Z' } output_map { key: 'o' value: 'Y' } "
        + "output_map { key: 'p' value: 'B' } }"
    ),
    "tensor_left_over": ensemble(
        "step { model_name: 'x' input_map { key: 'i' value: 'A' } output_map { key: 'o' value: 'B' } "
        "output_map { key: 'p' value: 'C' } }"
    ),
}

FATAL = {
    # The real server never answers.
    "missing_model_file": python("default_model_filename: 'other.py'"),
    # The real server ends.
    "batch_output_without_target": batch_output("source_input: 'A'"),
    "no_agents": python("model_repository_agents {}"),
    "warmup_larger_than_a_batch": python(
        f"{IO} model_warmup {{ batch_size: 3 "
        f"{warm_input('data_type: TYPE_FP32 dims: [2] zero_data: true')} }}"
    ),
}
"""What only ours can be asked."""

GOOD = {
    # Little or nothing given.
    "no_configuration": Case(None),
    "empty_configuration": Case(""),
    "only_a_backend": python(""),
    "own_name": python("name: '@'"),
    "free_platform": python("platform: 'anything'"),
    "inputs_and_outputs": python(IO),
    "comments": python(f"# ü\n{IO} # the end"),
    "lists_in_brackets": python(
        "input [ { name: 'A', data_type: TYPE_INT8, dims: [ 1 ] }, "
        "{ name: 'B'; data_type: 2; dims: 3 dims: 4 } ]"
    ),
    "angle_brackets_and_spare_colons": python(
        "version_policy: { all: {} } input: < name: 'A' data_type: TYPE_INT8 dims: [1] >"
    ),
    "hexadecimal_number": python("max_batch_size: 0x10"),
    "octal_number": python("max_batch_size: 010"),
    "largest_number": python("max_batch_size: 2147483647"),
    "letter_for_true": python("model_transaction_policy { decoupled: t }"),
    "capital_true": python("model_transaction_policy { decoupled: True }"),
    "map_entry_twice": python(
        "parameters { key: 'a' value { string_value: '1' } } "
        "parameters { key: 'a' value { string_value: '2' } }"
    ),
    "empty_keys": python(
        "parameters { key: '' value { string_value: 'x' } } metric_tags { key: '' value: 'x' }"
    ),
    "escapes": python("parameters { key: 'a' value { string_value: 'x\\ny\\x41\\u00e9\\042' } }"),
    "several_versions": Case(
        PYTHON + "version_policy { all {} }", (("1/model.py", MODEL), ("3/model.py", MODEL))
    ),
    "version_0": Case(PYTHON, (("0/model.py", MODEL),)),
    "latest_2": python("version_policy { latest { num_versions: 2 } }", ("2/model.py", MODEL)),
    "specific_one": python("version_policy { specific { versions: [1, 9] } }", ("2/model.py", MODEL)),
    "empty_policy": python("version_policy {}"),
    "other_file": python("default_model_filename: 'other.py'", ("1/other.py", MODEL)),
    "files_per_device": python("cc_model_filenames { key: '8.0' value: 'm80.py' }"),
    # Inputs and outputs.
    "every_type": python(
        " ".join(
            f"input {{ name: '{name}' data_type: TYPE_{name} dims: [1] }}"
            for name in (
                [
                    "BOOL",
                    "UINT8",
                    "UINT16",
                    "UINT32",
                    "UINT64",
                    "INT8",
                    "INT16",
                    "INT32",
                    "INT64",
                    "FP16",
                    "FP32",
                    "FP64",
                    "STRING",
                    "BF16",
                ]
            )
        )
    ),
    "any_size": a_input("data_type: TYPE_FP32 dims: [-1, 3, -1]"),
    "image": a_input("data_type: TYPE_UINT8 dims: [3, 224, 224] format: FORMAT_NCHW"),
    "optional_and_ragged": a_input(
        "data_type: TYPE_FP32 dims: [-1] optional: true allow_ragged_batch: true", "max_batch_size: 4"
    ),
    "reshaped": a_input("data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 2] }"),
    "reshaped_around_wildcards": a_input(
        "data_type: TYPE_FP32 dims: [2, -1, 6] reshape { shape: [2, -1, 3, 2] }"
    ),
    "reshaped_to_nothing": a_input("data_type: TYPE_FP32 dims: [1] reshape {}", "max_batch_size: 2"),
    "reshaped_output": an_output("data_type: TYPE_FP32 dims: [4] reshape { shape: [1, 4] }"),
    "labels": python(
        "output { name: 'B' data_type: TYPE_FP32 dims: [2] label_filename: 'labels.txt' }",
        ("labels.txt", "cat\ndog\n"),
    ),
    "input_twice": python(INPUT * 2),
    "batch_inputs": batch_input(
        "kind: BATCH_MAX_ELEMENT_COUNT_AS_SHAPE target_name: 'c' data_type: TYPE_FP32 source_input: 'A'"
    ),
    "batch_outputs": batch_output("target_name: 'B' source_input: 'A'"),
    "batch_input_without_target": batch_input("data_type: TYPE_INT32 source_input: 'A'"),
    "batch_input_of_two_targets": batch_input(
        "target_name: ['a', 'b'] data_type: TYPE_INT32 source_input: 'A'"
    ),
    "batch_outputs_of_one_target": batch_output(
        "target_name: 'B' source_input: 'A' } batch_output { target_name: 'B' source_input: 'A'"
    ),
    # Batching.
    "dynamic": dynamic(""),
    "dynamic_without_batching": python("dynamic_batching {}" + IO),
    "dynamic_in_full": dynamic(
        "preferred_batch_size: [2, 4] max_queue_delay_microseconds: 18446744073709551615 "
        "priority_levels: 3 default_priority_level: 2 "
        "default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 "
        "allow_timeout_override: true max_queue_size: 7 } "
        "priority_queue_policy { key: 1 value { max_queue_size: 1 } } "
        "priority_queue_policy { key: 3 value { timeout_action: REJECT } }"
    ),
    "ordered": dynamic("preserve_ordering: true"),
    "ordered_delay_without_timeout": dynamic(
        "preserve_ordering: true default_queue_policy { timeout_action: DELAY }"
    ),
    "levels_without_number": dynamic("default_priority_level: 5"),
    "delay_without_levels": dynamic(
        "priority_queue_policy { key: 1 value { timeout_action: DELAY default_timeout_microseconds: 1 } }"
    ),
    # Sequences.
    "sequences": sequence(""),
    "sequences_direct": sequence("direct { max_queue_delay_microseconds: 3 minimum_slot_utilization: 0.3 }"),
    "sequences_oldest": sequence(
        "max_sequence_idle_microseconds: 5000000 "
        "oldest { max_candidate_sequences: 4 preserve_ordering: true }"
    ),
    "sequence_controls": sequence(
        "control_input { name: 'S' control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] } } "
        "control_input { name: 'R' control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [0, 1.5] } } "
        "control_input { name: 'E' control { kind: CONTROL_SEQUENCE_END bool_false_true: [false, true] } } "
        "control_input { name: 'C' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }"
    ),
    "sequence_states": state("dims: [-1, 2]", "name: 'a' data_type: TYPE_FP32 dims: [1, 2] zero_data: true"),
    "iterative": sequence("iterative_sequence: true oldest {}"),
    "slot_utilization_0": sequence("direct { minimum_slot_utilization: 0 }"),
    "control_input_without_control": sequence("control_input { name: 'S' }"),
    "candidates_negative": sequence("oldest { max_candidate_sequences: -3 }"),
    "empty_state": sequence("state {}"),
    # Instances and optimization.
    "two_instances": group("count: 2"),
    "named_group": group("name: 'mine' kind: KIND_CPU count: 1"),
    "two_groups": group("count: 1 } instance_group { kind: KIND_MODEL count: 1"),
    "negative_count": group("count: -1"),
    "passive_group": group("count: 1 } instance_group { passive: true"),
    "rate_limited": group(
        "rate_limiter { resources [ { name: 'R' count: 2 }, { name: 'G' global: true count: 1 } ] "
        "priority: 2 }"
    ),
    "secondary_devices": group("secondary_devices { kind: KIND_NVDLA device_id: 1 }"),
    "unheard_host_policy": group("host_policy: 'nowhere'"),
    "equal_group_names": group("name: 'a' count: 1 } instance_group { name: 'a' count: 1"),
    "unnamed_resource": group("rate_limiter { resources { count: 1 } }"),
    "instances_of_the_model": group("kind: KIND_MODEL count: 2"),
    "graph_spec_of_any_batch": python("optimization { cuda { graph_spec { batch_size: -1 } } }"),
    "unheard_accelerator": python(
        "optimization { execution_accelerators { gpu_execution_accelerator { name: 'nonsense' } } }"
    ),
    "optimized": python(
        IO + "optimization { graph { level: -1 } priority: PRIORITY_MAX "
        "cuda { graphs: true busy_wait_events: true output_copy_stream: true } "
        "execution_accelerators { cpu_execution_accelerator { name: 'openvino' "
        "parameters { key: 'a' value: 'b' } } } "
        "input_pinned_memory { enable: false } gather_kernel_buffer_threshold: 9 eager_batching: true }"
    ),
    "graph_specs": python(
        "max_batch_size: 8 optimization { cuda { graph_spec { batch_size: 4 "
        "input { key: 'A' value { dim: [2] } } graph_lower_bound { batch_size: 1 "
        "input { key: 'A' value { dim: [1] } } } } } }" + IO
    ),
    # The rest.
    "parameters": python(
        "parameters { key: 'k' value { string_value: 'v' } } parameters { key: 'e' value {} }"
    ),
    "metric_tags": python("metric_tags { key: 'team' value: 'red' }"),
    "decoupled": python("model_transaction_policy { decoupled: true }" + IO),
    "coupled": python("model_transaction_policy {}" + IO),
    "cache_off": python("response_cache { enable: false }" + IO),
    "cache_on": python("response_cache { enable: true }" + IO),
    "cache_on_with_batching": dynamic("} response_cache { enable: true"),
    "operations": python("model_operations { op_library_filename: ['a.so', 'b.so'] }"),
    "empty_metrics": python("model_metrics {}"),
    "histogram": metric("metric_identifier { family: 'f' } histogram_options { buckets: [1, 2.5, 100] }"),
    "warm_zeros": warmup(warm_input("data_type: TYPE_FP32 dims: [2] zero_data: true")),
    "warm_random": warmup(warm_input("data_type: TYPE_FP32 dims: [2] random_data: true") + "count: 2"),
    "warm_file": warmup(
        warm_input("data_type: TYPE_FP32 dims: [2] input_data_file: 'long'"), ("warmup/long", "12345678")
    ),
    "warm_false": warmup(warm_input("data_type: TYPE_FP32 dims: [2] zero_data: false")),
}

CASES = BROKEN | GOOD
"""What both servers are asked."""

STRICT = {
    name: CASES[name]
    for name in [
        "no_configuration",
        "nothing_at_all",
        "empty_configuration",
        "only_a_backend",
        "inputs_and_outputs",
        "dynamic",
        "labels",
        "input_without_name",
        "input_without_dims",
        "output_without_type",
        "output_of_size_0",
        "reshape_to_0",
        "shape_tensor",
        "batch_input_type",
        "batch_output_twice",
        "group_on_absent_gpus",
        "cpu_group_with_gpus",
        "group_with_profile",
        "warmup_of_any_size",
        "missing_label_file",
        "unheard_backend",
        "no_backend",
        "no_version",
        "negative_batch",
        "preferred_0",
    ]
}
"""What both are asked once more with auto-complete disabled."""
