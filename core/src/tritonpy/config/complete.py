"""Defaults of a configuration: from the model's files, its backend's wishes, and fixed values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from tritonpy.errors import InvalidArg
from tritonpy.handles import PreferredGroup
from tritonpy.protos import ModelConfig, ModelInstanceGroup

_CAFFE2 = (
    "Caffe2 models are served neither here nor by current versions of Triton; convert the model to ONNX and "
    "serve it with backend 'onnxruntime'"
)
_CUSTOM = (
    "custom backends of TensorRT Inference Server (libcustom.so) are loaded neither here nor by Triton 2; "
    "make a backend of it: docs/how-to/write-a-backend.md, or a Python model"
)
_ADVICE = {"caffe2_netdef": _CAFFE2, "caffe2": _CAFFE2, "custom": _CUSTOM}
_FILES = {"model.netdef": _CAFFE2, "init_model.netdef": _CAFFE2, "libcustom.so": _CUSTOM}
_KERAS = (
    "'{name}' is a file as Keras saves models, which only Keras reads; export it: "
    "python -c \"import keras; keras.models.load_model('{name}').export('model.savedmodel')\""
)
_SUFFIXES = {
    ".keras": _KERAS,
    ".h5": _KERAS,
    ".index": (
        "'{stem}' is a checkpoint of TensorFlow, weights without a graph; export it to 'model.savedmodel', "
        "in TensorFlow 2 by tf.saved_model.save and in TensorFlow 1 by tf.compat.v1.saved_model.simple_save"
    ),
}


def advice_on(name: str) -> str:
    """Advice on a retired platform or backend; "" for all others."""
    return _ADVICE.get(name, "")


def advice_on_file(filename: str) -> str:
    """Advice on a model file of a kind that is served no longer, or never was; "" for all others."""
    path = PurePath(filename)
    advice = _FILES.get(filename) or _SUFFIXES.get(path.suffix, "")
    return advice.format(name=path.name, stem=path.stem)


ENSEMBLE_PLATFORM = "ensemble"
PLATFORMS: dict[str, tuple[str, ...]] = {
    "tensorflow": ("tensorflow_savedmodel", "tensorflow_graphdef"),
    "tensorrt": ("tensorrt_plan",),
    "onnxruntime": ("onnxruntime_onnx",),
    "pytorch": ("pytorch_libtorch", "torch_aoti"),
}
"""Platforms of the backends that have fixed ones; for others `platform` is free text."""

_DEFAULT_SEQUENCE_IDLE_US = 1_000_000


@dataclass(frozen=True, slots=True)
class _KnownBackend:
    """A kind of files.

    Attributes:
        backend, platform: that serve them.
        filename: of the model.
        sign: what a version directory of this kind has, where that is not called as the model.
    """

    backend: str
    platform: str
    filename: str
    sign: str = ""

    def is_in(self, present: frozenset[str]) -> bool:
        """True if a version directory with these files is of this kind."""
        return (self.sign or self.filename) in present


# In the order in which a version directory is searched: a file of an earlier line wins.
_KNOWN = (
    _KnownBackend("tensorflow", "tensorflow_savedmodel", "model.savedmodel"),
    _KnownBackend("tensorflow", "tensorflow_graphdef", "model.graphdef"),
    _KnownBackend("tensorrt", "tensorrt_plan", "model.plan"),
    _KnownBackend("onnxruntime", "onnxruntime_onnx", "model.onnx"),
    _KnownBackend("openvino", "", "model.xml"),
    _KnownBackend("litert", "", "model.tflite"),
    _KnownBackend("pytorch", "pytorch_libtorch", "model.pt"),
    _KnownBackend("pytorch", "torch_aoti", "model.pt2"),
    _KnownBackend("python", "", "model.py"),
    # A version directory of TensorFlow Serving, which is the model itself.
    _KnownBackend("tensorflow", "tensorflow_savedmodel", "model.savedmodel", "saved_model.pb"),
)


def complete_backend(config: ModelConfig, directory: Path, version: int | None) -> None:
    """Derive backend, platform and model file name from each other and from the files of a version.

    Args:
        config: changed in place; its name is set to the directory's when it has none.
        directory: the model's directory.
        version: the version whose files are looked at; None when the model has no version.

    Raises:
        InvalidArg: no backend can be derived.
    """
    if not config.name:
        config.name = directory.name
    if config.platform == ENSEMBLE_PLATFORM or config.HasField("ensemble_scheduling"):
        return
    present = _file_names(directory, version)
    known = _recognise(config, present)
    if known is not None:
        config.backend = config.backend or known.backend
        config.platform = config.platform or known.platform
        config.default_model_filename = config.default_model_filename or known.filename
    if not (config.backend or config.platform or config.default_model_filename):
        _, _, backend = config.name.partition(".")
        if not backend:
            raise InvalidArg(
                f"Invalid model name: Could not determine backend for model '{config.name}' with no backend "
                f"in model configuration. Expected model name of the form 'model.<backend_name>'."
                + _advice_on_any(present, " ")
            )
        config.backend = backend
        config.default_model_filename = f"model.{backend}"
    if not config.platform and config.backend in PLATFORMS:
        advice = _advice_on_any(present, ": ")
        if advice:
            raise InvalidArg(f"{platform_mismatch(config)}{advice}")


def platform_mismatch(config: ModelConfig) -> str:
    """Triton's words for a platform that is none of the backend's."""
    return f"unexpected 'platform' and 'backend' pair, got:{config.platform}, {config.backend}"


def _advice_on_any(filenames: frozenset[str], before: str) -> str:
    # An index without the data of a checkpoint is something else.
    told = [
        name
        for name in sorted(filenames)
        if not name.endswith(".index") or any(other.startswith(f"{name[:-6]}.data-") for other in filenames)
    ]
    advice = next(filter(None, map(advice_on_file, told)), "")
    return before + advice if advice else ""


def _recognise(config: ModelConfig, present: frozenset[str]) -> _KnownBackend | None:
    """The row of the table for the configuration's backend or platform, or else for the files."""
    candidates: tuple[_KnownBackend, ...] = _KNOWN
    if config.backend:
        candidates = tuple(known for known in candidates if known.backend == config.backend)
    elif config.platform:
        candidates = tuple(known for known in candidates if known.platform == config.platform)
    elif config.default_model_filename:
        candidates = tuple(known for known in candidates if known.filename == config.default_model_filename)
    else:
        candidates = tuple(known for known in candidates if known.is_in(present))
    if config.backend and len(candidates) > 1:  # one backend, several kinds of files
        named = {config.platform, config.default_model_filename} - {""}
        by_config = tuple(known for known in candidates if {known.platform, known.filename} & named)
        by_file = tuple(known for known in candidates if known.is_in(present))
        candidates = by_config or by_file or (() if config.backend == "tensorflow" else candidates)
    return candidates[0] if candidates else None


