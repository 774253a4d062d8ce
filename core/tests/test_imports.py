"""What importing costs and needs; every case is a fresh interpreter, since imports cannot be taken back."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import tritonpy

SOURCE = Path(tritonpy.__file__).parent
FRAMEWORKS = ["torch", "onnxruntime", "onnx", "tensorflow", "tensorrt", "jax", "boto3", "ray"]
NOT_ON_WINDOWS = ["fcntl", "resource", "uvloop", "_posixshmem", "pwd", "grp", "termios"]


def modules() -> list[str]:
    """Every module of core; `__main__` would run a program."""
    found = pkgutil.walk_packages([str(SOURCE)], "tritonpy.", onerror=lambda name: None)
    return ["tritonpy", *(info.name for info in found if not info.name.endswith("__main__"))]


def run(program: str) -> str:
    """Run a program in a fresh interpreter; its standard output."""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(names: list[str], suspects: list[str]) -> list[str]:
    """Which of the suspects are in `sys.modules` after importing `names`."""
    return run(
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(*(suspect for suspect in {suspects!r} if suspect in sys.modules))"
    ).split()


def test_the_test_sees_modules_at_all():
    assert {"tritonpy", "tritonpy.plugin", "tritonpy.ipc.arena"} <= set(modules())
    assert imported_by(["json"], ["json", "aiohttp"]) == ["json"]


def test_importing_the_package_brings_neither_server_nor_numpy():
    suspects = ["numpy", "asyncio", "aiohttp", "grpc", "google.protobuf", "uvloop", "pluggy", "click", "rich"]

    assert imported_by(["tritonpy"], suspects) == []


def test_the_door_for_plugins_brings_neither_web_framework_nor_grpc_nor_protobuf():
    suspects = [
        "aiohttp",
        "grpc",
        "google.protobuf",
        "httptools",
        "uvloop",
        "prometheus_client",
        "click",
        "rich",
    ]

    assert imported_by(["tritonpy.plugin"], suspects) == []


def test_built_in_backends_import_only_through_the_door():
    assert (
        imported_by(
            ["tritonpy.builtin.identity", "tritonpy.builtin.repeat", "tritonpy.builtin.square"],
            ["tritonpy.model", "tritonpy.frontends", "tritonpy.scheduler", "tritonpy.plugin_manager"],
        )
        == []
    )


def test_the_whole_core_loads_no_framework_and_no_web_framework():
    assert imported_by(modules(), [*FRAMEWORKS, "aiohttp", "starlette"]) == []


def test_the_whole_core_can_be_imported_where_posix_modules_are_missing():
    blocked = dict.fromkeys(NOT_ON_WINDOWS)
    run(
        "import importlib, sys\n"
        # What the standard library itself imports conditionally is loaded before the door is shut.
        "import asyncio, mmap, socket, subprocess, shutil, getpass, multiprocessing.shared_memory\n"
        f"sys.modules.update({blocked!r})\n"
        f"for name in {modules()!r}: importlib.import_module(name)"
    )


# tritonpy.ipc is also loaded by the interpreters of Python models, which have numpy and nothing else of ours.

IPC_FILES = sorted((SOURCE / "ipc").glob("*.py"))
STANDARD_LIBRARY = sys.stdlib_module_names | {"numpy", "__future__"}


@pytest.mark.parametrize("path", IPC_FILES, ids=lambda path: path.name)
def test_ipc_is_written_in_python_3_9_and_imports_the_standard_library_and_numpy(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))

    absolute = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.level == 0
            else []
        )
    }
    levels = {node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert absolute <= STANDARD_LIBRARY
    assert levels <= {0, 1}


def test_ipc_works_when_it_is_loaded_by_its_path_alone():
    program = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('ipc', {str(SOURCE / 'ipc' / '__init__.py')!r},\n"
        f"    submodule_search_locations=[{str(SOURCE / 'ipc')!r}])\n"
        "sys.modules['ipc'] = module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "from ipc.channel import WorkerChannel\n"
        "from ipc.frame import FrameReader, encode_frame\n"
        "print(list(FrameReader().feed(encode_frame((1, (), 'x')))))\n"
        "assert not [name for name in sys.modules if name.startswith('tritonpy')]"
    )

    assert run(program) == "[(1, (), 'x')]\n"


def test_importing_the_whole_core_starts_no_thread():
    program = (
        "import importlib, threading\n"
        f"for name in {modules()!r}: importlib.import_module(name)\n"
        "print(threading.active_count())"
    )

    assert run(program) == "1\n"
