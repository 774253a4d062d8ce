"""The PyTorch models that benchmarks serve, as files of each kind."""

from __future__ import annotations

import io
import tempfile
import textwrap
import warnings
from pathlib import Path

import torch
from torch.export import Dim
from tritonpy_sdk import ModelRepository

Files = dict[str, bytes | str]

KINDS = ("script", "export", "compiled", "source")
"""TorchScript, an exported program, an AOTInductor package, and Python code."""

SOURCES = {
    "dense": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.Sequential(
                    torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
                )

            def forward(self, x):
                return self.layers(x)
    """,
    "conv": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.Sequential(
                    torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(),
                    torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU(),
                    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10),
                )

            def forward(self, x):
                return self.layers(x)
    """,
    "slow": """
        class Net(torch.nn.Module):
            def forward(self, x):
                for _ in range(TIMES):
                    x = (x @ x).tanh()
                return x[:, :1, :1]
    """,
    "heavy": """
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4096, 4096)

            def forward(self, x):
                return self.layer(x)
    """,
}
"""Networks that take microseconds, a millisecond for each row, and half a second, and one of 64 MiB."""

SHAPES = {"dense": (16,), "conv": (3, 64, 64), "slow": (1024, 1024), "heavy": (4096,)}
OUTPUTS = {"dense": (8,), "conv": (10,), "slow": (1, 1), "heavy": (4096,)}


def source_of(name: str, times: int = 1) -> str:
    """The Python source of a model; `times` is how often the slow one multiplies."""
    return "import torch\n\n\n" + textwrap.dedent(SOURCES[name]).strip().replace("TIMES", str(times)) + "\n"


def module_of(name: str, times: int = 1) -> torch.nn.Module:
    """The model itself."""
    scope: dict[str, type[torch.nn.Module]] = {}
    exec(source_of(name, times), scope)
    return scope["Net"]().eval()


def files_of(name: str, kind: str, times: int = 1) -> Files:
    """The files of a model of one kind.

    Raises:
        Exception: of PyTorch's compiler, where there is no C++ compiler on the machine.
    """
    if kind == "source":
        return {"model.py": source_of(name, times)}
    module = module_of(name, times)
    if kind == "script":
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated
            torch.jit.save(torch.jit.trace(module, torch.zeros(2, *SHAPES[name])), buffer)
        return {"model.pt": buffer.getvalue()}
    sample = torch.zeros(2, *SHAPES[name])
    program = torch.export.export(module, (sample,), dynamic_shapes=({0: Dim("batch", max=64)},))
    buffer = io.BytesIO()
    if kind == "export":
        torch.export.save(program, buffer)
        return {"model.pt2": buffer.getvalue()}
    with tempfile.TemporaryDirectory() as folder:
        made = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/model.pt2")
        return {"model.pt2": Path(made).read_bytes()}


def write_model(
    repository: ModelRepository, title: str, name: str, kind: str, files: Files, **config: object
) -> None:
    """Put a model into a repository, with one thread for each instance."""

    def tensor(called: str, dims: tuple[int, ...]) -> dict[str, object]:
        return {"name": called, "data_type": "TYPE_FP32", "dims": list(dims)}

    settings: dict[str, object] = {
        "backend": "pytorch",
        "max_batch_size": 16,
        "input": [tensor("x" if kind != "compiled" else "INPUT__0", SHAPES[name])],
        "output": [tensor("OUTPUT__0", OUTPUTS[name])],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "parameters": {"INTRA_OP_THREAD_COUNT": {"string_value": "1"}},
    }
    if kind == "source":
        settings["runtime"] = "model.py"
    repository.model(title, settings | config, files)
