"""Check of a complete configuration against the inputs and outputs of a loaded graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tritonpy.plugin import (
    DATATYPES,
    GivenTensor,
    Internal,
    InvalidArg,
    JsonObject,
    TritonError,
    check_datatype,
    check_dims,
    given_inputs,
    kept_outputs,
)

from tritonpy_backend_tensorflow.graph import Graph
from tritonpy_backend_tensorflow.tensor_info import TensorInfo


@dataclass(frozen=True, slots=True)
class Fit:
    """How a configuration and a graph fit together.

    Attributes:
        scalars: names of tensors without dimensions; a configuration has one for each.
        sizes: name, axis and size of the dimensions of inputs that the graph fixes and the configuration does
            not; to be compared before each call, because TensorFlow does not.
    """

    scalars: frozenset[str]
    sizes: tuple[tuple[str, int, int], ...]


def check_tensors(config: JsonObject, graph: Graph) -> Fit:
    """Compare a complete configuration with a graph; sizes that the graph does not say are taken from it.

    Raises:
        TritonError: they do not fit, in Triton's words.
    """
    given, kept = given_inputs(config), kept_outputs(config)
    inputs, outputs = config.get("input", []), config.get("output", [])
    for tensor in given:  # before they are counted, as Triton does
        _check_given(config, tensor, graph.inputs.get(tensor.name), "input")
    _check_count(config, graph, given)
    found_inputs = [_found(graph.inputs, tensor["name"], "input") for tensor in inputs]
    found_outputs = [_found_output(graph, tensor["name"]) for tensor in outputs]
    for tensor, info in zip(inputs, found_inputs, strict=True):
        if tensor.get("optional", False) and not info.has_default:
            raise InvalidArg(
                f"unable to load model '{config['name']}', optional input '{info.name}' is required by the "
                "model: "
                "expected a placeholder with a default, which stands in for it"
            )
        _check_tensor(config, "input", tensor, _opened(config, tensor, info, graph))
    cut = {name for batch_output in config.get("batch_output", ()) for name in batch_output["target_name"]}
    for tensor, info in zip(outputs, found_outputs, strict=True):
        _check_tensor(config, "output", tensor, info, is_cut=info.name in cut or not graph.has_signature)
    for tensor in kept:
        _check_given(config, tensor, graph.find_output(tensor.name), "output")
    sizes = [
        (info.name, axis, size)
        for tensor, info in zip(inputs, found_inputs, strict=True)
        for axis, size in enumerate(info.dims or ())
        if size != -1 and _opened(config, tensor, info, graph).shape[axis] == -1
    ]
    scalars = frozenset(info.name for info in (*found_inputs, *found_outputs) if info.dims == ())
    return Fit(scalars, tuple(sizes))


def _opened(config: JsonObject, tensor: JsonObject, info: TensorInfo, graph: Graph) -> TensorInfo:
    """The input of a graph without signature, of any size where its configuration says any size.

    Triton compares only the names of those, and configurations for it may say less than the graph.
    """
    if graph.has_signature or info.dims is None:
        return info
    dims = [int(dim) for dim in tensor.get("reshape", tensor).get("shape", tensor["dims"])]
    full = (0, *dims) if int(config.get("max_batch_size", 0)) > 0 else tuple(dims)
    if len(full) != len(info.dims):
        return info
    return replace(
        info, dims=tuple(-1 if want == -1 else got for want, got in zip(full, info.dims, strict=True))
    )


def _check_count(config: JsonObject, graph: Graph, given: Sequence[GivenTensor]) -> None:
    inputs = config.get("input", [])
    for kind in ("input", "output"):
        if not config.get(kind):
            raise InvalidArg(f"model configuration must contain at least one {kind}, none were specified.")
    names = {*(tensor["name"] for tensor in inputs), *(tensor.name for tensor in given)}
    what = (
        f"unable to load model '{config['name']}', configuration expects {len(inputs)} inputs, model provides"
    )
    if not graph.has_signature:
        if len(names) > len(graph.inputs):
            raise InvalidArg(f"{what} at most {len(graph.inputs)}")
        return
    optional = {name for name, info in graph.inputs.items() if info.has_default}
    if len(names - optional) != len(graph.inputs.keys() - optional):
        raise InvalidArg(f"{what} {len(graph.inputs)}")


def _check_tensor(
    config: JsonObject, kind: str, tensor: JsonObject, info: TensorInfo, *, is_cut: bool = False
) -> None:
    model_name = config["name"]
    max_batch_size = int(config.get("max_batch_size", 0))
    reshape = tensor.get("reshape")
    dims = [int(dim) for dim in (tensor["dims"] if reshape is None else reshape.get("shape", ()))]
    if info.dims is None or is_cut:
        pass  # what the configuration says is believed
    elif tensor.get("allow_ragged_batch", False):
        if info.dims != (-1,):
            raise InvalidArg(
                f"unable to load model '{model_name}', configuration expects model provides input with shape "
                f"[-1]  for ragged input '{info.name}', model provides [{','.join(map(str, info.dims))}]"
            )
    elif info.dims or max_batch_size or any(dim != 1 for dim in dims):
        check_dims(model_name, info, dims, max_batch_size)
    check_datatype(model_name, kind, tensor["data_type"], info)


def _check_given(config: JsonObject, tensor: GivenTensor, info: TensorInfo | None, kind: str) -> None:
    """Compare a tensor that the server gives or keeps by itself."""
    model_name = config["name"]
    max_batch_size = int(config.get("max_batch_size", 0))
    if info is None:
        raise Internal(
            f"configuration specified {tensor.role} '{tensor.name}', but model does not provide that {kind}"
        )
    configured = DATATYPES[tensor.datatype].config_name
    if tensor.role != "sequence control":
        check_datatype(
            model_name, f"{kind} state" if tensor.role == "state" else tensor.role, configured, info
        )
        if info.dims is not None and tensor.role == "state":
            check_dims(model_name, info, tensor.dims, max_batch_size)
        elif info.dims is not None and len(info.dims) != len(tensor.dims):
            check_dims(model_name, info, tensor.dims, 0)
        return
    where = f"unable to load model '{model_name}', sequence control '{tensor.name}': "
    if info.dims is not None:
        try:
            check_dims(model_name, info, tensor.dims, max_batch_size)
        except TritonError as exc:
            raise InvalidArg(f"{where}{exc}") from exc
    if tensor.datatype != info.datatype:
        raise InvalidArg(
            f"{where}the model expects TYPE_{info.datatype or info.type_name} but the model configuration "
            f"specifies data-type {configured}"
        )


def _found(infos: Mapping[str, TensorInfo], name: str, kind: str) -> TensorInfo:
    info = infos.get(name)
    if info is None:
        raise _unexpected(name, kind, infos)
    return info


def _found_output(graph: Graph, name: str) -> TensorInfo:
    info = graph.find_output(name)
    if info is None:
        raise _unexpected(name, "output", graph.outputs)
    return info


def _unexpected(name: str, kind: str, allowed: Iterable[str]) -> TritonError:
    return InvalidArg(
        f"unexpected inference {kind} '{name}', allowed {kind}s are: {', '.join(sorted(allowed))}"
    )
