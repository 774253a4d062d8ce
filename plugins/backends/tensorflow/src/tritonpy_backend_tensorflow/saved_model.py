"""SavedModels: directories with a graph, variables, assets and signatures."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tritonpy.plugin import InvalidArg, Unsupported

from tritonpy_backend_tensorflow.framework import Framework
from tritonpy_backend_tensorflow.graph import Device, Graph, new_session
from tritonpy_backend_tensorflow.settings import SIGNATURE, TAG, Settings
from tritonpy_backend_tensorflow.tensor_info import TensorInfo, tensor_info
from tritonpy_backend_tensorflow.traces import judge

_log = logging.getLogger("tritonpy.backend.tensorflow")

_DEFAULT_SIGNATURE = "serving_default"
_NOT_FOR_CALLS = ("__saved_model_init_op", "__saved_model_train_op")


def load_saved_model(
    framework: Framework, path: Path, model_name: str, settings: Settings, device: Device
) -> Graph:
    """Load one graph of a SavedModel, with the inputs and outputs of one signature.

    Raises:
        TritonError: the directory is broken, or has not what the settings ask for.
    """
    from tensorflow.python.saved_model.loader_impl import SavedModelLoader

    with new_session(framework, settings, device, model_name) as session:
        loader = SavedModelLoader(str(path))
        _check_tag(loader, model_name, settings.graph_tag)
        meta_graph = loader.load(session, settings.graph_tag.split(","))
        signature = _choose(meta_graph.signature_def, model_name, settings.signature)
        inputs = _infos(framework, session.graph, signature.inputs, model_name)
        outputs = _infos(framework, session.graph, signature.outputs, model_name)
        return Graph(
            framework,
            session,
            inputs,
            outputs,
            has_signature=True,
            verdict=judge(meta_graph.graph_def, [info.tensor for info in outputs.values()]),
            inter_thread_count=settings.inter_thread_count,
        )


def _check_tag(loader: Any, model_name: str, tag: str) -> None:
    found = [tuple(meta_graph.meta_info_def.tags) for meta_graph in loader.saved_model.meta_graphs]
    if set(tag.split(",")) not in map(set, found):
        allowed = ", ".join(f"'{','.join(tags)}'" for tags in found)
        raise InvalidArg(
            f"unable to load model '{model_name}', expected '{tag}' tag; parameter '{TAG}' may be one of "
            f"{allowed}"
        )


def _choose(signatures: Mapping[str, Any], model_name: str, wanted: str) -> Any:
    """The signature that is asked for, or the usual one, or the first."""
    usable = sorted(name for name in signatures if name not in _NOT_FOR_CALLS)
    if wanted and wanted not in signatures:
        raise InvalidArg(
            f"unable to load model '{model_name}', expected '{wanted}' signature; parameter '{SIGNATURE}' "
            "may be "
            f"one of {', '.join(map(repr, usable)) or 'none: the model has no signature'}"
        )
    name = wanted or (_DEFAULT_SIGNATURE if _DEFAULT_SIGNATURE in usable else next(iter(usable), ""))
    if not name:
        raise InvalidArg(
            f"unable to load model '{model_name}', expected '{_DEFAULT_SIGNATURE}' signature, and the model "
            "has none; save it with signatures=..."
        )
    if not wanted and name != _DEFAULT_SIGNATURE:
        _log.warning(
            "model '%s' has no signature '%s', '%s' is served; parameter '%s' chooses one of %s",
            model_name, _DEFAULT_SIGNATURE, name, SIGNATURE, ", ".join(usable),
        )  # fmt: skip
    return signatures[name]


def _infos(
    framework: Framework, graph: Any, described: Mapping[str, Any], model_name: str
) -> dict[str, TensorInfo]:
    tf = framework.tf
    infos = {}
    for name in sorted(described):
        info = described[name]
        if not info.name:
            raise Unsupported(
                f"unable to load model '{model_name}', tensor '{name}' of its signature is made of several "
                "tensors, as sparse and ragged ones are; export a signature with dense tensors"
            )
        infos[name] = tensor_info(
            name,
            graph.get_tensor_by_name(info.name),
            tf.dtypes.as_dtype(info.dtype),
            tf.TensorShape(info.tensor_shape),
        )
    return infos
