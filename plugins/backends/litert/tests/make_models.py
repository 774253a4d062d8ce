"""The source of the models in `tests/models` and `tests/files`; `python make_models.py` writes them anew.

It needs TensorFlow, whose converter is the one that writes such files. The tests do not.
"""

from __future__ import annotations

from pathlib import Path

import flatbuffers
import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from tritonpy_sdk import ModelRepository

HERE = Path(__file__).resolve().parent
TYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]


def converter(function, **specs):
    """A converter for a function; `specs` are dims and types of its inputs."""
    module = tf.Module()
    module.call = tf.function(function)
    inputs = {name: tf.TensorSpec(dims, dtype, name=name) for name, (dims, dtype) in specs.items()}
    concrete = module.call.get_concrete_function(**inputs)
    return tf.lite.TFLiteConverter.from_concrete_functions([concrete], module)


def convert(function, **specs):
    return converter(function, **specs).convert()


def negative(X):
    return {"Y": -X}


def affine(X):
    """A batch dimension, one of any size, two outputs."""
    return {"DOUBLED": X * 2.0, "SUM": tf.reduce_sum(X, 1, keepdims=True)}


def fixed(X, Y):
    """No batch dimension, a scalar output."""
    return {"Z": tf.reduce_sum(X * tf.cast(Y, tf.float32))}


def strings(TEXT, I):  # noqa: E741
    """One output is an input itself."""
    return {"SAME": tf.identity(TEXT), "EQUAL": tf.equal(TEXT, "same"), "NEXT": I + 1}


def types(**tensors):
    return {name.replace("_in", "_out"): tf.reshape(tensor, [-1, 2, 1]) for name, tensor in tensors.items()}


def typed(names):
    """A model with an input and an output of each type."""
    module = tf.Module()
    specs = [tf.TensorSpec([None, 2], getattr(tf, name), name=f"{name}_in") for name in names]

    def call(*tensors):
        return types(**{f"{name}_in": tensor for name, tensor in zip(names, tensors, strict=True)})

    module.call = tf.function(call, input_signature=specs)
    return tf.lite.TFLiteConverter.from_concrete_functions(
        [module.call.get_concrete_function()], module
    ).convert()


def quantised():
    random = np.random.default_rng(0)
    first, second = (tf.constant(random.normal(size=size).astype("f4")) for size in ((16, 8), (8, 4)))
    made = converter(lambda X: {"Y": tf.nn.relu(X @ first) @ second}, X=([None, 16], tf.float32))
    made.optimizations = [tf.lite.Optimize.DEFAULT]
    made.representative_dataset = lambda: ([random.normal(size=(1, 16)).astype("f4")] for _ in range(20))
    made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    made.inference_input_type = made.inference_output_type = tf.int8
    return made.convert()


def signatures():
    """Two signatures, each with a graph of its own."""
    module = tf.Module()
    spec = tf.TensorSpec([None, 2], tf.float32, name="X")
    module.more = tf.function(lambda X: {"MORE": X + 1.0, "SAME": X * 1.0}, input_signature=[spec])
    module.less = tf.function(lambda X: {"LESS": X - 1.0, "SAME": X * 1.0}, input_signature=[spec])
    path = HERE / "saved"
    tf.saved_model.save(module, path, signatures={"more": module.more, "less": module.less})
    try:
        return tf.lite.TFLiteConverter.from_saved_model(str(path), signature_keys=["more", "less"]).convert()
    finally:
        tf.io.gfile.rmtree(str(path))


def without_signature(content):
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    model.signatureDefs = []
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def counter():
    """A variable that each call changes."""
    module = tf.Module()
    module.total = tf.Variable([0.0])

    def count(X):
        return {"TOTAL": module.total.assign_add(X) + 0.0}

    module.call = tf.function(count, input_signature=[tf.TensorSpec([1], tf.float32, name="X")])
    made = tf.lite.TFLiteConverter.from_concrete_functions([module.call.get_concrete_function()], module)
    made.experimental_enable_resource_variables = True
    return made.convert()


def selected():
    made = converter(lambda S: {"N": tf.strings.length(S)}, S=([None], tf.string))
    made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    return made.convert()


def slow(X):
    for _ in range(8):
        X = tf.tanh(X @ X)
    return {"Y": X[:1, :1]}


def main():
    repository = ModelRepository(HERE / "models")
    for name, content in {
        "affine": convert(affine, X=([None, None], tf.float32)),
        "fixed": convert(fixed, X=([2, 3], tf.float32), Y=([2, 3], tf.int32)),
        "strings": convert(strings, TEXT=([None, 2], tf.string), I=([None], tf.int64)),
        "types": typed(TYPES + FLOATS),
        "quantised": quantised(),
    }.items():
        repository.model(name, None, {"model.tflite": content})
    variable = convert(negative, X=([None, 3], tf.float32))
    table = tf.constant(np.arange(6, dtype="f4").reshape(3, 2))
    for name, content in {
        "fixed": convert(negative, X=([1, 3], tf.float32)),
        "variable": variable,
        "free": convert(negative, X=([None, None], tf.float32)),
        "rows": convert(negative, X=([None], tf.float32)),
        "scalar": convert(negative, X=([], tf.float32)),
        "half_fixed": convert(lambda X: {"Y": tf.reduce_sum(X, 0, keepdims=True)}, X=([None, 3], tf.float32)),
        "two": convert(
            lambda X, I: {"Y": -X + 0.0 * tf.cast(I, tf.float32)[:, None]},  # noqa: E741
            X=([None, 3], tf.float32),
            I=([None], tf.int32),
        ),
        "signatures": signatures(),
        "without_signature": without_signature(variable),
        "lookup": convert(lambda I: {"ROW": tf.gather(table, I)}, I=([None], tf.int32)),  # noqa: E741
        "state": convert(
            lambda INPUT, START, OLD: {"OUTPUT": INPUT + OLD * (1 - START), "NEW": INPUT + OLD * (1 - START)},
            **{name: ([None, 1], tf.float32) for name in ("INPUT", "START", "OLD")},
        ),
        "counter": counter(),
        "selected": selected(),
        "bfloat16": convert(lambda X: {"Y": tf.reshape(X, [-1])}, X=([None, 2], tf.bfloat16)),
        "slow": convert(slow, X=([1024, 1024], tf.float32)),
    }.items():
        (HERE / "files" / f"{name}.tflite").write_bytes(content)


if __name__ == "__main__":
    main()
