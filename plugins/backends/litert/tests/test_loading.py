"""Loading: files, signatures, parameters, completed configurations, and what is refused."""

from __future__ import annotations

import logging
import subprocess
import sys

import numpy as np
import pytest
from tritonpy.plugin import TritonError, usable_core_count
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver, ask


def tensor(name, dims, datatype="TYPE_FP32", **more):
    return {"name": name, "data_type": datatype, "dims": dims, **more}


def parameters(**values):
    return {"backend": "litert", "parameters": {key: {"string_value": text} for key, text in values.items()}}


NEGATIVE = {"input": [tensor("X", [3])], "output": [tensor("Y", [3])]}


def test_configuration_is_completed_from_the_file(load):
    config = load("two").config

    assert (config["backend"], config["default_model_filename"]) == ("litert", "model.tflite")
    described = {each["name"]: (each["data_type"], each["dims"]) for each in config["input"]}
    assert described == {"X": ("TYPE_FP32", [3]), "I": ("TYPE_INT32", [1])}
    assert [each.get("reshape") for each in config["input"] if each["name"] == "I"] == [{"shape": []}]
    assert [each["name"] for each in config["output"]] == ["Y"]
    assert config["max_batch_size"] == 4
    assert config["instance_group"][0]["count"] == 2


def test_file_without_a_signature_has_the_names_of_its_tensors(load):
    model = load("without_signature")
    ((name, output),) = [(model.config[key][0]["name"] for key in ("input", "output"))]

    assert ask(model, **{name: np.ones((1, 3), "f4")}) == {output: [[-1, -1, -1]]}
    assert name != "X"  # the signature's


@pytest.mark.parametrize(
    ("key", "names", "expected"),
    [
        ("more", {"MORE", "SAME"}, {"MORE": [[2, 3]], "SAME": [[1, 2]]}),
        ("less", {"LESS", "SAME"}, {"LESS": [[0, 1]], "SAME": [[1, 2]]}),
    ],
)
def test_signature_is_chosen_by_a_parameter(load, key, names, expected):
    model = load("signatures", parameters(SIGNATURE_KEY=key))

    assert {output["name"] for output in model.config["output"]} == names
    assert ask(model, X=np.array([[1, 2]], "f4")) == expected
    assert ask(model, 3, outputs=("SAME",), X=np.full((3, 2), 7, "f4")) == {"SAME": [[7, 7]] * 3}


def test_only_one_of_two_signatures_lies_in_the_first_graph(load):
    first = [
        load("signatures", parameters(SIGNATURE_KEY=key)).handle.state.signature.is_first_graph
        for key in ("more", "less")
    ]

    assert sorted(first) == [False, True]


def test_signature_that_is_taken_is_named_where_there_are_several(load, caplog):
    with caplog.at_level(logging.WARNING, "tritonpy"):
        model = load("signatures")

    key = model.handle.state.signature.key
    assert f"model 'net': signature '{key}' is taken, of less, more" in caplog.text


def test_first_interpreter_is_that_which_the_signature_was_read_from(load, monkeypatch):
    from ai_edge_litert import interpreter

    made = []
    real = interpreter.Interpreter

    def counted(**options):
        made.append(options)
        return real(**options)

    monkeypatch.setattr(interpreter, "Interpreter", counted)
    load("variable", parameters(NUM_THREADS="3", USE_XNNPACK="off"))

    assert len(made) == 2  # as many as instances
    assert len({id(options["model_content"]) for options in made}) == 1  # the weights are there once
    assert [options["num_threads"] for options in made] == [3, 3]
    kinds = {options["experimental_op_resolver_type"] for options in made}
    assert kinds == {interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES}


def test_no_number_of_threads_means_all_cores_only_if_it_is_0(load):
    assert load("variable").handle.state.settings.thread_count == 1
    assert load("variable", parameters(NUM_THREADS="0")).handle.state.settings.thread_count == (
        usable_core_count()
    )


def test_numbers_of_quantised_tensors_are_explained_in_the_log(load, caplog):
    with caplog.at_level(logging.INFO, "tritonpy"):
        model = load("quantised")

    signature = model.handle.state.signature
    for info in (signature.inputs["X"], signature.outputs["Y"]):
        assert info.datatype == "INT8"
        said = f"'{info.name}' is quantised, n stands for {info.scale:g} * (n - {info.zero_point})"
        assert said in caplog.text


