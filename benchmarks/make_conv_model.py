"""Write a convolutional network as an ONNX file, with weights drawn from a fixed seed.

    python benchmarks/make_conv_model.py OUT.onnx [--layers 4] [--channels 64]

It stands for "a model that computes": input IMAGE [batch, 3, 64, 64] FP32, output SCORES [batch, 10]. With
the default size a batch of four images takes tens of milliseconds on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUT_NAME, OUTPUT_NAME = "IMAGE", "SCORES"
IMAGE_SHAPE = (3, 64, 64)
CLASSES = 10


def make_conv_model(layers: int, channels: int) -> onnx.ModelProto:
    """Build the network: `layers` convolutions with ReLU, mean over the image, one matrix product."""
    random = np.random.default_rng(seed=2)
    nodes, weights = [], []

    def weight(name: str, *shape: int) -> str:
        scale = 1.0 / np.sqrt(np.prod(shape[1:]))
        values = (random.standard_normal(shape) * scale).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name))
        return name

    value, depth = INPUT_NAME, IMAGE_SHAPE[0]
    for layer in range(layers):
        kernel = weight(f"kernel_{layer}", channels, depth, 3, 3)
        nodes.append(helper.make_node("Conv", [value, kernel], [f"conv_{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"conv_{layer}"], [f"relu_{layer}"]))
        value, depth = f"relu_{layer}", channels
    nodes.append(helper.make_node("GlobalAveragePool", [value], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["features"]))
    nodes.append(helper.make_node("MatMul", ["features", weight("dense", channels, CLASSES)], [OUTPUT_NAME]))

    graph = helper.make_graph(
        nodes,
        "conv",
        [helper.make_tensor_value_info(INPUT_NAME, TensorProto.FLOAT, ["batch", *IMAGE_SHAPE])],
        [helper.make_tensor_value_info(OUTPUT_NAME, TensorProto.FLOAT, ["batch", CLASSES])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description="Write a convolutional network as an ONNX file.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--channels", type=int, default=64)
    options = parser.parse_args()
    options.path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(make_conv_model(options.layers, options.channels), options.path)


if __name__ == "__main__":
    main()
