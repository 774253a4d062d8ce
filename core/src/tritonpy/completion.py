"""Completion of a configuration from the tensors of a model's file, the same for every framework.

A backend that can read inputs and outputs from its files calls `complete_config` in its hook
`model_auto_complete_config`, and `check_datatype` and `check_dims` for each tensor when it loads the model.
Their rule for batches: a model can form them when the first dimension of every input and output may have any
size.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from tritonpy.batches.bindings import given_inputs, kept_outputs
from tritonpy.datatypes import CONFIG_DATATYPES, DATATYPES
from tritonpy.errors import InvalidArg, Unsupported
from tritonpy.handles import Backend, JsonObject

_log = logging.getLogger("tritonpy.backend")

DEFAULT_MAX_BATCH_SIZE_KEY = "default-max-batch-size"
DEFAULT_MAX_BATCH_SIZE = 4
"""Triton's default where `--backend-config` says nothing."""

_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
_MOST = 2**31 - 1


class FileTensor(Protocol):
    """One input or output as a model's file describes it; any object with these attributes."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type_name(self) -> str:
        """The framework's word for its type, such as `float32`."""

    @property
    def datatype(self) -> str:
        """The protocol's word for its type, such as `FP32`; "" for a type that the protocol cannot carry."""

    @property
    def shape(self) -> tuple[int, ...]:
        """With the dimension of the batch, if there is one; -1 for any size; empty for a scalar."""


_Tensor = TypeVar("_Tensor", bound=FileTensor)


def default_max_batch_size(backend: Backend) -> int:
    """The `max_batch_size` of models that can form batches and do not say how large; 0 leaves them without.

    It is `--backend-config=BACKEND,default-max-batch-size=N`, or that of all backends, or 4.

    Raises:
        InvalidArg: the setting is not a number.
    """
    text = backend.settings.get(DEFAULT_MAX_BATCH_SIZE_KEY)
    if text is None:
        return DEFAULT_MAX_BATCH_SIZE
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) and int(text) <= _MOST):
        raise InvalidArg(
            f"--backend-config={backend.name},{DEFAULT_MAX_BATCH_SIZE_KEY}: got '{text[:40]}', expected a "
            f"whole number from 0 to {_MOST}"
        )
    return int(text)


def can_batch(tensors: Iterable[FileTensor]) -> bool:
    """True if the first dimension of each of these inputs and outputs may have any size."""
    return all(tensor.shape and tensor.shape[0] == -1 for tensor in tensors)


def complete_config(
    config: JsonObject,
    inputs: Sequence[FileTensor],
    outputs: Sequence[FileTensor],
    *,
    batch_size: int,
    largest: int | None = None,
    has_batch: bool = True,
) -> JsonObject:
    """Return a copy of a configuration with batching, inputs and outputs filled in.

    A model that can form batches gets `batch_size` as its `max_batch_size` where that is 0, unless dims that
    are configured spell the dimension of the batch out; and one that ends up with more than 1 gets dynamic
    batching where no scheduler is chosen. Inputs are filled in where none is configured, outputs likewise;
    controls and states of sequences and batch inputs, which the server gives and keeps, are left out, and so
    is, with a warning, what the protocol cannot carry.

    Args:
        config: as the hook `model_auto_complete_config` finds it in `model.config`.
        inputs: of the model's file, in its order; only those that a request may bring.
        outputs: likewise.
        batch_size: what to fill in, such as `default_max_batch_size(model.backend)`; 0 for nothing.
        largest: the largest batch that the model's file allows; None for any.
        has_batch: False where the file says that first dimensions of any size differ from each other, so that
            none is the dimension of a batch.

    Raises:
        InvalidArg: the configuration asks for batches that the model cannot form, in Triton's words.
    """
    completed = dict(config)
    size = int(config.get("max_batch_size", 0))
    given = {tensor.name for tensor in given_inputs(config)}
    kept = {tensor.name for tensor in kept_outputs(config)}
    inputs = [tensor for tensor in carried(config["name"], inputs) if tensor.name not in given]
    outputs = [tensor for tensor in carried(config["name"], outputs) if tensor.name not in kept]
    if has_batch and can_batch((*inputs, *outputs)):
        if size == 0 and not _spells_out_batch(config, inputs, outputs):
            size = batch_size
            if size:
                _log.info(
                    "model '%s' can form batches and its configuration does not say how large: "
                    "max_batch_size is set to %d",
                    config["name"],
                    size,
                )
        if largest is not None and size > largest:
            raise InvalidArg(
                f"autofill failed for model '{config['name']}': configuration specified max-batch {size} but "
                f"the model only supports max-batch {largest}"
            )
        completed["max_batch_size"] = size
        if size > 1 and not any(key in config for key in _SCHEDULERS):
            completed["dynamic_batching"] = {}
    elif size > 0:
        raise InvalidArg(
            f"autofill failed for model '{config['name']}': model does not support batching while non-zero "
            f"max_batch_size is specified"
        )
    for key, tensors in (("input", inputs), ("output", outputs)):
        if not config.get(key):
            completed[key] = [tensor_config(tensor, size > 0) for tensor in tensors]
    return completed


