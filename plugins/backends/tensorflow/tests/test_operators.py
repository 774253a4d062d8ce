"""Libraries of custom operators are there before the graph that calls them is loaded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.plugin import TritonError, hookimpl
from tritonpy.server import Server
from tritonpy_backend_tensorflow import model_execution
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import ask, until

SOURCE = """
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

using namespace tensorflow;

REGISTER_OP("TritonpyTriple")
    .Input("x: float")
    .Output("y: float")
    .SetShapeFn(shape_inference::UnchangedShape);

class Triple : public OpKernel {
 public:
  explicit Triple(OpKernelConstruction* context) : OpKernel(context) {}
  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    auto from = x.flat<float>();
    auto to = y->flat<float>();
    for (int64_t i = 0; i < from.size(); ++i) {
      if (from(i) < 0) abort();
      to(i) = 3 * from(i);
    }
  }
};

REGISTER_KERNEL_BUILDER(Name("TritonpyTriple").Device(DEVICE_CPU), Triple);
"""

# Saved by another process: where the operator is known already, nothing would have to open it.
SAVE = """
import sys
import tensorflow as tf

operators = tf.load_op_library(sys.argv[1])
with tf.Graph().as_default() as graph:
    x = tf.compat.v1.placeholder("float32", [None, 2], name="x")
    operators.tritonpy_triple(x=x, name="y")
open(sys.argv[2], "wb").write(graph.as_graph_def().SerializeToString())
"""


def config(*libraries):
    return {
        "platform": "tensorflow_graphdef",
        "max_batch_size": 4,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [2]}],
        "model_operations": {"op_library_filename": list(libraries)},
    }


@pytest.fixture
def plain(frozen):
    def build(v1):
        v1.identity(v1.placeholder("float32", [None, 2], name="x"), name="y")

    return frozen(build)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "nosuch.so",
            None,
            "unable to find '.*/net/nosuch.so', which 'op_library_filename' of model 'net' names",
        ),
        ("bad.so", "text", "bad.so', which .* names, is no library of operators for TensorFlow 2"),
    ],
)
def test_a_library_that_cannot_be_opened_is_told(load, plain, name, content, message):
    files = {} if content is None else {name: content}

    with pytest.raises(TritonError, match=message):
        load(plain, config(name), model_files=files)


def test_a_library_for_all_models_that_cannot_be_opened_is_told(load, plain):
    with pytest.raises(
        TritonError, match=r"unable to find '/nosuch.so', which --backend-config=tensorflow,op-library"
    ):
        load(plain, config(), settings={"op-library": "/nosuch.so"})


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("int nothing;", "registers no operator that this process has not had before"),
        (
            "void tensorflow_of_another_version(void); void use(void) { tensorflow_of_another_version(); }",
            "is no library of operators for TensorFlow 2.*: NotFoundError: .*symbol: tensorflow_of_",
        ),
    ],
)
def test_a_library_that_does_not_fit_is_told(tmp_path, load, plain, source, message):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    (tmp_path / "made").mkdir()
    library, path = tmp_path / "made/bad.so", tmp_path / "made/bad.c"
    path.write_text(f"{source}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, path], check=True)

    with pytest.raises(TritonError, match=f"bad.so', which 'op_library_filename' of .* names, {message}"):
        load(plain, config("bad.so"), model_files={"bad.so": library.read_bytes()})


@pytest.fixture(scope="module")
def triple(tf, tmp_path_factory):
    """A library with an operator, and a graph that calls it."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("operators")
    (folder / "triple.cc").write_text(SOURCE)
    library = folder / "triple.so"
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    command = ["g++", "-shared", "-fPIC", "-O1", "-w", "-o", library, folder / "triple.cc", *flags]
    subprocess.run(command, check=True)
    subprocess.run([sys.executable, "-c", SAVE, library, folder / "model.graphdef"], check=True)
    return library.read_bytes(), (folder / "model.graphdef").read_bytes()


@contextmanager
def serving(repository, **more):
    """Serve a repository; gives what asks a model for what it makes of a number, and the client."""
    options = ServerOptions(
        (str(repository),),
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
        **more,
    )
    with (
        Server(options) as server,
        tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}", network_timeout=60
        ) as client,
    ):

        def ask(name, value):
            x = tritonclient.http.InferInput("x", [1, 2], "FP32")
            x.set_data_from_numpy(np.full((1, 2), value, "f4"))
            return client.infer(name, [x]).as_numpy("y").tolist()

        yield ask, client


@pytest.mark.toolchain
def test_a_missing_operator_is_named_with_what_mends_it(load, triple):
    if "TritonpyTriple" in _known():
        pytest.skip("another test of this process has opened the library")
    message = (
        r"Op type not registered 'TritonpyTriple'.*is named by model_operations \{ op_library_filename \}"
    )
    with pytest.raises(TritonError, match=message):
        load(triple[1], config())


@pytest.mark.toolchain
def test_models_with_copies_of_one_library_run_side_by_side(load, triple):
    library, graph = triple
    first = load(graph, config("ops/triple.so"), name="first", model_files={"ops/triple.so": library})
    second = load(graph, config("other.so"), name="second", model_files={"other.so": library})

    for model in (first, second):
        assert ask(model, x=np.ones((1, 2), "f4")) == {"y": [[3, 3]]}


@pytest.mark.toolchain
def test_models_find_the_operators_of_plugins(tmp_path, load, triple):
    library, graph = triple
    path = tmp_path.with_name(f"{tmp_path.name}_plugin") / "triple.so"
    path.parent.mkdir()
    path.write_bytes(library)

    @hookimpl
    def op_library_paths(framework, model):
        return [path] if (framework, model.name) == ("tensorflow", "third") else []

    plugin = {"triple": SimpleNamespace(op_library_paths=op_library_paths)}
    model = load(graph, config(), name="third", op_libraries=plugin)

    assert model_execution(model.handle) == "process"
    assert ask(model, x=np.ones((1, 2), "f4")) == {"y": [[3, 3]]}


@pytest.mark.toolchain
def test_a_worker_opens_the_libraries_of_the_backends_setting(tmp_path, triple):
    library, graph = triple
    path = tmp_path / "triple.so"
    path.write_bytes(library)
    alone = {
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "parameters": {"TRITONPY_ISOLATION": {"string_value": "process"}},
    }
    ModelRepository(tmp_path / "models").model("net", config() | alone, {"model.graphdef": graph})
    setting = ("tensorflow", "op-library", str(path))

    with serving(tmp_path / "models", backend_config=(setting,)) as (ask, _):
        assert ask("net", 1) == [[3, 3]]


@pytest.mark.toolchain
def test_an_operator_that_crashes_ends_a_process_of_its_own_model_only(tmp_path, triple, plain):
    library, graph = triple
    repository = ModelRepository(tmp_path)
    alone = {"instance_group": [{"kind": "KIND_CPU", "count": 1}]}
    repository.model(
        "triple",
        config("triple.so") | alone,
        {"model.graphdef": graph},
        model_files={"triple.so": library},
    )
    repository.model("plain", config() | {"model_operations": {}}, {"model.graphdef": plain})

    with serving(tmp_path) as (ask, client):
        assert ask("triple", 1) == [[3, 3]]
        with pytest.raises(tritonclient.http.InferenceServerException):
            ask("triple", -1)
        assert ask("plain", 2) == [[2, 2]]
        until(lambda: client.is_model_ready("triple"), "the restarted worker")
        assert ask("triple", 2) == [[6, 6]]


def _known():
    from tensorflow.python.framework import op_def_registry

    return ["TritonpyTriple"] if op_def_registry.get("TritonpyTriple") is not None else []
