"""SavedModels and GraphDefs: graphs, signatures and operators that are run after loading."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from tritonpy.plugin import Backend, InvalidArg, TritonError, Unavailable
from tritonpy_backend_tensorflow.framework import start_framework
from tritonpy_sdk.testing import ask

ONE = np.ones((1, 1), "f4")


def parameters(**values):
    return {
        "backend": "tensorflow",
        "parameters": {key: {"string_value": value} for key, value in values.items()},
    }


def tensors(dims, datatype="TYPE_FP32"):
    return {
        "input": [{"name": "x", "data_type": datatype, "dims": dims}],
        "output": [{"name": "y", "data_type": datatype, "dims": dims}],
    }


def times(factor):
    def build(v1):
        x = v1.placeholder("float32", [None, 1], name="x")
        weight = v1.get_variable("weight", initializer=float(factor), use_resource=False)
        return {"x": x}, {"y": v1.multiply(x, weight, name="product")}

    return build


class TestGraphsOfASavedModel:
    def test_one_of_tensorflow_1_is_served(self, load, saved_v1):
        assert ask(load(saved_v1(times(3))), x=ONE) == {"y": [[3]]}

    def test_a_tag_chooses_one(self, load, saved_v1):
        path = saved_v1(times(3), tags=("special",))

        with pytest.raises(
            InvalidArg, match=r"unable to load model 'net', expected 'serve' tag; .* one of 'special'"
        ):
            load(path)
        assert ask(load(path, parameters(TF_GRAPH_TAG="special")), x=ONE) == {"y": [[3]]}

    def test_several_tags_are_separated_by_commas(self, load, saved_v1):
        path = saved_v1(times(3), tags=("serve", "gpu"))

        assert ask(load(path, parameters(TF_GRAPH_TAG="gpu,serve")), x=ONE) == {"y": [[3]]}

    def test_the_layout_of_tensorflow_serving_needs_one_line(self, load, saved_v1):
        path = saved_v1(times(3))
        files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}

        assert ask(load(files, {"platform": "tensorflow_savedmodel"}), x=ONE) == {"y": [[3]]}

    def test_what_is_left_of_a_broken_one_is_told(self, load, saved_v1):
        path = saved_v1(times(3))
        shutil.rmtree(path / "variables")
        with pytest.raises(TritonError, match=r"failed to load model 'net': .*variables"):
            load(path)
        (path / "saved_model.pb").write_bytes(b"\xffnothing")
        with pytest.raises(TritonError, match="failed to load model 'net': "):
            load(path)


class TestSignatures:
    @pytest.fixture
    def path(self, saved, tf):
        return saved(
            lambda x: {"y": x * 2}, {"x": (tf.float32, [None, 1])}, more={"other": lambda x: {"z": x * 5}}
        )

    def test_the_usual_one_is_taken(self, load, path):
        assert ask(load(path), x=ONE) == {"y": [[2]]}

    def test_another_one_is_asked_for(self, load, path):
        assert ask(load(path, parameters(TF_SIGNATURE_DEF="other")), x=ONE) == {"z": [[5]]}

    def test_one_that_is_not_there_is_told(self, load, path):
        message = (
            "unable to load model 'net', expected 'nosuch' signature; .* one of 'other', 'serving_default'"
        )
        with pytest.raises(InvalidArg, match=message):
            load(path, parameters(TF_SIGNATURE_DEF="nosuch"))

    def test_without_the_usual_one_the_first_is_taken_with_a_warning(self, load, saved_v1, caplog):
        assert ask(load(saved_v1(times(3), key="predict")), x=ONE) == {"y": [[3]]}
        assert "has no signature 'serving_default', 'predict' is served" in caplog.text

    def test_a_model_without_any_is_told(self, load, saved_v1):
        with pytest.raises(
            InvalidArg, match=r"expected 'serving_default' signature, and the model has none; save it"
        ):
            load(saved_v1(times(3), key=""))

    def test_sparse_inputs_are_told(self, load, saved_v1):
        from tensorflow.core.protobuf import meta_graph_pb2

        def build(v1):
            x = v1.sparse_placeholder("float32", [2, 2], name="x")
            parts = x.indices.name, x.values.name, x.dense_shape.name
            names = ("indices_tensor_name", "values_tensor_name", "dense_shape_tensor_name")
            sparse = meta_graph_pb2.TensorInfo.CooSparse(**dict(zip(names, parts, strict=True)))
            return {"x": meta_graph_pb2.TensorInfo(coo_sparse=sparse, dtype=1)}, {"y": x.values + 1}

        with pytest.raises(TritonError, match="tensor 'x' of its signature is made of several tensors"):
            load(saved_v1(build))


class TestGraphDefs:
    CONFIG = {"platform": "tensorflow_graphdef", "max_batch_size": 4} | tensors([1])

    @staticmethod
    def build(v1):
        x = v1.placeholder("float32", [None, 1], name="x")
        v1.multiply(x, 7.0, name="y")

    def test_one_is_served_by_names_of_nodes(self, load, frozen):
        assert ask(load(frozen(self.build), self.CONFIG), x=ONE) == {"y": [[7]]}

    def test_its_configuration_is_completed_as_far_as_it_says(self, load, frozen):
        model = load(frozen(self.build))

        assert ask(model, x=ONE) == {"y": [[7]]}
        assert (model.config["platform"], model.config["max_batch_size"]) == ("tensorflow_graphdef", 4)

    def test_outputs_in_the_middle_and_of_a_number_are_found(self, load, frozen):
        def build(v1):
            x = v1.placeholder("float32", [None, 2], name="x")
            v1.abs(v1.concat(v1.split(-x, 2, 1, name="parts"), 1), name="y")

        config = self.CONFIG | {
            "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [2]}],
            "output": [
                {"name": name, "data_type": "TYPE_FP32", "dims": [-1]} for name in ("parts", "parts:1", "y")
            ],
        }
        answer = ask(load(frozen(build), config), x=np.array([[1, 2]], "f4"))

        assert answer == {"parts": [[-1]], "parts:1": [[-2]], "y": [[1, 2]]}

    def test_a_size_that_only_the_graph_says_is_checked_before_the_call(self, load, frozen):
        model = load(frozen(self.build), self.CONFIG | tensors([-1]))

        assert ask(model, x=ONE) == {"y": [[7]]}
        with pytest.raises(
            InvalidArg, match="input 'x' of model 'net' has size 2 in dimension 1, the model takes 1"
        ):
            ask(model, x=np.ones((1, 2), "f4"))

    def test_placeholders_that_say_nothing_need_a_configuration(self, load, frozen, caplog):
        def build(v1):
            v1.multiply(v1.placeholder("float32", name="x"), 7.0, name="y")

        with pytest.raises(
            TritonError, match="model configuration must contain at least one input, none were"
        ):
            load(frozen(build))
        assert "the graph does not say of which types and shapes" in caplog.text
        assert ask(load(frozen(build), self.CONFIG), x=ONE) == {"y": [[7]]}

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            (
                tensors([1], "TYPE_INT32"),
                "configuration expects datatype TYPE_INT32 for input 'x', model provides",
            ),
            (tensors([2]), "model 'net', tensor 'x': the model expects 2 dimensions"),
            (
                {"input": [*tensors([1])["input"], {"name": "z", "data_type": "TYPE_FP32", "dims": [1]}]},
                "unable to load model 'net', configuration expects 2 inputs, model provides at most 1",
            ),
            (
                {"input": [{"name": "z", "data_type": "TYPE_FP32", "dims": [1]}]},
                "unexpected inference input 'z', allowed inputs are: x",
            ),
            (
                {"output": [{"name": "z", "data_type": "TYPE_FP32", "dims": [1]}]},
                "unexpected inference output 'z', allowed outputs are: y",
            ),
        ],
    )
    def test_a_configuration_that_does_not_fit_is_told(self, load, frozen, config, message):
        with pytest.raises(TritonError, match=message):
            load(frozen(self.build), self.CONFIG | config)

    @pytest.mark.parametrize("content", [b"\xffnothing of this kind", b""])
    def test_a_file_that_is_none_is_told(self, load, content):
        with pytest.raises(InvalidArg, match=r"model.graphdef' of model 'net' is no GraphDef"):
            load(content)


class TestInitOps:
    CONFIG = TestGraphDefs.CONFIG | {"parameters": {"TF_INIT_OPS_FILE": {"string_value": "init.json"}}}

    @staticmethod
    def build(v1):
        x = v1.placeholder("float32", [None, 1], name="x")
        weight = v1.get_variable("weight", initializer=4.0, use_resource=True)
        v1.multiply(x, weight, name="y")
        v1.global_variables_initializer()

    def test_they_run_before_the_first_call(self, load, frozen):
        content = json.dumps({"init_ops": ["init"]})
        model = load({"model.graphdef": frozen(self.build), "init.json": content}, self.CONFIG)

        assert ask(model, x=ONE) == {"y": [[4]]}

    def test_their_file_may_lie_beside_the_configuration(self, load, frozen):
        content = json.dumps({"init_ops": ["init"]})
        model = load(frozen(self.build), self.CONFIG, model_files={"init.json": content})

        assert ask(model, x=ONE) == {"y": [[4]]}

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("[]", "expected .*init_ops"),
            ('{"init_ops": "init"}', "expected a list of names"),
            ('{"init_ops": ["nosuch"]}', "operator 'nosuch': .*nosuch"),
        ],
    )
    def test_a_file_of_another_form_is_told(self, load, frozen, content, message):
        with pytest.raises(TritonError, match=message):
            load({"model.graphdef": frozen(self.build), "init.json": content}, self.CONFIG)

    @pytest.mark.parametrize("path", ["/etc/passwd", "../../net/init.json"])
    def test_a_path_that_leads_out_is_refused(self, load, frozen, path):
        parameters = {"TF_INIT_OPS_FILE": {"string_value": path}}

        with pytest.raises(
            InvalidArg, match=r"expected a path inside the model's directory, neither absolute nor"
        ):
            load(frozen(self.build), self.CONFIG | {"parameters": parameters})

    def test_a_missing_file_is_told(self, load, frozen):
        with pytest.raises(Unavailable, match=r"unable to find 'init.json' of parameter 'TF_INIT_OPS_FILE'"):
            load(frozen(self.build), self.CONFIG)


@pytest.mark.parametrize("level", [-1, 0, 1, 2])
def test_a_model_is_computed_at_every_level_of_optimization(load, saved_v1, level):
    config = {"backend": "tensorflow", "optimization": {"graph": {"level": level}}}
    model = load(saved_v1(times(3)), config)

    options = model.handle.state.graph._session._config.graph_options.optimizer_options
    assert options.global_jit_level == {-1: options.OFF, 0: 0, 1: options.ON_1, 2: options.ON_2}[level]
    assert ask(model, x=ONE) == {"y": [[3]]}


class TestSettingsOfTheBackend:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"version": "1"}, "--backend-config=tensorflow,version: got '1', expected 2"),
            ({"gpu-memory-fraction": "2"}, "gpu-memory-fraction: got '2', expected a number from 0 to 1"),
            (
                {"gpu-memory-fraction": "half"},
                "gpu-memory-fraction: got 'half', expected a number from 0 to 1",
            ),
            ({"allow-soft-placement": "perhaps"}, "failed to convert 'perhaps' to boolean"),
            ({"default-max-batch-size": "-1"}, "default-max-batch-size: got '-1', expected a whole number"),
        ],
    )
    def test_values_that_cannot_be_are_told(self, tf, settings, message):
        with pytest.raises(InvalidArg, match=message):
            start_framework(Backend("tensorflow", settings))

    def test_they_reach_the_sessions(self, tf):
        settings = {"version": "2", "allow-soft-placement": "false", "gpu-memory-fraction": "0.5"}
        framework = start_framework(Backend("tensorflow", settings))

        assert not framework.allows_soft_placement
        assert framework.gpu_memory_fraction == 0.5

    def test_the_default_size_of_batches_is_taken(self, load, saved_v1):
        model = load(saved_v1(times(3)), settings={"default-max-batch-size": "9"})

        assert model.config["max_batch_size"] == 9
