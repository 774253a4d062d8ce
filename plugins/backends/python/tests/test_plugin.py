"""The door through which the server comes."""

from __future__ import annotations

import ast
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import triton_python_backend_utils as pb_utils
import tritonpy_backend_python
import tritonpy_model
from tritonpy.plugin import Backend, Model, WorkerCommand

WORKER_SOURCES = [
    *sorted(Path(pb_utils.__file__).parent.glob("*.py")),
    *sorted(Path(tritonpy_model.__file__).parent.glob("*.py")),
    *sorted((Path(tritonpy_backend_python.__file__).parent / "worker").glob("*.py")),
]


def test_the_backend_is_found_by_its_name():
    [found] = entry_points(group="tritonpy.backends", name="python")

    assert found.load() is tritonpy_backend_python


def test_instances_are_processes_and_the_model_is_a_model_py():
    attributes = tritonpy_backend_python.backend_attributes(Backend("python"))

    assert attributes.execution == "process"
    assert attributes.default_filename == "model.py"


def test_the_worker_is_a_plain_file_that_any_interpreter_can_run():
    model = Model("net", 1, {"name": "net"}, Path("/models/net"), Backend("python"))

    answer = tritonpy_backend_python.worker_command(model)

    assert answer == WorkerCommand([sys.executable, str(tritonpy_backend_python.WORKER)])
    assert tritonpy_backend_python.WORKER.is_file()


@pytest.mark.parametrize("path", WORKER_SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_workers_run_is_written_for_python_3_9(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))

    assert (
        any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
        or not tree.body[1:]
    )  # annotations are not evaluated


def test_what_workers_run_imports_nothing_but_numpy_the_standard_library_and_itself():
    own = {"triton_python_backend_utils", "tritonpy_model", "_tritonpy_python_worker"}
    allowed = {*sys.stdlib_module_names, "numpy", *own}

    imported = set()
    for path in WORKER_SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(node.module.partition(".")[0])

    assert imported - allowed == set()
