"""Custom operators are there before the model that calls them is loaded."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.plugin import Backend, Model, TritonError, Unavailable, hookimpl
from tritonpy.server import Server
from tritonpy_backend_pytorch import model_execution
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import ask, compile_shared_object, find_compiler

torch = pytest.importorskip("torch")

from tritonpy_backend_pytorch.operators import operator_error  # noqa: E402  # imports PyTorch

OPERATOR = """
import torch

library = torch.library.Library("tritonpy_{name}", "DEF")
library.define("triple(Tensor x) -> Tensor")
library.impl("triple", lambda x: x * 3, "CompositeExplicitAutograd")
"""

# Saved by another process: where an operator is known already, nothing would have to open it.
SAVE = """
import io, sys, warnings

warnings.simplefilter("ignore")
NAMES = sys.argv[2:]


class Net(torch.nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.operator(x)


for name in NAMES:
    net = Net(getattr(torch.ops, "tritonpy_" + name).triple)
    torch.jit.trace(net, torch.ones(2)).save(f"{sys.argv[1]}/{name}.pt")
    torch.export.save(torch.export.export(net, (torch.ones(2),)), f"{sys.argv[1]}/{name}.pt2")
"""

EXAMPLE = Path(__file__).parents[4] / "examples/tritonpy-ops-xyz"
"""A package with an operator in C++."""

NAMES = ("own", "all", "plugin", "worker")
"""One operator for each test: an operator stays in the process, and with it what a test would show."""


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    """The files of models that call `tritonpy_<name>::triple`: TorchScript and an exported program."""
    folder = tmp_path_factory.mktemp("nets")
    operators = (OPERATOR.format(name=name) + f"{name} = library" for name in NAMES)
    program = "".join(operators) + SAVE
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, folder, *NAMES], check=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def operators(tmp_path):
    """Write the Python file with the operator of a name, and return its path."""

    def write(name):
        path = tmp_path.with_name(f"{tmp_path.name}_operators") / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(OPERATOR.format(name=name))
        return path

    return write


def config(*libraries):
    return {
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [2]}],
        "model_operations": {"op_library_filename": list(libraries)},
    }


def plugin(path, parameter):
    """A plugin with a library for the models that have a parameter."""

    @hookimpl
    def op_library_paths(framework, model):
        return [path] if framework == "pytorch" and model.parameter(parameter) else []

    return {"triple": SimpleNamespace(op_library_paths=op_library_paths)}


def test_a_model_finds_the_operators_of_its_libraries(tmp_path, load, nets):
    ModelRepository(tmp_path).model(
        "net", None, model_files={"operators/triple.py": OPERATOR.format(name="own")}
    )
    for _ in range(2):  # the second time they are there already
        model = load(nets["own.pt"], config("operators/triple.py"))
        assert model_execution(model.handle) == "process"
        assert ask(model, x=np.ones(2, "f4")) == {"Y": [3, 3]}


def test_all_models_find_the_operators_of_the_backends_setting(load, nets, operators):
    model = load(nets["all.pt2"], config(), settings={"op-library": str(operators("all"))})

    assert model_execution(model.handle) is None
    assert ask(model, x=np.ones(2, "f4")) == {"Y": [3, 3]}


def test_models_find_the_operators_of_plugins(load, nets, operators):
    wanted = {"parameters": {"triple": {"string_value": "1"}}}
    model = load(nets["plugin.pt"], config() | wanted, op_libraries=plugin(operators("plugin"), "triple"))

    assert model_execution(model.handle) == "process"
    assert ask(model, x=np.ones(2, "f4")) == {"Y": [3, 3]}


@contextmanager
def serving(repository, **plugins):
    """Serve a repository; gives a function that asks a model for what it makes of a tensor."""
    options = ServerOptions(
        (str(repository),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    with (
        Server(options, plugins=plugins) as server,
        tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client,
    ):

        def ask(model, name, values):
            tensor = tritonclient.http.InferInput(name, list(values.shape), "FP32")
            tensor.set_data_from_numpy(values)
            return client.infer(model, [tensor]).as_numpy("Y").tolist()

        yield ask


def test_a_worker_opens_the_libraries_of_plugins(tmp_path, nets, operators):
    wanted = {"backend": "pytorch", "parameters": {"triple": {"string_value": "1"}}}
    ModelRepository(tmp_path).model("net", config() | wanted, {"model.pt": nets["worker.pt"]})

    with serving(tmp_path, op_libraries=plugin(operators("worker"), "triple")) as ask:
        assert ask("net", "x", np.ones(2, "f4")) == [3, 3]
    assert not hasattr(torch.ops.tritonpy_worker, "triple")  # it was opened in the worker alone


@pytest.mark.parametrize("suffix", ["pt", "pt2"])
def test_a_missing_operator_is_named_with_what_mends_it(load, nets, suffix):
    message = (
        r"(?s)tritonpy_worker::triple.*; a library with the operator is named by "
        r"model_operations \{ op_library_filename \} of model 'net', or by a plugin"
    )
    with pytest.raises(TritonError, match=message):
        load(nets[f"worker.{suffix}"], config())


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [
        ("failed to load model 'net': Could not find schema for ops_xyz::squared_relu.", True),  # AOTInductor
        ("AttributeError: '_OpNamespace' 'ops_xyz' object has no attribute 'squared_relu'", True),  # model.py
        ("failed to load model 'net': file in archive is not in a subdirectory", False),
    ],
)
def test_other_kinds_of_models_have_other_words_for_a_missing_operator(text, is_meant):
    error = operator_error(Unavailable(text), Model("net", 1, {}, Path(), Backend("pytorch")))

    assert error.code is Unavailable.code
    assert error.message.startswith(text.rstrip("."))
    assert ("op_library_filename" in error.message) is is_meant


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nosuch.so", None, "unable to find '.*/net/nosuch.so', which 'op_library_filename' of"),
        (
            "bad.so",
            "text",
            "bad.so', which .* names, is no library of operators for PyTorch 2.*: OSError: .*file",
        ),
        ("bad.py", "1/0", "bad.py', which .* names, is no library of operators .*: ZeroDivisionError"),
        ("empty.py", "", "empty.py', which .* names, registers no operator"),
    ],
)
def test_a_library_that_cannot_be_opened_is_told(tmp_path, load, scripted, name, content, message):
    if content is not None:
        ModelRepository(tmp_path).model("net", None, model_files={name: content})

    with pytest.raises(TritonError, match=message):
        load(scripted(torch.nn.Identity()), config(name))


def test_a_library_for_all_models_that_cannot_be_opened_is_told(load, scripted):
    message = r"unable to find '.*nosuch.so', which --backend-config=pytorch,op-library names"
    with pytest.raises(TritonError, match=message):
        load(scripted(torch.nn.Identity()), config(), settings={"op-library": "nosuch.so"})


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Two builds of the example's library, and an exported program that calls its operator."""
    if find_compiler(".cc") is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("compiled")
    build = runpy.run_path(str(EXAMPLE / "build_ops.py"))["build"]
    library = build("pytorch", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "c++ -g")
        other = build("pytorch", folder / "other")
    make_models = [EXAMPLE / "make_models.py", folder, folder, "pytorch"]
    sources = {**os.environ, "PYTHONPATH": str(EXAMPLE / "src")}
    subprocess.run([sys.executable, "-W", "ignore", *make_models], check=True, env=sources)
    [program] = folder.glob("*/1/model.pt2")
    builds = library.read_bytes(), other.read_bytes()
    assert builds[0] != builds[1]
    return program.read_bytes(), *builds


def with_library(path):
    return {"model_operations": {"op_library_filename": [path]}}


@pytest.mark.toolchain
def test_models_with_copies_of_one_library_run_in_one_process(tmp_path, load, compiled):
    program, library, _ = compiled
    for name, path in (("first", "a.so"), ("second", "ops/b.so")):
        ModelRepository(tmp_path).model(name, None, model_files={path: library})
        model = load(program, with_library(path), name=name)  # the second copy would end the process
        assert ask(model, 2, X=np.array([[-1, 2, 3], [1, 0, -2]], "f4")) == {"Y": [[0, 4, 9], [1, 0, 0]]}


@pytest.mark.toolchain
def test_models_whose_libraries_have_one_operator_run_side_by_side(tmp_path, compiled):
    program, *builds = compiled
    for name, library in zip(("first", "second"), builds, strict=True):
        own = {"backend": "pytorch"} | with_library("ops.so")
        ModelRepository(tmp_path).model(name, own, {"model.pt2": program}, model_files={"ops.so": library})

    with serving(tmp_path) as ask:
        for name in ("first", "second"):
            assert ask(name, "X", np.array([[-1, 2, 3]], "f4")) == [[0, 4, 9]]


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int nothing;", "registers no operator that this process has not had before"),
        (
            "void torch_of_another_version(void); void use(void) { torch_of_another_version(); }",
            "is no library of operators for PyTorch 2.*: OSError: .*undefined symbol: torch_of_another_ver",
        ),
    ],
)
def test_a_library_that_does_not_fit_is_told(tmp_path, load, scripted, source, message):
    if find_compiler(".c") is None:
        pytest.skip("there is no C compiler")
    (tmp_path.with_name(f"{tmp_path.name}_made")).mkdir()
    path = tmp_path.with_name(f"{tmp_path.name}_made") / "bad.c"
    path.write_text(f"{source}\n")
    library = compile_shared_object(path, path.with_suffix(".so")).read_bytes()
    ModelRepository(tmp_path).model("net", None, model_files={"bad.so": library})

    with pytest.raises(
        TritonError, match=f"bad.so', which 'op_library_filename' of model 'net' names, {message}"
    ):
        load(scripted(torch.nn.Identity()), config("bad.so"))
