"""The source of the models in `tests/models`; `python make_models.py` writes them anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tritonpy_sdk import ModelRepository

v1 = tf.compat.v1


def described(tensors):
    return {
        name: meta_graph_pb2.TensorInfo(
            name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto()
        )
        for name, tensor in tensors.items()
    }


def saved(build):
    """The files of a SavedModel as TensorFlow 1 writes it, which is the smallest."""
    with tempfile.TemporaryDirectory() as folder, v1.Session(graph=tf.Graph()) as session:
        path = Path(folder, "model.savedmodel")
        inputs, outputs = build()
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.builder.SavedModelBuilder(str(path))
        signature = v1.saved_model.signature_def_utils.build_signature_def(
            described(inputs), described(outputs), "predict"
        )
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, strip_default_attrs=True
        )
        builder.save()
        return {
            f"model.savedmodel/{file.relative_to(path)}": file.read_bytes()
            for file in path.rglob("*")
            if file.is_file()
        }


def affine():
    """A batch dimension, one of any size, a variable, two outputs, no configuration."""
    x = v1.placeholder("float32", [None, None], name="X")
    factor = v1.get_variable("factor", initializer=2.0, use_resource=True)
    return {"X": x}, {"DOUBLED": x * factor, "SUM": tf.reduce_sum(x, 1, keepdims=True)}


def fixed():
    """No batch dimension, a scalar output."""
    x, y = v1.placeholder("float32", [2, 3], name="X"), v1.placeholder("int32", [2, 3], name="Y")
    return {"X": x, "Y": y}, {"Z": tf.reduce_sum(x * tf.cast(y, tf.float32))}


def strings():
    text, i = v1.placeholder("string", [None, 2], name="TEXT"), v1.placeholder("int64", [None], name="I")
    return {"TEXT": text, "I": i}, {"SAME": tf.identity(text), "NEXT": i + 1}


def bits():
    x, b = v1.placeholder("bfloat16", [None, 3], name="X"), v1.placeholder("bool", [None, 2], name="B")
    return {"X": x, "B": b}, {"Y": -x, "NOT_B": tf.logical_not(b)}


def counter():
    """Instances have sessions of their own, and answers depend on nothing that another request wrote."""
    x = v1.placeholder("float32", [None, 2], name="X")
    last = v1.get_variable("last", [], "float32", v1.zeros_initializer(), use_resource=False)
    with tf.control_dependencies([v1.assign(last, tf.reduce_sum(x))]):
        return {"X": x}, {"Y": tf.identity(x) + 1}


def frozen():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", [None, 4], name="input")
        tf.identity(tf.nn.relu(x - 1), name="output")
    return {"model.graphdef": graph.as_graph_def().SerializeToString()}


def main() -> None:
    """Write all models."""
    repository = ModelRepository(Path(__file__).parent / "models")
    for build in (affine, fixed, strings, bits, counter):
        repository.model(build.__name__, None, saved(build))
    repository.model(
        "frozen",
        {
            "platform": "tensorflow_graphdef",
            "max_batch_size": 8,
            "input": [{"name": "input", "data_type": "TYPE_FP32", "dims": [4]}],
            "output": [{"name": "output", "data_type": "TYPE_FP32", "dims": [4]}],
            "instance_group": [{"kind": "KIND_CPU", "count": 2}],
        },
        frozen(),
    )


if __name__ == "__main__":
    main()
