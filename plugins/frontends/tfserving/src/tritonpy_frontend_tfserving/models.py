"""Models as TensorFlow Serving describes them: versions and labels, their status, and their signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tritonpy.plugin import (
    Array,
    Dataplane,
    InvalidArg,
    JsonObject,
    NotFound,
    ServedModel,
    TensorSpec,
    TritonError,
)

LABELS = "TRITONPY_VERSION_LABELS"
"""The parameter of a model that gives versions names: `stable:1,canary:2`."""

_SIGNATURES = ("TF_SIGNATURE_DEF", "SIGNATURE_KEY")  # of the backends that have any
_DEFAULT_SIGNATURE = "serving_default"
_STATES = {"READY": "AVAILABLE", "LOADING": "LOADING", "UNLOADING": "UNLOADING", "UNAVAILABLE": "END"}
TYPES = {
    "BOOL": "DT_BOOL",
    "UINT8": "DT_UINT8",
    "UINT16": "DT_UINT16",
    "UINT32": "DT_UINT32",
    "UINT64": "DT_UINT64",
    "INT8": "DT_INT8",
    "INT16": "DT_INT16",
    "INT32": "DT_INT32",
    "INT64": "DT_INT64",
    "FP16": "DT_HALF",
    "BF16": "DT_BFLOAT16",
    "FP32": "DT_FLOAT",
    "FP64": "DT_DOUBLE",
    "BYTES": "DT_STRING",
}
"""TensorFlow's name for each datatype."""


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model as a request names it.

    Attributes:
        name: the model's name.
        version: digits, "" for the newest one.
        label: a name for a version, "" for none.
    """

    name: str
    version: str = ""
    label: str = ""


def find(dataplane: Dataplane, wanted: ModelName) -> ServedModel:
    """The model version that a request means.

    Raises:
        NotFound: there is none that takes requests.
        InvalidArg: its label is none of the model's.
    """
    try:
        model = dataplane.find(wanted.name, wanted.version)
        if not wanted.label:
            return model
        return dataplane.find(wanted.name, _labelled(model, wanted.label))
    except TritonError as error:
        if isinstance(error, InvalidArg) and wanted.label:
            raise
        version = wanted.version or wanted.label
        which = f"Specific({wanted.name}, {version})" if version else f"Latest({wanted.name})"
        raise NotFound(f"Servable not found for request: {which}: {error.message}") from error


def _labelled(model: ServedModel, label: str) -> str:
    """The version that a label stands for."""
    text: str = model.config.get("parameters", {}).get(LABELS, {}).get("string_value", "")
    labels = dict(part.strip().rsplit(":", 1) for part in text.split(",") if ":" in part)
    if label not in labels:
        raise InvalidArg(
            f"Unrecognized servable version label: {label}; the parameter {LABELS} of model '{model.name}' "
            f"has {', '.join(sorted(labels)) or 'none'}"
        )
    return labels[label]


def check_signature(model: ServedModel, wanted: object) -> None:
    """Compare the signature that a request names with the one that is served.

    Raises:
        InvalidArg: it is another one.
    """
    if not isinstance(wanted, str):
        raise InvalidArg("'signature_name' key must be a string value.")
    served = signature_of(model)
    if wanted not in ("", served):
        raise InvalidArg(
            f'Serving signature name: "{wanted}" not found in signature def: a model serves one signature, '
            f'here "{served}"; a second model can serve another one of the same files'
        )


def signature_of(model: ServedModel) -> str:
    """The signature that is served, as far as the configuration says it."""
    parameters: JsonObject = model.config.get("parameters", {})
    found = (parameters.get(key, {}).get("string_value", "") for key in _SIGNATURES)
    return next(filter(None, found), _DEFAULT_SIGNATURE)


async def status(dataplane: Dataplane, wanted: ModelName) -> JsonObject:
    """The versions of a model and their states.

    Raises:
        NotFound: there are none.
        InvalidArg: its label is none of the model's.
    """
    version = str(find(dataplane, wanted).version) if wanted.label else wanted.version
    rows = [row for row in await dataplane.repository_index() if row["name"] == wanted.name]
    found = [row for row in rows if str(row.get("version", "")) and version in ("", str(row["version"]))]
    if not found:
        reason = next((f": {row['reason']}" for row in rows if row.get("reason")), "")
        which = f"version {version} of model" if version else "any versions of model"
        raise NotFound(f"Could not find {which} {wanted.name}{reason}")
    return {"model_version_status": [_version_status(row) for row in found]}


def _version_status(row: JsonObject) -> JsonObject:
    state = _STATES.get(row.get("state", ""), "UNKNOWN")
    reason = row.get("reason", "") if state == "END" else ""
    failed = reason not in ("", "unloaded")
    return {
        "version": str(row["version"]),
        "state": state,
        "status": {
            "error_code": "UNKNOWN" if failed else "OK",
            "error_message": reason if failed else "",
        },
    }


def metadata(dataplane: Dataplane, wanted: ModelName) -> JsonObject:
    """The signature of a model.

    Raises:
        NotFound: there is no such version.
        InvalidArg: its label is none of the model's.
    """
    model = find(dataplane, wanted)
    scalars = scalar_rows(model)

    def described(specs: Mapping[str, TensorSpec]) -> JsonObject:
        return {name: _tensor_info(spec, name in scalars) for name, spec in specs.items()}

    definition = {
        "inputs": described(model.inputs),
        "outputs": described(model.outputs),
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    }
    return {
        "model_spec": {"name": model.name, "signature_name": "", "version": str(model.version)},
        "metadata": {"signature_def": {"signature_def": {signature_of(model): definition}}},
    }


def _tensor_info(spec: TensorSpec, is_scalar_row: bool) -> JsonObject:
    shape = spec.shape[:-1] if is_scalar_row else spec.shape
    return {
        "dtype": TYPES[spec.datatype],
        "tensor_shape": {"dim": [{"size": str(size), "name": ""} for size in shape], "unknown_rank": False},
        "name": f"{spec.name}:0",
    }


def fit_rank(array: Array, spec: TensorSpec) -> Array:
    """An input as clients of the v2 protocol give it: there, a number for each row has one dimension more."""
    if array.ndim == len(spec.shape) - 1 and spec.shape[-1] == 1:
        return array[..., np.newaxis]
    return array


def scalar_rows(model: ServedModel) -> frozenset[str]:
    """Names of tensors of one number for each row; clients of the v2 protocol see one dimension more."""
    config = model.config
    return frozenset(
        tensor["name"]
        for key in ("input", "output")
        for tensor in config.get(key, ())
        if tensor.get("reshape") is not None and not tensor["reshape"].get("shape")
    )
