"""Every refusal of a configuration, one function per rule, in Triton's words.

What concerns the model as a whole is checked before it is loaded; inputs, outputs and instance groups are
checked after the backend had its chance to complete them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tritonpy.config.schema import KIND_CPU, KIND_GPU, KIND_MODEL, ModelConfig
from tritonpy.errors import InvalidArg
from tritonpy.protos import DataType, ModelInput, ModelOutput, ModelQueuePolicy

_ENSEMBLE = "ensemble"
_TYPE_INVALID = DataType.Value("TYPE_INVALID")
_NO_FORMAT = ModelInput.FORMAT_NONE


def validate_structure(config: ModelConfig, directory_name: str) -> None:
    """Check what no backend may change.

    Raises:
        InvalidArg: the first rule that is broken.
    """
    _check_name(config, directory_name)
    _check_max_batch_size(config)
    _check_platform(config)
    _check_dynamic_batching(config)
    _check_cache(config)


def validate_complete(config: ModelConfig, gpus: Sequence[int] = ()) -> None:
    """Check inputs, outputs and instance groups of a completed configuration.

    Args:
        config: normalised.
        gpus: the devices that are there.

    Raises:
        InvalidArg: the first rule that is broken.
    """
    try:
        _check_preferred_sizes(config)
        for tensor in config.input:
            _check_tensor(tensor, "input", config)
            _check_format(tensor)
        for output in config.output:
            _check_tensor(output, "output", config)
        _check_batch_io(config)
        _check_groups(config, gpus)
    except InvalidArg as exc:
        suffix = f" for {config.name}"
        raise exc if exc.message.endswith(suffix) else InvalidArg(exc.message + suffix) from None


def _check_name(config: ModelConfig, directory_name: str) -> None:
    if config.name != directory_name:
        raise InvalidArg(
            f"unexpected directory name '{directory_name}' for model '{config.name}', directory name must "
            f"equal model name"
        )


def _check_max_batch_size(config: ModelConfig) -> None:
    if config.max_batch_size < 0:
        raise InvalidArg(f"'max_batch_size' must be non-negative value for {config.name}")


def _check_platform(config: ModelConfig) -> None:
    is_ensemble = config.WhichOneof("scheduling_choice") == "ensemble_scheduling"
    if is_ensemble and config.platform != _ENSEMBLE:
        raise InvalidArg(
            f"ensemble scheduling cannot be set for model '{config.name}' whose platform is not ensemble"
        )
    if config.platform == _ENSEMBLE and not is_ensemble:
        raise InvalidArg(
            f"ensemble scheduling must be set for ensemble {config.name} whose platform is ensemble"
        )
    if config.platform == _ENSEMBLE and config.backend:
        raise InvalidArg(f"unexpected 'platform' and 'backend' pair, got:{config.platform}, {config.backend}")


def _check_dynamic_batching(config: ModelConfig) -> None:
    if config.WhichOneof("scheduling_choice") != "dynamic_batching":
        return
    batching = config.dynamic_batching
    levels = batching.priority_levels
    name = config.name
    if levels:
        if not 1 <= batching.default_priority_level <= levels:
            raise InvalidArg(f"default priority level must be in range [1, {levels}] for {name}")
        if any(not 1 <= level <= levels for level in batching.priority_queue_policy):
            raise InvalidArg(
                f"priority queue policy must have priority level in range [1, {levels}] for {name}"
            )
    if not batching.preserve_ordering:
        return
    if levels > 1:
        raise InvalidArg(f"Only one priority level is allowed when 'preserve_ordering' is true for {name}")
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    if any(policy.timeout_action == ModelQueuePolicy.DELAY for policy in policies):
        raise InvalidArg(
            f"Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {name}"
        )


def _check_preferred_sizes(config: ModelConfig) -> None:
    if config.WhichOneof("scheduling_choice") != "dynamic_batching":
        return
    for size in config.dynamic_batching.preferred_batch_size:
        if size <= 0:
            raise InvalidArg(f"dynamic batching preferred size must be positive for {config.name}")
        if size > config.max_batch_size:
            raise InvalidArg(f"dynamic batching preferred size must be <= max batch size for {config.name}")


def _check_cache(config: ModelConfig) -> None:
    if not config.response_cache.enable:
        return
    if config.WhichOneof("scheduling_choice") == "sequence_batching":
        raise InvalidArg(
            f"Response Cache does not currently support model {config.name} with sequence batching "
            f"scheduler. Please disable the response cache."
        )
    if config.model_transaction_policy.decoupled:
        raise InvalidArg(
            f"Response Cache does not currently support model {config.name} with 'decoupled' transaction "
            f"policy. Please disable the response cache."
        )


def _check_tensor(tensor: ModelInput | ModelOutput, role: str, config: ModelConfig) -> None:
    name = tensor.name
    if not name:
        raise InvalidArg(f"model {role} must specify 'name'")
    if tensor.data_type == _TYPE_INVALID:
        raise InvalidArg(f"model {role} '{name}' must specify 'data_type'")
    if not tensor.dims and not tensor.HasField("reshape"):
        raise InvalidArg(f"model {role} '{name}' must specify 'dims'")
    if any(dim < 1 and dim != -1 for dim in tensor.dims):
        raise InvalidArg(
            f"model {role} '{name}' dimension must be integer >= 1, or -1 to indicate a variable-size "
            f"dimension"
        )
    if tensor.HasField("reshape"):
        _check_reshape(tensor, role, config)
    if tensor.is_shape_tensor and config.platform != "tensorrt_plan":
        raise InvalidArg("shape tensors are only supported for TensorRT platform")


def _check_reshape(tensor: ModelInput | ModelOutput, role: str, config: ModelConfig) -> None:
    shape = list(tensor.reshape.shape)
    dims = list(tensor.dims)
    name = tensor.name
    if not shape and config.max_batch_size == 0:
        raise InvalidArg(
            f"model {role} '{name}' cannot have empty reshape for non-batching model as scalar tensors are "
            f"not supported"
        )
    if shape.count(-1) != dims.count(-1):
        raise InvalidArg(
            f"model {role} '{name}' has different number of variable dimensions for dims and reshape"
        )
    if prod(dim for dim in shape if dim != -1) != prod(dim for dim in dims if dim != -1):
        raise InvalidArg(f"model {role} '{name}' has different size for dims and reshape")


def _check_format(tensor: ModelInput) -> None:
    if tensor.format != _NO_FORMAT and len(tensor.dims) != 3:
        raise InvalidArg(f"model input '{tensor.name}' model input NHWC/NCHW require 3 dims")


def _check_batch_io(config: ModelConfig) -> None:
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for batch_input in config.batch_input:
        if batch_input.data_type not in (DataType.Value("TYPE_INT32"), DataType.Value("TYPE_FP32")):
            raise InvalidArg("batch input data type must be TYPE_INT32 or TYPE_FP32")
        if len(batch_input.source_input) != 1:
            kind = batch_input.Kind.Name(batch_input.kind)
            raise InvalidArg(
                f"batch input kind '{kind}' expects 1 source input, got {len(batch_input.source_input)}"
            )
        for source in batch_input.source_input:
            if source not in inputs:
                raise InvalidArg(f"unknown source input name '{source}'")
    seen: set[str] = set()
    for batch_output in config.batch_output:
        for target in batch_output.target_name:
            if target not in outputs:
                raise InvalidArg(f"unknown target output name '{target}'")
            if target in seen:
                raise InvalidArg(f"target output name '{target}' can only be specified once")
            seen.add(target)


def _check_groups(config: ModelConfig, gpus: Sequence[int]) -> None:
    for group in config.instance_group:
        where = f"instance group {group.name} of model {config.name}"
        if group.kind == KIND_GPU:
            if not gpus:
                raise InvalidArg(f"{where} has kind KIND_GPU but no GPUs are available")
            for gpu in group.gpus:
                if gpu not in gpus:
                    raise InvalidArg(f"{where} specifies invalid or unsupported gpu id {gpu}")
        elif group.gpus and group.kind in (KIND_CPU, KIND_MODEL):
            kind = group.Kind.Name(group.kind)
            raise InvalidArg(f"{where} has kind {kind} but specifies one or more GPUs")
        if group.profile:
            raise InvalidArg(f"{where} specifies profile field which is only supported for TensorRT models")
