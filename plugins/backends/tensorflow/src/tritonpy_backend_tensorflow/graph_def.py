"""GraphDefs: files with a graph whose variables have become constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonpy.plugin import InvalidArg

from tritonpy_backend_tensorflow.framework import Framework
from tritonpy_backend_tensorflow.graph import Device, Graph, new_session
from tritonpy_backend_tensorflow.settings import Settings
from tritonpy_backend_tensorflow.tensor_info import TensorInfo, tensor_info
from tritonpy_backend_tensorflow.traces import judge

_INPUTS = ("Placeholder", "PlaceholderWithDefault")


def load_graph_def(
    framework: Framework, path: Path, model_name: str, settings: Settings, device: Device
) -> Graph:
    """Load a graph; its placeholders are inputs, and what no other operator takes are outputs.

    Raises:
        TritonError: the file is none, or broken.
    """
    tf = framework.tf
    graph_def = tf.compat.v1.GraphDef()
    try:
        graph_def.ParseFromString(path.read_bytes())
    except Exception as exc:  # protobuf's, which has several implementations
        raise InvalidArg(
            f"'{path}' of model '{model_name}' is no GraphDef: {exc}; expected a frozen graph in binary form"
        ) from exc
    if not graph_def.node:
        raise InvalidArg(f"'{path}' of model '{model_name}' is no GraphDef: it has no operators")
    with new_session(framework, settings, device, model_name) as session:
        tf.import_graph_def(graph_def, name="")
        operations = session.graph.get_operations()
        return Graph(
            framework,
            session,
            {op.name: _info(op) for op in operations if op.type in _INPUTS},
            {op.name: _info(op) for op in operations if _is_output(op)},
            has_signature=False,
            verdict=judge(graph_def, [node.name for node in graph_def.node]),
            inter_thread_count=settings.inter_thread_count,
        )


def _info(operation: Any) -> TensorInfo:
    tensor = operation.outputs[0]
    return tensor_info(operation.name, tensor, tensor.dtype, tensor.shape)


def _is_output(operation: Any) -> bool:
    """True if an operator computes something that no other one takes."""
    return (
        bool(operation.outputs)
        and operation.type not in (*_INPUTS, "Const")
        and not any(tensor.consumers() for tensor in operation.outputs)
    )