def carried(model_name: str, tensors: Iterable[_Tensor]) -> list[_Tensor]:
    """Those of a model's tensors that have a datatype; the log has a warning of each other one."""
    kept = []
    for tensor in tensors:
        if tensor.datatype:
            kept.append(tensor)
        else:
            _log.warning(
                "model '%s': '%s' is left out, there is no datatype for %s",
                model_name,
                tensor.name,
                tensor.type_name,
            )
    return kept


def no_datatype(model_name: str, kind: str, tensor: FileTensor) -> Unsupported:
    """The error for a tensor of a type that the protocol cannot carry; `kind` is what it is to the model."""
    return Unsupported(
        f"model '{model_name}': {kind} '{tensor.name}' is of {tensor.type_name}, for which there is no "
        "datatype"
    )


def check_datatype(model_name: str, kind: str, configured: str, tensor: FileTensor) -> None:
    """Compare a configured datatype, such as `TYPE_FP32`, with that in a model's file.

    Args:
        model_name: for the error.
        kind: what the tensor is to the model, for the error, such as `input`.
        configured: the datatype as configurations write it.
        tensor: what the file says.

    Raises:
        InvalidArg: they differ, in Triton's words.
        Unsupported: the protocol cannot carry the file's.
    """
    if not tensor.datatype:
        raise no_datatype(model_name, kind, tensor)
    if CONFIG_DATATYPES[configured].name != tensor.datatype:
        raise InvalidArg(
            f"unable to load model '{model_name}', configuration expects datatype {configured} for {kind} "
            f"'{tensor.name}', model provides {DATATYPES[tensor.datatype].config_name}"
        )


def check_dims(model_name: str, tensor: FileTensor, dims: Sequence[int], max_batch_size: int) -> None:
    """Compare configured dims with the shape in a model's file.

    A dimension of any size in the file takes every configured one; a dimension with a size takes only that.

    Args:
        model_name: for the error.
        tensor: what the file says.
        dims: what is configured: `reshape`, or else `dims`.
        max_batch_size: from 1 a dimension of any size stands before `dims`.

    Raises:
        InvalidArg: they do not fit, in Triton's words.
    """
    where = f"model '{model_name}', tensor '{tensor.name}': "
    shape = tensor.shape
    batches = max_batch_size > 0
    if batches and not can_batch((tensor,)):
        raise InvalidArg(
            f"{where}for the model to support batching the shape should have at least 1 dimension and the "
            f"first dimension must be -1; but shape expected by the model is {_text(shape)}"
        )
    full = (-1, *dims) if batches else tuple(dims)
    if len(full) == len(shape) and all(want in (-1, got) for want, got in zip(shape, full, strict=True)):
        return
    what = f"shape {_text(full)}"
    if batches:
        what = (
            f"an initial batch dimension because max_batch_size > 0 and then the configured dims, "
            f"complete shape {_text(full)}"
        )
    raise InvalidArg(
        f"{where}the model expects {len(shape)} dimensions (shape {_text(shape)}) but the model "
        f"configuration specifies {len(full)} dimensions ({what})"
    )


def tensor_config(tensor: FileTensor, batches: bool) -> JsonObject:
    """The configuration of an input or output, with the types and dims of a model's file.

    Args:
        tensor: what the file says; of a scalar the configuration has one dimension.
        batches: its first dimension is that of the batch, which a configuration leaves out.
    """
    dims = tensor.shape[1:] if batches else tensor.shape
    config: JsonObject = {
        "name": tensor.name,
        "data_type": DATATYPES[tensor.datatype].config_name,
        "dims": list(dims) or [1],  # a configuration has no scalars
    }
    if batches and not dims:
        config["reshape"] = {"shape": []}
    return config


def _spells_out_batch(
    config: JsonObject, inputs: Sequence[FileTensor], outputs: Sequence[FileTensor]
) -> bool:
    """True if there are as many configured dims as in the file, so that none is left for the batch."""
    return any(
        configured["name"] == tensor.name and len(configured["dims"]) == len(tensor.shape)
        for key, tensors in (("input", inputs), ("output", outputs))
        for configured in config.get(key, ())
        for tensor in tensors
        if "reshape" not in configured
    )


def _text(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
