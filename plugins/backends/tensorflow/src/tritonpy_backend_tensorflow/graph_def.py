"""GraphDefs: files with a graph whose variables have become constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonpy.plugin import InvalidArg, TritonError

from tritonpy_backend_tensorflow.framework import Framework, framework_error
from tritonpy_backend_tensorflow.graph import Device, Graph, open_session
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
    session = open_session(framework, settings, device)
    try:
        graph = session.graph
        with graph.as_default(), graph.device(device.name):
            tf.import_graph_def(graph_def, name="")
        operations = graph.get_operations()
        inputs = {op.name: _info(op) for op in operations if op.type in _INPUTS}
        outputs = {op.name: _info(op) for op in operations if _is_output(op)}
        every = [node.name for node in graph_def.node]
        return Graph(
            framework,
            session,
            inputs,
            outputs,
            has_signature=False,
            verdict=judge(graph_def, every),
            inter_thread_count=settings.inter_thread_count,
        )
    except TritonError:
        session.close()
        raise
    except Exception as exc:
        session.close()
        raise framework_error(exc, f"failed to load model '{model_name}': ") from exc


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
