"""The operators xyz: which models get them, and what models make of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import build_ops
import numpy as np
import pytest
import tritonpy_ops_xyz
from tritonpy.plugin import InferRequest, Tensor
from tritonpy_sdk.testing import BackendDriver, OpLibraryConformance, ask_op_libraries

MAKE_MODELS = build_ops.ROOT / "make_models.py"


class TestRules(
    OpLibraryConformance, ops=tritonpy_ops_xyz, frameworks=["pytorch", "tensorflow"], are_built=False
):
    """What all plugins with operators have in common; a test that fails says what to do."""

    def make_model(self, framework: str, directory: Path) -> None:
        (directory / "some").write_bytes(tritonpy_ops_xyz.NAMES[framework])


@pytest.mark.parametrize(
    ("framework", "content", "gets"),
    [
        ("pytorch", b"torch.ops.ops_xyz.squared_relu", ["pytorch.so"]),
        ("tensorflow", b"\x13Ops_xyz>SquaredRelu", ["tensorflow.so"]),
        ("pytorch", bytes(tritonpy_ops_xyz.PIECE_SIZE - 3) + b"ops_xyz", ["pytorch.so"]),
        ("pytorch", b"torch.ops.aten.relu", []),
        ("pytorch", b"", []),
        ("onnxruntime", b"ops_xyz", []),
    ],
)
def test_models_that_call_an_operator_get_its_library(
    framework: str, content: bytes, gets: list[str], tmp_path: Path
) -> None:
    (tmp_path / "1/variables").mkdir(parents=True)
    (tmp_path / "1/variables/some").write_bytes(content)

    paths = ask_op_libraries(tritonpy_ops_xyz, framework, tmp_path)

    assert [path.name for path in paths] == gets


@pytest.mark.toolchain
@pytest.mark.parametrize("framework", build_ops.FLAGS)
def test_a_model_is_served_with_the_operator(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if framework not in build_ops.installed():
        pytest.skip(f"{framework} is not installed")
    libraries, repository = tmp_path / "lib", tmp_path / "models"
    build_ops.build(framework, libraries)
    # By another process: in this one nothing would have to open the library any more.
    command = [sys.executable, "-W", "ignore", str(MAKE_MODELS), str(repository), str(libraries), framework]
    sources = str(Path(tritonpy_ops_xyz.__file__).parents[1])
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": sources})
    monkeypatch.setattr(tritonpy_ops_xyz, "LIBRARIES", libraries)
    driver = BackendDriver(framework, repository, op_libraries={"xyz": tritonpy_ops_xyz})

    with driver.load(f"squared_relu_{framework}") as model:
        x = Tensor.from_numpy("X", np.array([[-1, 2, 3]], "f4"))
        [answer] = model.execute([InferRequest(model.handle.name, {"X": x})])

    [y] = answer.only.outputs
    assert (y.name, y.numpy().tolist()) == ("Y", [[0, 4, 9]])
