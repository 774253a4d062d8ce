from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonpy_backend_onnxruntime as plugin
from tritonpy.plugin import Backend, Model, ModelInstance, TritonError
from tritonpy_backend_onnxruntime import model as plugin_model
from tritonpy_backend_onnxruntime.framework import start_framework
from tritonpy_backend_onnxruntime.providers import CPU
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver, request_of

NEGATE = "net (float[N,3] X) => (float[N,3] Y) { Y = Neg(X) }"


def test_configuration_is_completed_from_the_file(load):
    model = load(NEGATE)

    assert model.config["max_batch_size"] == 4
    assert "dynamic_batching" in model.config
    assert [tensor["name"] for tensor in model.config["input"] + model.config["output"]] == ["X", "Y"]


def test_default_max_batch_size_is_a_backend_setting(load):
    assert load(NEGATE, settings={"default-max-batch-size": "16"}).config["max_batch_size"] == 16


def test_complete_configuration_is_left_alone(load):
    config = {
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1, 3]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1, 3]}],
    }

    model = load(NEGATE, config)

    assert model.config["max_batch_size"] == 0
    assert "dynamic_batching" not in model.config


def test_instances_share_one_session_by_default(load):
    config = {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}

    model = load(NEGATE, config)

    one, two = (instance.state._session for instance in model.instances)
    assert one is two


def test_instances_have_sessions_of_their_own_on_request(load):
    config = {
        "instance_group": [{"kind": "KIND_CPU", "count": 2}],
        "parameters": {"share_session_between_instances": {"string_value": "false"}},
    }

    model = load(NEGATE, config)

    one, two = (instance.state._session for instance in model.instances)
    assert one is not two


def test_file_is_loaded_once_for_auto_complete_and_all_instances(load, monkeypatch):
    import onnxruntime

    opened = []
    real = onnxruntime.InferenceSession

    def counted(*args, **kwargs):
        opened.append(args[0])
        return real(*args, **kwargs)

    monkeypatch.setattr(onnxruntime, "InferenceSession", counted)

    load(NEGATE, {"instance_group": [{"kind": "KIND_CPU", "count": 2}]})

    assert len(opened) == 1


def test_file_of_another_name_is_found(tmp_path, onnx):
    ModelRepository(tmp_path).model(
        "net", {"backend": "onnxruntime", "default_model_filename": "net.bin"}, {"net.bin": onnx(NEGATE)}
    )

    with BackendDriver("onnxruntime", tmp_path).load("net") as model:
        assert model.config["max_batch_size"] == 4


@pytest.fixture
def gpus_are_cpus(monkeypatch):
    """Instances on GPUs run on the CPU: what is chosen for them can be seen without one."""
    monkeypatch.setattr(plugin_model, "providers_for", lambda *_: [CPU])


def test_the_file_for_the_gpus_compute_capability_is_run(tmp_path, onnx, gpus_are_cpus):
    texts = {
        "model.onnx": "net (float[N,3] X) => (float[N,3] Y) { Y = Identity(X) }",
        "new.onnx": "net (float[N,3] X) => (float[N,3] Y) { Y = Neg(X) }",
    }
    config = {
        "cc_model_filenames": {"8.6": "new.onnx", "9.0": "missing.onnx"},
        "instance_group": [{"kind": "KIND_CPU"}],
    }
    files = {name: onnx(text) for name, text in texts.items()}
    ModelRepository(tmp_path).model("net", config, files)

    with BackendDriver("onnxruntime", tmp_path).load("net") as model:

        def answer(kind, capability):
            instance = ModelInstance("net_0_0", 0, kind, 0, model.handle, compute_capability=capability)
            plugin.model_instance_initialize(instance)
            (response,) = plugin.model_instance_execute(instance, [request_of(X=np.ones((1, 3), np.float32))])
            return float(response.outputs[0].numpy()[0, 0])

        assert answer("KIND_GPU", "8.6") == -1
        assert answer("KIND_GPU", "8.0") == 1
        assert answer("KIND_CPU", "") == 1
        with pytest.raises(TritonError, match=r"unable to find '.*/net/1/missing\.onnx'"):
            answer("KIND_GPU", "9.0")


def test_a_model_needs_no_file_that_none_of_its_gpus_runs(tmp_path, onnx, gpus_are_cpus):
    config = {"cc_model_filenames": {"8.6": "new.onnx"}, "backend": "onnxruntime"}
    ModelRepository(tmp_path).model("net", config, {"new.onnx": onnx(NEGATE)})

    handle = Model("net", 1, {"name": "net", **config}, tmp_path / "net", Backend("onnxruntime"))
    handle.backend.state = start_framework(handle.backend)
    handle.config = plugin.model_auto_complete_config(handle)
    plugin.model_initialize(handle)

    plugin.model_instance_initialize(
        ModelInstance("net_0", 0, "KIND_GPU", 0, handle, compute_capability="8.6")
    )
    with pytest.raises(TritonError, match=r"unable to find '.*/net/1/model\.onnx'"):
        plugin.model_instance_initialize(ModelInstance("net_0", 0, "KIND_CPU", 0, handle))


def test_directory_may_hold_the_model_and_its_external_weights(tmp_path, onnx):
    proto = onnx_model_with_external_weight()
    files = {"model.onnx/model.onnx": proto.SerializeToString(), "model.onnx/weight.bin": b"\x00\x00\x80\x40"}
    ModelRepository(tmp_path).model("net", None, files)

    with BackendDriver("onnxruntime", tmp_path).load("net") as model:
        assert model.handle.state.signature.inputs[0].name == "X"


def onnx_model_with_external_weight():
    weight = onnx.TensorProto(name="W", data_type=onnx.TensorProto.FLOAT, dims=[1])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weight.bin")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Mul", ["X", "W"], ["Y"])],
        "net",
        [value("X", onnx.TensorProto.FLOAT, ["N", 1])],
        [value("Y", onnx.TensorProto.FLOAT, ["N", 1])],
        [weight],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_missing_file_is_named(tmp_path):
    ModelRepository(tmp_path).model("net", {"backend": "onnxruntime"})

    with (
        pytest.raises(
            TritonError, match=r"unable to find '.*/net/1/model\.onnx' or .* for model 'net'"
        ) as refused,
        BackendDriver("onnxruntime", tmp_path).load("net"),
    ):
        pass

    assert refused.value.code.text == "Not found"


def test_broken_file_fails_the_load_with_onnxruntimes_reason(tmp_path):
    ModelRepository(tmp_path).onnx("net", b"garbage")

    with (
        pytest.raises(
            TritonError, match=r"failed to load model 'net': onnx runtime error 7: .*parsing failed"
        ),
        BackendDriver("onnxruntime", tmp_path).load("net"),
    ):
        pass


def test_bfloat16_beside_strings_is_refused_clearly(load):
    with pytest.raises(TritonError, match="takes or gives both bfloat16 and strings"):
        load(
            "net (bfloat16[N,3] X, string[N,3] S) => (bfloat16[N,3] Y, string[N,3] T) "
            "{ Y = Identity(X) T = Identity(S) }"
        )


def test_committed_models_are_what_their_script_writes():
    tests = Path(__file__).parent
    script = runpy.run_path(str(tests / "make_models.py"))

    assert sorted(path.name for path in (tests / "models").iterdir()) == sorted(script["MODELS"])
    for name, text in script["MODELS"].items():
        assert onnx.load(tests / "models" / name / "1" / "model.onnx") == script["parse"](text)
