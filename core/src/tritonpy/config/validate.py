"""All rules of a configuration, refused in Triton's words, one function per rule.

Two entry points, because a backend may complete inputs and outputs: what it cannot change is checked before
it is asked, the rest afterwards. The rules of one subject share a module: `validate_scheduling`,
`validate_states`, `validate_ensemble`, `validate_tensors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tritonpy.config.complete import (
    ENSEMBLE_PLATFORM,
    PLATFORMS,
    advice_on,
    advice_on_file,
    platform_mismatch,
)
from tritonpy.config.named_files import check_named_file, label_path
from tritonpy.config.validate_ensemble import check_ensemble_graph, check_ensemble_has_no_instances
from tritonpy.config.validate_scheduling import check_dynamic_batching, check_sequence_batching, check_states
from tritonpy.config.validate_tensors import check_batch_io, check_inputs, check_outputs, check_warmup
from tritonpy.devices.gpus import MIN_COMPUTE_CAPABILITY
from tritonpy.errors import InvalidArg
from tritonpy.protos import ModelConfig, ModelInstanceGroup


def validate_structure(config: ModelConfig, directory_name: str) -> None:
    """Check the fields that no backend may change.

    Args:
        config: completed from the model's files and normalised or not.
        directory_name: of the model's directory.

    Raises:
        InvalidArg: the first rule that is broken.
    """
    check_platform(config)
    check_max_batch_size(config)
    check_ensemble_has_no_instances(config)
    check_ensemble_graph(config)
    check_dynamic_batching(config)
    check_sequence_batching(config)
    check_response_cache(config)
    check_metrics(config)
    check_name(config, directory_name)  # last: Triton complains about everything else first


MOST_INSTANCES = 4096
"""Of a model. Each is a thread or a process; far fewer are of use."""


def validate_complete(
    config: ModelConfig, gpus: Sequence[int] = (), min_compute_capability: float = MIN_COMPUTE_CAPABILITY
) -> None:
    """Check a configuration that its backend has completed and that is normalised.

    Args:
        config: what will be served.
        gpus: ids of the devices that may be used.
        min_compute_capability: what a device needs to be among them; part of a message.

    Raises:
        InvalidArg: the first rule that is broken.
    """
    validate_tensors(config)
    check_states(config)
    check_instance_groups(config, gpus, min_compute_capability)
    check_warmup(config)


def validate_tensors(config: ModelConfig) -> None:
    """Check inputs, outputs and what is made of them for batches.

    Raises:
        InvalidArg: the first rule that is broken.
    """
    check_inputs(config)
    check_outputs(config)
    check_batch_io(config)


def validate_files(config: ModelConfig, directory: Path) -> None:
    """Check that the label files are there, which a configuration names beside the model's own files.

    Raises:
        Internal: one cannot be read; the code is Triton's.
    """
    for tensor in config.output:
        if tensor.label_filename:
            check_named_file(label_path(directory, tensor.label_filename))


def check_name(config: ModelConfig, directory_name: str) -> None:
    """A model is called like its directory."""
    if config.name != directory_name:
        raise InvalidArg(
            f"unexpected directory name '{directory_name}' for model '{config.name}', directory name must "
            f"equal model name"
        )


def check_platform(config: ModelConfig) -> None:
    """Check that platform and backend go together, and the platform `ensemble` with ensemble scheduling."""
    is_ensemble = config.HasField("ensemble_scheduling")
    if config.platform == ENSEMBLE_PLATFORM:
        if config.backend:
            raise InvalidArg(
                f"Ensemble model '{config.name}' must have platform type 'ensemble' and empty backend type"
            )
        if not is_ensemble:
            raise InvalidArg(
                f"ensemble scheduling must be set for ensemble {config.name} whose platform is ensemble"
            )
        return
    if is_ensemble:
        raise InvalidArg(
            f"ensemble scheduling cannot be set for model '{config.name}' whose platform is not ensemble"
        )
    if not config.backend:
        advice = advice_on(config.platform) or advice_on_file(config.default_model_filename)
        raise InvalidArg(
            f"unexpected platform type '{config.platform}' for {config.name}"
            + (f": {advice}" if advice else "")
        )
    if config.platform not in PLATFORMS.get(config.backend, (config.platform,)):
        raise InvalidArg(platform_mismatch(config))


def check_max_batch_size(config: ModelConfig) -> None:
    """0 is no batching; less has no meaning."""
    if config.max_batch_size < 0:
        raise InvalidArg(f"'max_batch_size' must be non-negative value for {config.name}")


def check_response_cache(config: ModelConfig) -> None:
    """Responses that depend on earlier requests, or come in any number, cannot be cached."""
    if not config.response_cache.enable:
        return
    cause = ""
    if config.HasField("sequence_batching"):
        cause = "sequence batching scheduler"
    elif config.model_transaction_policy.decoupled:
        cause = "'decoupled' transaction policy"
    if cause:
        raise InvalidArg(
            f"Response Cache does not currently support model {config.name} with {cause}. Please disable the "
            f"response cache."
        )


def check_metrics(config: ModelConfig) -> None:
    """Settings of a metric name the metric and set something."""
    for control in config.model_metrics.metric_control:
        if not control.HasField("metric_identifier"):
            raise InvalidArg("metric control must specify 'metric_identifier'")
        if not control.metric_identifier.family:
            raise InvalidArg("metric identifier must specify non-empty 'family'")
        if not control.HasField("histogram_options"):
            raise InvalidArg("metric control must specify 'histogram_options'")
        if not control.histogram_options.buckets:
            raise InvalidArg("histogram options must specify non-empty 'buckets'")


def check_instance_groups(
    config: ModelConfig, gpus: Sequence[int], min_compute_capability: float = MIN_COMPUTE_CAPABILITY
) -> None:
    """Instance groups name devices that exist, where their kind has devices, and are not too large."""
    total = 0
    for group in config.instance_group:
        where = f"instance group {group.name} of model {config.name}"
        total += group.count * max(1, len(group.gpus))
        if total > MOST_INSTANCES:
            raise InvalidArg(
                f"{where} makes {total} instances together with the groups before it, more than the "
                f"{MOST_INSTANCES} that a model may have; expected a smaller 'count'"
            )
        if group.kind == group.KIND_GPU:
            _check_gpus(group, where, gpus, min_compute_capability)
        elif group.gpus and group.kind in (group.KIND_CPU, group.KIND_MODEL):
            kind = ModelInstanceGroup.Kind.Name(group.kind)
            raise InvalidArg(f"{where} has kind {kind} but specifies one or more GPUs")
        if group.profile and config.platform != "tensorrt_plan":
            platform = f" {config.platform}" if config.platform else ""
            raise InvalidArg(
                f"{where} and platform{platform} specifies profile field which is only supported for "
                f"TensorRT models"
            )


def _check_gpus(
    group: ModelInstanceGroup, where: str, gpus: Sequence[int], min_compute_capability: float
) -> None:
    if not group.gpus:
        raise InvalidArg(f"{where} has kind KIND_GPU but no GPUs are available")
    for gpu in group.gpus:
        if gpu not in gpus:
            raise InvalidArg(
                f"{where} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum "
                f"required CUDA compute compatibility of {min_compute_capability:f} are: "
                f"{', '.join(map(str, gpus))}"
            )