def _file_names(directory: Path, version: int | None) -> frozenset[str]:
    if version is None:
        return frozenset()
    return frozenset(path.name for path in (directory / str(version)).iterdir())


def normalize(
    config: ModelConfig,
    preferred_groups: Sequence[PreferredGroup] = (),
    gpus: Sequence[int] = (),
    *,
    uses_gpus: bool = True,
) -> None:
    """Make every default explicit, in place; called again after a backend has completed the configuration.

    Args:
        config: with name and, unless it is an ensemble, backend.
        preferred_groups: what the backend proposes for models that configure no instance group, the first one
            that can be. Their count is also the default of a configured group of the same kind.
        gpus: ids of the devices that may be used.
        uses_gpus: the backend can use them.
    """
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    _normalize_batching(config)
    if config.platform == ENSEMBLE_PLATFORM:
        config.model_transaction_policy.SetInParent()
        return
    if not config.optimization.HasField("input_pinned_memory"):
        config.optimization.input_pinned_memory.enable = True
    if not config.optimization.HasField("output_pinned_memory"):
        config.optimization.output_pinned_memory.enable = True
    _normalize_groups(config, preferred_groups, gpus, uses_gpus)


def _normalize_batching(config: ModelConfig) -> None:
    match config.WhichOneof("scheduling_choice"):
        case "dynamic_batching":
            sizes = config.dynamic_batching.preferred_batch_size
        case "sequence_batching":
            sequences = config.sequence_batching
            if sequences.max_sequence_idle_microseconds == 0:
                sequences.max_sequence_idle_microseconds = _DEFAULT_SEQUENCE_IDLE_US
            if not sequences.HasField("oldest"):
                return
            sizes = sequences.oldest.preferred_batch_size
        case _:
            return
    if not sizes and config.max_batch_size > 0:
        sizes.append(config.max_batch_size)


def _normalize_groups(
    config: ModelConfig, preferred_groups: Sequence[PreferredGroup], gpus: Sequence[int], uses_gpus: bool
) -> None:
    usable = gpus if uses_gpus else ()
    groups = config.instance_group
    if not groups:
        preferred = next(
            (group for group in preferred_groups if group.kind != "KIND_GPU" or _gpus_of(group, usable)),
            PreferredGroup("KIND_AUTO", 0),
        )
        kind = ModelInstanceGroup.Kind.Value(preferred.kind)
        chosen = _gpus_of(preferred, usable) if preferred.gpus else []
        groups.add(name=config.name, kind=kind, count=preferred.count, gpus=chosen)
    counts = {ModelInstanceGroup.Kind.Value(group.kind): group.count for group in preferred_groups}
    for index, group in enumerate(groups):
        if not group.name:
            group.name = f"{config.name}_{index}"
        if group.kind == group.KIND_AUTO:
            group.kind = group.KIND_GPU if usable and set(group.gpus) <= set(usable) else group.KIND_CPU
        if group.kind == group.KIND_GPU and not group.gpus:
            group.gpus.extend(gpus)
        if group.count < 1:
            group.count = max(1, counts.get(group.kind, 1))


def _gpus_of(group: PreferredGroup, usable: Sequence[int]) -> list[int]:
    """The GPUs that a preferred group would have instances on; none for one of another kind."""
    if group.kind not in ("KIND_GPU", "KIND_AUTO"):
        return []
    return [gpu for gpu in usable if not group.gpus or gpu in group.gpus]
