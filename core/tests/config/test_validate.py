"""Broken configurations and the words they are refused with.

The texts are what tritonserver 2.51 answered to the same configuration, except where a comment says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.config.load import parse_config
from tritonpy.config.validate import validate_complete, validate_files, validate_structure
from tritonpy.errors import Internal, InvalidArg
from tritonpy.protos import ModelConfig

Settle = Any  # Any: the fixture's function takes options

IO = "input { name: 'A' data_type: TYPE_FP32 dims: [2] } output { name: 'B' data_type: TYPE_FP32 dims: [2] } "
OUTPUT = "output { name: 'B' data_type: TYPE_FP32 dims: [2] } "
CORRID_TYPES = "Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING"
NO_FALSE_TRUE = "either 'int32_false_true', 'fp32_false_true' or 'bool_false_true'"
DELAY_REFUSED = "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m"
DELAYING = "{ timeout_action: DELAY default_timeout_microseconds: 1 }"


def a_input(fields: str) -> str:
    return f"input {{ name: 'A' {fields} }} {OUTPUT}"


def an_output(fields: str) -> str:
    return f"input {{ name: 'A' data_type: TYPE_FP32 dims: [2] }} output {{ name: 'B' {fields} }}"


def dynamic(fields: str) -> str:
    return f"max_batch_size: 4 dynamic_batching {{ {fields} }} {IO}"


def sequence(fields: str) -> str:
    return f"max_batch_size: 4 sequence_batching {{ {fields} }} {IO}"


def control(fields: str) -> str:
    return sequence(f"control_input {{ name: 'S' control {{ {fields} }} }}")


def state(fields: str, initial: str) -> str:
    return sequence(
        f"state {{ input_name: 'i' output_name: 'o' data_type: TYPE_FP32 {fields} "
        f"initial_state {{ {initial} }} }}"
    )


def step(model: str = "x", inputs: str = "A", outputs: str = "B") -> str:
    return (
        f"step {{ model_name: '{model}' model_version: -1 input_map {{ key: 'i' value: '{inputs}' }} "
        f"output_map {{ key: 'o' value: '{outputs}' }} }}"
    )


def ensemble(steps: str, more: str = "") -> str:
    return f"platform: 'ensemble' ensemble_scheduling {{ {steps} }} {IO} {more}"


PYTHON = "backend: 'python' "

STRUCTURE = {
    "another name": (
        PYTHON + "name: 'other'",
        "unexpected directory name 'm' for model 'other', directory name must equal model name",
    ),
    "an ensemble by another name and without steps": (
        "name: 'other' platform: 'ensemble' " + IO,
        "ensemble scheduling must be set for ensemble other whose platform is ensemble",
    ),
    "another name and a negative batch": (
        "name: 'other' max_batch_size: -1 " + PYTHON + IO,
        "'max_batch_size' must be non-negative value for other",
    ),
    "negative batch": (PYTHON + "max_batch_size: -1", "'max_batch_size' must be non-negative value for m"),
    "unheard platform": ("platform: 'x'", "unexpected platform type 'x' for m"),
    "unheard file": ("default_model_filename: 'net.onnx'", "unexpected platform type '' for m"),
    "platform of another": (
        "platform: 'pytorch_libtorch' backend: 'onnxruntime'",
        "unexpected 'platform' and 'backend' pair, got:pytorch_libtorch, onnxruntime",
    ),
    "no platform": ("backend: 'tensorflow'", "unexpected 'platform' and 'backend' pair, got:, tensorflow"),
    # dynamic batching
    "preferred 0": (
        PYTHON + dynamic("preferred_batch_size: [0]"),
        "dynamic batching preferred size must be positive for m",
    ),
    "preferred too large": (
        PYTHON + dynamic("preferred_batch_size: [2, 9]"),
        "dynamic batching preferred size must be <= max batch size for m",
    ),
    "preferred without batching": (
        PYTHON + "dynamic_batching { preferred_batch_size: [1] }",
        "dynamic batching preferred size must be <= max batch size for m",
    ),
    "no default level": (
        PYTHON + dynamic("priority_levels: 2"),
        "default priority level must be in range [1, 2] for m",
    ),
    "default level too high": (
        PYTHON + dynamic("priority_levels: 2 default_priority_level: 3"),
        "default priority level must be in range [1, 2] for m",
    ),
    "policy for level 3 of 2": (
        PYTHON + dynamic("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 }"),
        "priority queue policy must have priority level in range [1, 2] for m",
    ),
    "policy for level 0": (
        PYTHON + dynamic("priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 0 }"),
        "priority queue policy must have priority level in range [1, 2] for m",
    ),
    "ordered levels": (
        PYTHON + dynamic("preserve_ordering: true priority_levels: 2 default_priority_level: 1"),
        "Only one priority level is allowed when 'preserve_ordering' is true for m",
    ),
    "ordered delay": (
        PYTHON + dynamic(f"preserve_ordering: true default_queue_policy {DELAYING}"),
        DELAY_REFUSED,
    ),
    "ordered delay of a level": (
        PYTHON + dynamic(f"preserve_ordering: true priority_queue_policy {{ key: 1 value {DELAYING} }}"),
        DELAY_REFUSED,
    ),
    # sequence batching
    "control without type": (
        PYTHON + control("kind: CONTROL_SEQUENCE_START"),
        f"sequence batching must specify {NO_FALSE_TRUE} for CONTROL_SEQUENCE_START for m",
    ),
    "control with two types": (
        PYTHON + control("kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] fp32_false_true: [0, 1]"),
        "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and "
        "'bool_false_true' for CONTROL_SEQUENCE_START for m",
    ),
    "control with three values": (
        PYTHON + control("kind: CONTROL_SEQUENCE_END int32_false_true: [0, 1, 2]"),
        "sequence batching control 'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_END "
        "for m",
    ),
    "control with one value": (
        PYTHON + control("kind: CONTROL_SEQUENCE_READY bool_false_true: [false]"),
        "sequence batching control 'bool_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_READY "
        "for m",
    ),
    "control without name": (
        PYTHON + sequence("control_input { control { fp32_false_true: [0, 1] } }"),
        "sequence batching control tensor must have a name for m",
    ),
    "one name, two controls": (
        PYTHON
        + sequence(
            "control_input { name: 'S' control { fp32_false_true: [0, 1] } }"
            "control_input { name: 'S' control { kind: CONTROL_SEQUENCE_END fp32_false_true: [0, 1] } }"
        ),
        "sequence batching control tensor 'S' is specified for multiple control kinds for m",
    ),
    "two starts": (
        PYTHON
        + sequence(
            "control_input { name: 'S' control { fp32_false_true: [0, 1] } }"
            "control_input { name: 'T' control { fp32_false_true: [0, 1] } }"
        ),
        "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m",
    ),
    "correlation id without type": (
        PYTHON + control("kind: CONTROL_SEQUENCE_CORRID"),
        f"unexpected data type for control CONTROL_SEQUENCE_CORRID for m. {CORRID_TYPES}",
    ),
    "correlation id as float": (
        PYTHON + control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32"),
        f"unexpected data type for control CONTROL_SEQUENCE_CORRID for m. {CORRID_TYPES}",
    ),
    "correlation id as flag": (
        PYTHON + control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 int32_false_true: [0, 1]"),
        f"sequence batching must not specify {NO_FALSE_TRUE} for CONTROL_SEQUENCE_CORRID for m",
    ),
    "slot utilization": (
        PYTHON + sequence("direct { minimum_slot_utilization: 1.5 }"),
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
    ),
    "slot utilization that is no number": (
        PYTHON + sequence("direct { minimum_slot_utilization: nan }"),  # the real server takes it
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
    ),
    "oldest preferred": (
        PYTHON + sequence("oldest { preferred_batch_size: [9] }"),
        "sequence batching preferred batch size must be <= max batch size for m",
    ),
    "oldest preferred 0": (
        PYTHON + sequence("oldest { preferred_batch_size: [0] }"),
        "sequence batching preferred batch size must be positive for m",
    ),
    # response cache
    "cached sequences": (
        PYTHON + sequence("") + "response_cache { enable: true }",
        "Response Cache does not currently support model m with sequence batching scheduler. Please disable "
        "the response cache.",
    ),
    "cached streams": (
        PYTHON + "response_cache { enable: true } model_transaction_policy { decoupled: true }",
        "Response Cache does not currently support model m with 'decoupled' transaction policy. Please "
        "disable the response cache.",
    ),
    # metrics: newer than 2.51
    "metric control": (
        PYTHON + "model_metrics { metric_control {} }",
        "metric control must specify 'metric_identifier'",
    ),
    "metric family": (
        PYTHON + "model_metrics { metric_control { metric_identifier {} } }",
        "metric identifier must specify non-empty 'family'",
    ),
    "metric options": (
        PYTHON + "model_metrics { metric_control { metric_identifier { family: 'f' } } }",
        "metric control must specify 'histogram_options'",
    ),
    "metric buckets": (
        PYTHON
        + "model_metrics { metric_control { metric_identifier { family: 'f' } histogram_options {} } }",
        "histogram options must specify non-empty 'buckets'",
    ),
    # ensembles
    "ensemble without platform": (
        f"ensemble_scheduling {{ {step()} }} {IO}",
        "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
    ),
    "ensemble with backend": (
        f"backend: 'python' ensemble_scheduling {{ {step()} }} {IO}",
        "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
    ),
    "ensemble with both": (
        PYTHON + ensemble(step()),
        "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
    ),
    "ensemble without scheduling": (
        "platform: 'ensemble' " + IO,
        "ensemble scheduling must be set for ensemble m whose platform is ensemble",
    ),
    "ensemble with groups": (
        ensemble(step(), "instance_group { count: 1 }"),
        "instance group should not be specified for ensemble 'm'",
    ),
    "ensemble with optimization": (
        ensemble(step(), "optimization {}"),
        "optimization should not be specified for ensemble 'm'",
    ),
    "ensemble with warmup": (
        ensemble(step(), "model_warmup { name: 'w' }"),
        "model_warmup can not be specified for ensemble 'm'",
    ),
    "ensemble without steps": (ensemble(""), "must specify 'step' for ensemble 'm'"),
    "step without model": (ensemble(step(model="")), "must specify 'model_name' in step 0 of ensemble 'm'"),
    "step without inputs": (
        ensemble(step(outputs="T") + "step { model_name: 'x' output_map { key: 'o' value: 'B' } }"),
        "must specify 'input_map' in step 1 of ensemble 'm'",
    ),
    "step without outputs": (
        ensemble("step { model_name: 'x' input_map { key: 'i' value: 'A' } }"),
        "must specify 'output_map' in step 0 of ensemble 'm'",
    ),
    "tensor written twice": (
        ensemble(step() + step()),
        "ensemble tensor 'B' can appear in an output map only once for ensemble 'm' step 1",
    ),
    "input not used": (ensemble(step(inputs="Z")), "ensemble input 'A' for ensemble m' is not used"),
    "output not used": (ensemble(step(outputs="Z")), "ensemble output 'B' for ensemble m' is not used"),
    "output not written": (
        ensemble(step(outputs="Q") + step(inputs="Z")),
        "output 'B' for ensemble 'm' is not written: at least one of its depending tensors, 'Z', is not "
        "connected",
    ),
    "output behind a gap": (
        ensemble(step(outputs="Q") + step(inputs="Z", outputs="Y") + step(inputs="Y")),
        "output 'B' for ensemble 'm' is not written: at least one of its depending tensors, 'Z', is not "
        "connected",
    ),
    "circle of steps": (
        ensemble(
            step(outputs="Q")
            + "step { model_name: 'x' input_map { key: 'i' value: 'Y' } output_map { key: 'o' value: 'Z' } }"
            + "step { model_name: 'x' input_map { key: 'i' value: 'Z' } output_map { key: 'o' value: 'Y' } "
            + "output_map { key: 'p' value: 'B' } }"
        ),
        "output 'B' for ensemble 'm' is not written: at least one of its depending tensors, 'Y', is not "
        "connected",
    ),
    "tensor left over": (
        ensemble(
            "step { model_name: 'x' input_map { key: 'i' value: 'A' } output_map { key: 'o' value: 'B' } "
            "output_map { key: 'p' value: 'C' } }"
        ),
        "ensemble tensor 'C' is unused in ensemble 'm'",
    ),
}

COMPLETE = {
    "input without name": (
        "input { data_type: TYPE_FP32 dims: [2] }",
        "model input must specify 'name' for m",
    ),
    "input without type": (a_input("dims: [2]"), "model input 'A' must specify 'data_type' for m"),
    "input without dims": (a_input("data_type: TYPE_FP32"), "model input 'A' must specify 'dims' for m"),
    "input of size 0": (
        a_input("data_type: TYPE_FP32 dims: [0]"),
        "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    "input of size -2": (
        a_input("data_type: TYPE_FP32 dims: [-2]"),
        "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    "output without name": (
        "output { data_type: TYPE_FP32 dims: [2] }",
        "model output must specify 'name' for m",
    ),
    "output without type": (an_output("dims: [2]"), "model output 'B' must specify 'data_type' for m"),
    "output without dims": (an_output("data_type: TYPE_FP32"), "model output 'B' must specify 'dims' for m"),
    "output of size 0": (
        an_output("data_type: TYPE_FP32 dims: [0]"),
        "model output 'B' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    "image of one dimension": (
        a_input("data_type: TYPE_FP32 dims: [2] format: FORMAT_NHWC"),
        "model input NHWC/NCHW require 3 dims for m",
    ),
    "image of four dimensions": (
        a_input("data_type: TYPE_FP32 dims: [1, 2, 3, 4] format: FORMAT_NCHW"),
        "model input NHWC/NCHW require 3 dims for m",
    ),
    "reshape to another size": (
        a_input("data_type: TYPE_FP32 dims: [2] reshape { shape: [3] }"),
        "model input 'A' has different size for dims and reshape for m",
    ),
    "reshape to more wildcards": (
        a_input("data_type: TYPE_FP32 dims: [2, -1] reshape { shape: [-1, -1] }"),
        "model input 'A' has different number of variable-size dimensions for dims and reshape for m",
    ),
    "reshape across a wildcard": (
        a_input("data_type: TYPE_FP32 dims: [2, -1, 3, -1] reshape { shape: [-1, 2, 3, -1] }"),
        "model input 'A' has different size for dims and reshape for m",
    ),
    "reshape of a wildcard to a size": (
        a_input("data_type: TYPE_FP32 dims: [-1] reshape { shape: [1] }"),
        "model input 'A' has different size for dims and reshape for m",
    ),
    "reshape to 0": (
        a_input("data_type: TYPE_FP32 dims: [2] reshape { shape: [0] }"),
        "model input 'A' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size "
        "dimension for m",
    ),
    "empty reshape": (
        a_input("data_type: TYPE_FP32 dims: [1] reshape {}"),
        "model input 'A' cannot have empty reshape for non-batching model as scalar tensors are not "
        "supported for m",
    ),
    "empty reshape of two": (
        "max_batch_size: 2 " + a_input("data_type: TYPE_FP32 dims: [2] reshape {}"),
        "model input 'A' has different size for dims and reshape for m",
    ),
    "output reshape": (
        an_output("data_type: TYPE_FP32 dims: [2] reshape { shape: [3] }"),
        "model output 'B' has different size for dims and reshape for m",
    ),
    "empty output reshape": (
        an_output("data_type: TYPE_FP32 dims: [1] reshape {}"),
        "model output 'B' cannot have empty reshape for non-batching model as scalar tensors are not "
        "supported for m",
    ),
    "input twice": (
        "input [{ name: 'A' data_type: TYPE_FP32 dims: [2] }, { name: 'A' data_type: TYPE_INT8 dims: [3] }]",
        "model input 'A' is specified 2 times for m, expected once",
    ),
    "output twice": (IO + OUTPUT, "model output 'B' is specified 2 times for m, expected once"),
    "shape tensor": (
        a_input("data_type: TYPE_INT32 dims: [2] is_shape_tensor: true"),
        "shape tensors are only supported for TensorRT platform for m",
    ),
    "output shape tensor": (
        an_output("data_type: TYPE_INT32 dims: [2] is_shape_tensor: true"),
        "shape tensors are only supported for TensorRT platform for m",
    ),
    "non-linear input": (
        a_input("data_type: TYPE_INT32 dims: [2, 3, 4] is_non_linear_format_io: true"),
        "Non-linear IO format is only supported for the TensorRT platform for m",
    ),
    "non-linear output": (
        an_output("data_type: TYPE_INT32 dims: [2] is_non_linear_format_io: true"),
        "Non-linear IO format is only supported for the TensorRT platform for m",
    ),
    "batch input type": (
        IO + "batch_input { target_name: 'c' data_type: TYPE_INT64 source_input: 'A' }",
        "batch input data type must be TYPE_INT32 or TYPE_FP32 for m",
    ),
    "batch input from nowhere": (
        IO + "batch_input { target_name: 'c' data_type: TYPE_INT32 source_input: 'Z' }",
        "unknown source input name 'Z' for m",
    ),
    "batch input from two": (
        IO + "batch_input { target_name: 'c' data_type: TYPE_INT32 source_input: ['A', 'A'] }",
        "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 2 for m",
    ),
    "batch input from none": (
        IO + "batch_input { kind: BATCH_ITEM_SHAPE target_name: 'c' data_type: TYPE_INT32 }",
        "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 0 for m",
    ),
    "batch output to nowhere": (
        IO + "batch_output { target_name: 'Z' source_input: 'A' }",
        "unknown target output name 'Z' for m",
    ),
    "batch output twice": (
        IO + "batch_output { target_name: ['B', 'B'] source_input: 'A' }",
        "target output name 'B' can only be specified once for m",
    ),
    "batch output without target": (  # the real server crashes
        IO + "batch_output { source_input: 'A' }",
        "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects at least 1 target name, got 0 for m",
    ),
    "batch output from nowhere": (
        IO + "batch_output { target_name: 'B' source_input: 'Z' }",
        "unknown source input name 'Z' for m",
    ),
    "batch output from none": (
        IO + "batch_output { target_name: 'B' }",
        "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 0 for m",
    ),
    "two initial states": (
        state("dims: [1]", "} initial_state {"),
        "initial_state field for state input 'i' must contain exactly one or zero element. Found '2' "
        "elements.",
    ),
    "initial state without name": (
        state("dims: [1]", "data_type: TYPE_FP32 dims: [1] zero_data: true"),
        "Field 'name' must be set when using initial_state for state input 'i'.",
    ),
    "initial state of another type": (
        state("dims: [1]", "name: 'a' data_type: TYPE_INT32 dims: [1] zero_data: true"),
        "The data type used for 'initial_state' field of state 'i' does not match the state data type.",
    ),
    "initial state of another rank": (
        state("dims: [1]", "name: 'a' data_type: TYPE_FP32 dims: [1, 2] zero_data: true"),
        "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state "
        "input 'i'. 2 != 1",
    ),
    "initial state of another size": (
        state("dims: [1]", "name: 'a' data_type: TYPE_FP32 dims: [2] zero_data: true"),
        "'initial_state' dim for input name 'i' doesn't match 'state' dim description. 2 != 1",
    ),
    "initial state of any size": (
        state("dims: [-1]", "name: 'a' data_type: TYPE_FP32 dims: [-1] zero_data: true"),
        "'initial_state' field for state input name 'i' contains variable dimensions.",
    ),
    "initial state without data": (
        state("dims: [1]", "name: 'a' data_type: TYPE_FP32 dims: [1]"),
        "initial_state setting expects state'i' to have state_data set",
    ),
    "state without names": (
        sequence("state { input_name: 'i' data_type: TYPE_FP32 dims: [1] }"),
        "sequence batching state must specify 'input_name' and 'output_name' for m",
    ),
    "state without type": (
        sequence("state { input_name: 'i' output_name: 'o' dims: [1] }"),
        "sequence batching state 'i' must specify 'data_type' for m",
    ),
    "state of no size": (
        sequence("state { input_name: 'i' output_name: 'o' data_type: TYPE_FP32 dims: [-2] }"),
        "sequence batching state 'i' dimension must be integer >= 0, or -1 to indicate a variable-size "
        "dimension for m",
    ),
    "two states from one output": (
        sequence(
            "state { input_name: 'i' output_name: 'o' data_type: TYPE_FP32 dims: [1] } "
            "state { input_name: 'j' output_name: 'o' data_type: TYPE_FP32 dims: [1] }"
        ),
        "Detected duplicate 'output_name' in the state configuration: 'o' for m",
    ),
    "two states for one input": (
        sequence(
            "state { input_name: 'i' output_name: 'o' data_type: TYPE_FP32 dims: [1] } "
            "state { input_name: 'i' output_name: 'p' data_type: TYPE_FP32 dims: [1] }"
        ),
        "Detected duplicate 'input_name' in the state configuration: 'i' for m",
    ),
    "growable memory in two places": (
        state(
            "dims: [1] use_growable_memory: true", "name: 'a' data_type: TYPE_FP32 dims: [1] zero_data: true"
        ),
        "In order to 'use_growable_memory', you must also enable 'use_single_buffer' for state input name "
        "'i'.",
    ),
    "growable memory of a CPU": (
        state(
            "dims: [1] use_growable_memory: true use_same_buffer_for_input_output: true",
            "name: 'a' data_type: TYPE_FP32 dims: [1] zero_data: true",
        ),
        "'use_growable_memory' can only work with KIND_GPU model instances right now. Please either change "
        "the instance type to KIND_GPU or set 'use_growable_memory' to false for state input name 'i'.",
    ),
    "group on absent GPUs": (
        "instance_group { kind: KIND_GPU }",
        "instance group m_0 of model m has kind KIND_GPU but no GPUs are available",
    ),
    "group on an absent GPU": (
        "instance_group { kind: KIND_GPU gpus: [0] }",
        "instance group m_0 of model m specifies invalid or unsupported gpu id 0. GPUs with at least the "
        "minimum required CUDA compute compatibility of 6.000000 are: ",
    ),
    "group on no GPU with GPUs": (
        "instance_group { kind: KIND_CPU gpus: [0] }",
        "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs",
    ),
    "automatic group on an absent GPU": (
        "instance_group { gpus: [0] }",
        "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs",
    ),
    "model group with GPUs": (
        "instance_group { kind: KIND_MODEL gpus: [0] }",
        "instance group m_0 of model m has kind KIND_MODEL but specifies one or more GPUs",
    ),
    "groups of more instances than anybody starts": (  # a real server starts one after the other
        "instance_group { count: 3000 kind: KIND_CPU } instance_group { count: 2147483647 kind: KIND_CPU }",
        "instance group m_1 of model m makes 2147486647 instances together with the groups before it, more "
        "than the 4096 that a model may have; expected a smaller 'count'",
    ),
    "group with profile": (
        "instance_group { profile: '0' }",
        "instance group m_0 of model m and platform specifies profile field which is only supported for "
        "TensorRT models",
    ),
    "warmup of any size": (
        IO + "model_warmup { inputs { key: 'A' value { dims: [-1] zero_data: true } } }",
        "warmup setting expects all variable-size dimensions are specified for input 'A'",
    ),
    "warmup without data": (
        IO + "model_warmup { inputs { key: 'A' value { dims: [2] } } }",
        "[request id: <id_unknown>] warmup setting expects input 'A' to have input_data_type set",
    ),
}


@pytest.mark.parametrize(("text", "message"), STRUCTURE.values(), ids=list(STRUCTURE))
def test_a_broken_structure_is_refused_before_the_backend_is_asked(
    text: str, message: str, settle: Settle
) -> None:
    with pytest.raises(InvalidArg) as raised:
        settle(text)

    assert str(raised.value) == message
    with pytest.raises(InvalidArg):
        validate_structure(unsettled(text), "m")


@pytest.mark.parametrize(("text", "message"), COMPLETE.values(), ids=list(COMPLETE))
def test_what_the_backend_may_complete_is_refused_only_afterwards(
    text: str, message: str, settle: Settle
) -> None:
    with pytest.raises(InvalidArg) as raised:
        settle(PYTHON + text)

    assert str(raised.value) == message
    config = unsettled(PYTHON + text)
    validate_structure(config, "m")


def unsettled(text: str) -> Any:  # Any: ModelConfig
    config = parse_config(text, "config.pbtxt")
    config.name = config.name or "m"
    return config


@pytest.mark.parametrize(
    "text",
    [
        "",
        # A name twice, and tensors that nobody can tell apart.
        "max_batch_size: 2 " + a_input("data_type: TYPE_FP32 dims: [1] reshape {}"),
        a_input("data_type: TYPE_FP32 dims: [2, 4, -1, 6] reshape { shape: [8, -1, 1, 6] }"),
        a_input("data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true optional: true"),
        dynamic("default_priority_level: 3"),
        dynamic("priority_queue_policy { key: 1 }"),
        dynamic("preserve_ordering: true priority_levels: 1 default_priority_level: 1"),
        dynamic("preserve_ordering: true default_queue_policy { timeout_action: DELAY }"),
        sequence("control_input { name: 'S' }"),
        sequence("oldest { max_candidate_sequences: -1 }"),
        control("kind: CONTROL_SEQUENCE_READY fp32_false_true: [0, 1] data_type: TYPE_INT32"),
        control("kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING"),
        state("dims: [-1, 2]", "name: 'a' data_type: TYPE_FP32 dims: [5, 2] data_file: 'f'"),
        "instance_group [{ name: 'g' }, { name: 'g' passive: true }, { kind: KIND_MODEL }]",
        "platform: 'x'",
        "platform: 'onnxruntime_onnx'",
        "response_cache { enable: true }",
        IO + "batch_input { data_type: TYPE_INT32 source_input: 'A' }",
        IO + "batch_output { target_name: 'B' source_input: 'A' }",
        IO + "batch_output { target_name: 'B' source_input: 'A' } " * 2,
        IO + "model_warmup { inputs { key: 'A' value { dims: [2] random_data: false } } }",
    ],
)
def test_odd_configurations_that_the_real_server_takes_are_taken(text: str, settle: Settle) -> None:
    settle(PYTHON + text)


def test_an_ensemble_of_connected_steps_is_taken(settle: Settle) -> None:
    settle(ensemble(step(inputs="T") + step(outputs="T")))


def test_tensorrt_models_may_have_shape_tensors_formats_and_profiles(settle: Settle) -> None:
    tensor = "name: 'A' data_type: TYPE_INT32 dims: [1, 2, 3] is_shape_tensor: true"
    settle(
        f"backend: 'tensorrt' input {{ {tensor} is_non_linear_format_io: true }}"
        "instance_group { profile: '0' }",
        files=["1/model.plan"],
    )

    with pytest.raises(InvalidArg, match=r"^Non-linear IO format input requires 3 dims for n$"):
        settle(
            "backend: 'tensorrt' input { name: 'A' data_type: TYPE_INT32 dims: [2] "
            "is_non_linear_format_io: true }",
            name="n",
            files=["1/model.plan"],
        )


def test_gpus_that_exist_may_be_used_and_others_are_listed(settle: Settle) -> None:
    settle(PYTHON + "instance_group { kind: KIND_GPU gpus: [1] }", gpus=[0, 1])

    with pytest.raises(InvalidArg, match=r"gpu id 2\. .* 6\.000000 are: 0, 1$"):
        settle(PYTHON + "instance_group { kind: KIND_GPU gpus: [2] }", name="n", gpus=[0, 1])


def test_a_profile_names_the_platform_it_is_not_for(settle: Settle) -> None:
    with pytest.raises(InvalidArg, match=r"^instance group m_0 of model m and platform x specifies profile"):
        settle(PYTHON + "platform: 'x' instance_group { profile: '0' }")


def test_a_label_file_must_be_there(tmp_path: Path) -> None:
    config = unsettled("output { name: 'B' label_filename: 'labels.txt' } output { name: 'C' }")

    with pytest.raises(Internal) as raised:
        validate_files(config, tmp_path)

    path = tmp_path / "labels.txt"
    assert str(raised.value) == f"failed to open text file for read {path}: No such file or directory"
    path.write_text("zero\n")
    validate_files(config, tmp_path)


def test_a_complete_configuration_without_groups_needs_none() -> None:
    validate_complete(unsettled(PYTHON))


def huge_reshape() -> ModelConfig:
    config: ModelConfig = unsettled(PYTHON)
    dims = [2**62] * 40_000
    config.input.add(name="A", data_type="TYPE_FP32", dims=dims, reshape={"shape": dims})
    return config


def many_batch_outputs() -> ModelConfig:
    config: ModelConfig = unsettled(PYTHON)
    config.input.add(name="A", data_type="TYPE_FP32", dims=[2])
    for index in range(5_000):
        config.output.add(name=f"B{index}", data_type="TYPE_FP32", dims=[2])
        config.batch_output.add(target_name=[f"B{index}"], source_input=["A"])
    return config


def long_ensemble() -> ModelConfig:
    config: ModelConfig = unsettled("name: 'm' platform: 'ensemble'")
    config.input.add(name="0")
    config.output.add(name="5000")
    for index in reversed(range(5_000)):
        step = config.ensemble_scheduling.step.add(model_name="x")
        step.input_map["i"], step.output_map["o"] = str(index), str(index + 1)
    return config


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (huge_reshape, validate_complete),
        (many_batch_outputs, validate_complete),
        (long_ensemble, lambda config: validate_structure(config, "m")),
    ],
)
def test_a_configuration_of_any_shape_is_checked_in_time(
    make: Callable[[], ModelConfig], check: Callable[[ModelConfig], None]
) -> None:
    config = make()
    start_s = time.process_time()

    check(config)

    assert time.process_time() - start_s < 3  # a few hundredths, if nothing takes the square of its length
