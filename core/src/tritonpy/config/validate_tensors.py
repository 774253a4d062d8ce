"""Rules about inputs, outputs, batch inputs, batch outputs and warmup samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tritonpy.errors import InvalidArg
from tritonpy.protos import BatchInput, BatchOutput, DataType, ModelConfig, ModelInput, ModelOutput

_TENSORRT_PLATFORM = "tensorrt_plan"
_TOO_MANY = 2**64
"""An element count that no tensor reaches; larger numbers take ever longer to multiply."""

_BATCH_INPUT_TYPES = (DataType.TYPE_INT32, DataType.TYPE_FP32)


def check_inputs(config: ModelConfig) -> None:
    """Every input is described in full."""
    _check_names(config.input, "input", config)
    for tensor in config.input:
        _check_tensor(tensor, "input", config)
        if tensor.format != ModelInput.FORMAT_NONE and len(tensor.dims) != 3:
            raise InvalidArg(f"model input NHWC/NCHW require 3 dims for {config.name}")
        _check_needs_tensorrt(tensor, "input", config)


def check_outputs(config: ModelConfig) -> None:
    """Every output is described in full."""
    _check_names(config.output, "output", config)
    for tensor in config.output:
        _check_tensor(tensor, "output", config)
        _check_needs_tensorrt(tensor, "output", config)


def _check_names(tensors: Iterable[ModelInput | ModelOutput], role: str, config: ModelConfig) -> None:
    """Refuse two of the same name: Triton shows both and uses one."""
    counts = Counter(tensor.name for tensor in tensors)
    for name, count in counts.items():
        if name and count > 1:
            raise InvalidArg(
                f"model {role} '{name}' is specified {count} times for {config.name}, expected once"
            )


def _check_tensor(tensor: ModelInput | ModelOutput, role: str, config: ModelConfig) -> None:
    name = config.name
    if not tensor.name:
        raise InvalidArg(f"model {role} must specify 'name' for {name}")
    which = f"model {role} '{tensor.name}'"
    if tensor.data_type == DataType.TYPE_INVALID:
        raise InvalidArg(f"{which} must specify 'data_type' for {name}")
    if not tensor.dims:
        raise InvalidArg(f"{which} must specify 'dims' for {name}")
    if any(dim < 1 and dim != -1 for dim in tensor.dims):
        raise InvalidArg(
            f"{which} dimension must be integer >= 1, or -1 to indicate a variable-size dimension for {name}"
        )
    if tensor.HasField("reshape"):
        _check_reshape(tensor.dims, tensor.reshape.shape, which, config)


def _check_reshape(dims: Sequence[int], shape: Sequence[int], which: str, config: ModelConfig) -> None:
    name = config.name
    if not shape and config.max_batch_size == 0:
        raise InvalidArg(
            f"{which} cannot have empty reshape for non-batching model as scalar tensors are not supported "
            f"for {name}"
        )
    if any(dim < 1 and dim != -1 for dim in shape):
        raise InvalidArg(
            f"{which} reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension "
            f"for {name}"
        )
    before, after = list(dims).count(-1), list(shape).count(-1)
    if before and after and before != after:
        raise InvalidArg(
            f"{which} has different number of variable-size dimensions for dims and reshape for {name}"
        )
    if _sizes_between_wildcards(dims) != _sizes_between_wildcards(shape):
        raise InvalidArg(f"{which} has different size for dims and reshape for {name}")


def _sizes_between_wildcards(shape: Sequence[int]) -> list[int]:
    """Element counts of the runs between variable dimensions: the n-th -1 of `dims` becomes the n-th here."""
    sizes = [1]
    for dim in shape:
        if dim == -1:
            sizes.append(1)
        else:
            sizes[-1] = min(sizes[-1] * dim, _TOO_MANY)
    return sizes


def _check_needs_tensorrt(tensor: ModelInput | ModelOutput, role: str, config: ModelConfig) -> None:
    if tensor.is_shape_tensor and config.platform != _TENSORRT_PLATFORM:
        raise InvalidArg(f"shape tensors are only supported for TensorRT platform for {config.name}")
    if tensor.is_non_linear_format_io:
        if config.platform != _TENSORRT_PLATFORM:
            raise InvalidArg(
                f"Non-linear IO format is only supported for the TensorRT platform for {config.name}"
            )
        if len(tensor.dims) != 3:
            raise InvalidArg(f"Non-linear IO format {role} requires 3 dims for {config.name}")


def check_batch_io(config: ModelConfig) -> None:
    """Batch inputs and outputs are made from inputs, and for outputs, that exist."""
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for batch_input in config.batch_input:
        kind = f"batch input kind '{BatchInput.Kind.Name(batch_input.kind)}'"
        _check_source_count(batch_input.source_input, kind, config)
        if batch_input.data_type not in _BATCH_INPUT_TYPES:
            raise InvalidArg(f"batch input data type must be TYPE_INT32 or TYPE_FP32 for {config.name}")
        _check_sources(batch_input.source_input, inputs, config)
    for batch_output in config.batch_output:
        kind = f"batch output kind '{BatchOutput.Kind.Name(batch_output.kind)}'"
        _check_source_count(batch_output.source_input, kind, config)
        _check_sources(batch_output.source_input, inputs, config)
        for problem in _target_problems(batch_output, kind, outputs):
            raise InvalidArg(f"{problem} for {config.name}")


def _target_problems(batch_output: BatchOutput, kind: str, outputs: set[str]) -> Iterator[str]:
    seen: set[str] = set()  # another batch output may have the same target: Triton lets it be
    if not batch_output.target_name:  # Triton goes on here, and crashes
        yield f"{kind} expects at least 1 target name, got 0"
    for target in batch_output.target_name:
        if target not in outputs:
            yield f"unknown target output name '{target}'"
        if target in seen:
            yield f"target output name '{target}' can only be specified once"
        seen.add(target)


def _check_source_count(sources: Sequence[str], kind: str, config: ModelConfig) -> None:
    if len(sources) != 1:
        raise InvalidArg(f"{kind} expects 1 source input, got {len(sources)} for {config.name}")


def _check_sources(sources: Sequence[str], inputs: set[str], config: ModelConfig) -> None:
    for source in sources:
        if source not in inputs:
            raise InvalidArg(f"unknown source input name '{source}' for {config.name}")


def check_warmup(config: ModelConfig) -> None:
    """Warmup samples say how large their tensors are and what is in them."""
    for sample in config.model_warmup:
        for name in sorted(sample.inputs):
            tensor = sample.inputs[name]
            if any(dim < 0 for dim in tensor.dims):
                raise InvalidArg(
                    f"warmup setting expects all variable-size dimensions are specified for input '{name}'"
                )
            if tensor.WhichOneof("input_data_type") is None:
                raise InvalidArg(
                    f"[request id: <id_unknown>] warmup setting expects input '{name}' to have "
                    f"input_data_type set"
                )
