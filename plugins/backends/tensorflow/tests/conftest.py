"""Models saved by TensorFlow itself, loaded through the hooks of the installed backend."""

from __future__ import annotations

import os
from contextlib import ExitStack
from importlib.util import find_spec

import pytest
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # of the tests' own use of TensorFlow

NEEDS_TENSORFLOW = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="TensorFlow is not installed: pip install tensorflow-cpu"
)


@pytest.fixture(scope="session")
def tf():
    """The module, imported when the first test needs it."""
    return pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


@pytest.fixture(scope="session")
def saved(tf, tmp_path_factory):
    """Save a function as a SavedModel of TensorFlow 2: `dims` and datatypes of its inputs by name."""

    def save(function, signature, *, more=None, module=None):
        path = tmp_path_factory.mktemp("saved") / "model.savedmodel"
        module = module or tf.Module()
        specs = {name: tf.TensorSpec(dims, dtype, name=name) for name, (dtype, dims) in signature.items()}
        module.call = tf.function(function)
        signatures = {"serving_default": module.call.get_concrete_function(**specs)}
        for name, other in (more or {}).items():
            signatures[name] = tf.function(other).get_concrete_function(**specs)
        tf.saved_model.save(module, str(path), signatures=signatures)
        return path

    return save


@pytest.fixture(scope="session")
def saved_v1(tf, tmp_path_factory):
    """Save a graph as TensorFlow 1 did: `build` makes inputs and outputs by name in an empty graph."""
    from tensorflow.core.protobuf import meta_graph_pb2

    v1 = tf.compat.v1

    def save(build, *, tags=("serve",), key="serving_default", strip=False):
        path = tmp_path_factory.mktemp("saved") / "model.savedmodel"
        with v1.Session(graph=tf.Graph()) as session:
            inputs, outputs = build(v1)
            session.run(v1.global_variables_initializer())
            builder = v1.saved_model.builder.SavedModelBuilder(str(path))
            described = [
                {
                    name: tensor
                    if isinstance(tensor, meta_graph_pb2.TensorInfo)
                    else meta_graph_pb2.TensorInfo(
                        name=tensor.name,
                        dtype=tensor.dtype.as_datatype_enum,
                        tensor_shape=tensor.shape.as_proto(),
                    )
                    for name, tensor in tensors.items()
                }
                for tensors in (inputs, outputs)
            ]
            signature = v1.saved_model.signature_def_utils.build_signature_def(*described, "predict")
            builder.add_meta_graph_and_variables(
                session, list(tags), {key: signature} if key else {}, strip_default_attrs=strip
            )
            builder.save()
        return path

    return save


@pytest.fixture(scope="session")
def frozen(tf):
    """The bytes of a GraphDef; `build` makes it in an empty graph."""

    def save(build):
        with tf.Graph().as_default() as graph:
            build(tf.compat.v1)
        return graph.as_graph_def().SerializeToString()

    return save


@pytest.fixture(scope="session")
def place():
    """Put a model into a repository: a SavedModel by its path, a GraphDef by its bytes, others by their "
    "files."""

    def put(root, model, config=None, *, name="net", filename=None, model_files=None):
        if isinstance(model, bytes):
            files = {filename or "model.graphdef": model}
        elif isinstance(model, dict):
            files = model
        else:
            files = {
                f"{filename or 'model.savedmodel'}/{path.relative_to(model)}": path.read_bytes()
                for path in model.rglob("*")
                if path.is_file()
            }
        ModelRepository(root).model(name, config, files, model_files=model_files)

    return put


@pytest.fixture
def load(tf, tmp_path, place):
    """Load a model by its files and its configuration, in this process; finalised when the test is over."""
    with ExitStack() as stack:

        def start(
            model,
            config=None,
            *,
            name="net",
            settings=None,
            filename=None,
            model_files=None,
            op_libraries=None,
        ):
            place(tmp_path, model, config, name=name, filename=filename, model_files=model_files)
            driver = BackendDriver("tensorflow", tmp_path, settings, op_libraries)
            return stack.enter_context(driver.load(name))

        yield start