def test_quantised_numbers_come_near_those_they_stand_for(load):
    model = load("quantised")
    x, y = model.handle.state.signature.inputs["X"], model.handle.state.signature.outputs["Y"]
    random = np.random.default_rng(0)  # of make_models.py
    first, second = (random.normal(size=size).astype("f4") for size in ((16, 8), (8, 4)))
    values = np.random.default_rng(5).normal(size=(4, 16))
    numbers = np.clip(np.round(values / x.scale) + x.zero_point, -128, 127).astype("i1")

    got = np.array(ask(model, 4, X=numbers)["Y"])

    expected = np.maximum(values @ first, 0) @ second
    np.testing.assert_allclose((got - y.zero_point) * y.scale, expected, atol=0.05 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("file", "config", "message"),
    [
        (
            "signatures",
            parameters(SIGNATURE_KEY="serving_default"),
            "unable to load model 'net', expected 'serving_default' signature; it has less, more",
        ),
        (
            "without_signature",
            parameters(SIGNATURE_KEY="more"),
            "unable to load model 'net', expected 'more' signature; it has none",
        ),
        (
            "variable",
            parameters(NUM_THREADS="-1"),
            "parameter 'NUM_THREADS' of model 'net': got '-1', expected a whole number, 0 or more",
        ),
        (
            "variable",
            parameters(USE_XNNPACK="perhaps"),
            "failed to convert 'perhaps' to boolean: parameter 'USE_XNNPACK' of model 'net'",
        ),
        (
            "variable",
            {"model_transaction_policy": {"decoupled": True}},
            "a call of a TensorFlow Lite model gives one response, so it cannot be decoupled",
        ),
        (
            "variable",
            {"max_batch_size": 2, "input": [tensor("X", [3], optional=True)], "output": NEGATIVE["output"]},
            "optional input 'X' is required by the model: LiteRT runs a model with all of its inputs",
        ),
        (
            "variable",
            {"max_batch_size": 2, "input": NEGATIVE["input"], "output": [tensor("Z", [3])]},
            "unexpected inference output 'Z', allowed outputs are: Y",
        ),
        (
            "variable",
            {
                "max_batch_size": 2,
                "sequence_batching": {
                    "state": [
                        {
                            "input_name": "OLD",
                            "output_name": "NEW",
                            "data_type": "TYPE_FP32",
                            "dims": [1],
                        }
                    ]
                },
            },
            "configuration specified state 'OLD', but model does not provide that input",
        ),
        (
            "selected",
            None,
            "the model has operators of TensorFlow itself (SELECT_TF_OPS), which LiteRT's package does not "
            "bring; serve the SavedModel with the backend 'tensorflow': Select TensorFlow op(s)",
        ),
        (
            b"\x1c\0\0\0TFL3" + b"\xff" * 500,
            None,
            "failed to load model 'net': The model is not a valid Flat",
        ),
        (b"PK\3\4 and more", None, "is not a TensorFlow Lite model: got b' and' as its bytes 4 to 7"),
        (b"", None, "is not a TensorFlow Lite model: got b'' as its bytes 4 to 7, expected b'TFL3'"),
        (b"version https://git-lfs.github.com/spec/v1\n", None, "is a Git LFS pointer; `git lfs pull`"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(load, file, config, message):
    with pytest.raises(TritonError) as caught:
        load(file, {"backend": "litert"} | (config or {}))

    assert message in str(caught.value)


def test_group_on_a_gpu_is_refused(load):
    model = load("variable")
    config = model.config | {"instance_group": [{"name": "net_0", "kind": "KIND_GPU", "gpus": [0]}]}

    with pytest.raises(
        TritonError, match="got an instance_group of KIND_GPU, expected KIND_CPU or KIND_AUTO"
    ):
        model.handle.state.bind(config)


def test_file_of_another_name_is_found_by_the_configuration_and_pointed_at_without_it(load):
    with pytest.raises(TritonError) as caught:
        load("variable", {"backend": "litert"}, filename="net.tflite")
    assert str(caught.value).startswith("unable to find '")
    assert str(caught.value).endswith("; there is 'net.tflite': write default_model_filename: \"net.tflite\"")

    config = {"backend": "litert", "default_model_filename": "net.tflite"}
    model = load("variable", config, filename="net.tflite")

    assert ask(model, X=np.ones((1, 3), "f4")) == {"Y": [[-1, -1, -1]]}


def test_a_server_without_litert_says_what_to_install(monkeypatch, tmp_path, content):
    import tritonpy_backend_litert.framework as framework

    def missing(name):
        raise ImportError(f"No module named '{name}'")

    monkeypatch.setattr(framework.importlib, "import_module", missing)
    monkeypatch.setattr(framework, "find_spec", lambda name: None)
    ModelRepository(tmp_path).model("net", None, {"model.tflite": content("variable")})

    with (
        pytest.raises(TritonError, match=r"pip install 'tritonpy-backend-litert\[cpu\]'"),
        BackendDriver("litert", tmp_path).load("net"),
    ):
        pass


def test_a_server_without_the_type_says_what_bf16_needs(content, tmp_path):
    ModelRepository(tmp_path).model("net", None, {"model.tflite": content("bfloat16")})
    program = (
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "from tritonpy_sdk.testing import ask, BackendDriver\n"
        f"BackendDriver('litert', {str(tmp_path)!r}).load('net').__enter__()"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "if it is bfloat16: pip install ml_dtypes" in done.stderr
