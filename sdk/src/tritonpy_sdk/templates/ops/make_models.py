"""Save a model for each framework that is installed here; both call the operator."""

from __future__ import annotations

import sys
from pathlib import Path

import tritonpy_ops_xyz
from build_ops import installed


def save_pytorch(path: Path, library: Path) -> None:
    import torch

    torch.ops.load_library(library)

    class Net(torch.nn.Module):
        def forward(self, X: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"Y": torch.ops.ops_xyz.squared_relu(X)}

    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Net(), (torch.ones(2, 3),), dynamic_shapes={"X": {0: batch}})
    torch.export.save(program, path / "model.pt2")


def save_tensorflow(path: Path, library: Path) -> None:
    import tensorflow as tf

    operators = tf.load_op_library(str(library))

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="X")])
        def call(self, X: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"Y": operators.ops_xyz_squared_relu(x=X)}

    net = Net()
    tf.saved_model.save(net, str(path / "model.savedmodel"), signatures=net.call)


def save(framework: str, repository: Path, libraries: Path) -> None:
    path = repository / f"squared_relu_{framework}/1"
    path.mkdir(parents=True, exist_ok=True)
    {"pytorch": save_pytorch, "tensorflow": save_tensorflow}[framework](path, libraries / f"{framework}.so")


if __name__ == "__main__":
    repository = Path(sys.argv[1])
    libraries = Path(sys.argv[2]) if len(sys.argv) > 2 else tritonpy_ops_xyz.LIBRARIES
    for framework in sys.argv[3:] or installed():
        save(framework, repository, libraries)
