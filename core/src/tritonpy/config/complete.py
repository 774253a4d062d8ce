"""Fill in what a configuration leaves out, from its files and from defaults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tritonpy.config.schema import KIND_AUTO, KIND_CPU, KIND_GPU, ModelConfig
from tritonpy.errors import InvalidArg
from tritonpy.handles import PreferredGroup

# backend, platform, what its model file is called
_KNOWN = (
    ("tensorflow", "tensorflow_savedmodel", "model.savedmodel"),
    ("tensorflow", "tensorflow_graphdef", "model.graphdef"),
    ("tensorrt", "tensorrt_plan", "model.plan"),
    ("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    ("openvino", "", "model.xml"),
    ("pytorch", "pytorch_libtorch", "model.pt"),
    ("python", "", "model.py"),
)
_ENSEMBLE = "ensemble"


def complete_backend(config: ModelConfig, directory: Path, version: int | None) -> None:
    """Derive backend, platform and model file name from each other and from the version's files.

    Args:
        config: changed in place; its name is set to the directory's when it has none.
        directory: the model's directory.
        version: a version to look into; None when there is none.

    Raises:
        InvalidArg: no backend can be derived.
    """
    if not config.name:
        config.name = directory.name
    if config.platform == _ENSEMBLE or config.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        if not config.platform and not config.backend:
            config.platform = _ENSEMBLE
        return
    present = _files(directory, version)
    for backend, platform, filename in _KNOWN:
        wanted = config.default_model_filename or filename
        if config.backend and config.backend != backend:
            continue
        if config.platform and config.platform != platform:
            continue
        if config.backend or config.platform or (wanted == filename and filename in present):
            several = sum(known[0] == backend for known in _KNOWN) > 1
            if several and not config.platform and wanted not in present:
                continue
            config.backend = backend
            config.platform = platform
            config.default_model_filename = wanted
            return
    if not config.backend:
        _, dot, suffix = config.name.rpartition(".")
        if not dot or not suffix:
            raise InvalidArg(
                f"Invalid model name: Could not determine backend for model '{config.name}' with no backend "
                f"in model configuration. Expected model name of the form 'model.<backend_name>'."
            )
        config.backend = suffix


def _files(directory: Path, version: int | None) -> set[str]:
    if version is None:
        return set()
    return {path.name for path in (directory / str(version)).iterdir()}


def normalize(
    config: ModelConfig, preferred_groups: Sequence[PreferredGroup] = (), gpus: Sequence[int] = ()
) -> None:
    """Make every default explicit, in place; called again after a backend has completed the configuration.

    Args:
        config: with backend and name.
        preferred_groups: what the backend proposes for models that configure no instance group.
        gpus: the devices that are there.
    """
    if not config.version_policy.WhichOneof("policy_choice"):
        config.version_policy.latest.num_versions = 1
    elif config.version_policy.WhichOneof("policy_choice") == "latest":
        config.version_policy.latest.num_versions = config.version_policy.latest.num_versions or 1
    if config.WhichOneof("scheduling_choice") == "dynamic_batching":
        batching = config.dynamic_batching
        if not batching.preferred_batch_size and config.max_batch_size > 0:
            batching.preferred_batch_size.append(config.max_batch_size)
    if config.WhichOneof("scheduling_choice") == "sequence_batching":
        sequences = config.sequence_batching
        sequences.max_sequence_idle_microseconds = sequences.max_sequence_idle_microseconds or 1_000_000
    if config.platform == _ENSEMBLE:
        return
    if not config.optimization.HasField("input_pinned_memory"):
        config.optimization.input_pinned_memory.enable = True
    if not config.optimization.HasField("output_pinned_memory"):
        config.optimization.output_pinned_memory.enable = True
    _normalize_groups(config, preferred_groups, gpus)


def _normalize_groups(
    config: ModelConfig, preferred_groups: Sequence[PreferredGroup], gpus: Sequence[int]
) -> None:
    counts: dict[str, int] = {group.kind: group.count for group in preferred_groups}
    if not config.instance_group:
        config.instance_group.add(name=config.name)
    for index, group in enumerate(config.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        if group.kind == KIND_AUTO:
            listed = set(group.gpus)
            group.kind = KIND_GPU if gpus and listed <= set(gpus) else KIND_CPU
        if group.kind == KIND_GPU and not group.gpus:
            group.gpus.extend(gpus)
        if group.count < 1:
            name = next(name for name, number in group.Kind.items() if number == group.kind)
            group.count = counts.get(name, 1)
