"""Python models loaded in this process: what they are told, what they answer, what a server would refuse."""

from __future__ import annotations

import subprocess
import sys
import warnings
from textwrap import dedent

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from tritonpy.errors import InvalidArg, NotFound
from tritonpy_sdk.testing import ModelRequest, ModelWarning, load_python_model

INVALID = pb_utils.TritonError.INVALID_ARG
INTERNAL = pb_utils.TritonError.INTERNAL

CONFIG = """
backend: "python"
max_batch_size: 4
input { name: "X" data_type: TYPE_FP32 dims: 2 }
output { name: "Y" data_type: TYPE_FP32 dims: 2 }
"""
TEXT_CONFIG = """
backend: "python"
input { name: "TEXT" data_type: TYPE_STRING dims: -1 }
output { name: "LOUD" data_type: TYPE_STRING dims: -1 }
"""
DOUBLE = """
def execute(self, requests):
    return [answer(Y=array(request) * 2) for request in requests]
"""
LOUD = """
def execute(self, requests):
    return [answer(LOUD=np.array([t.upper() for t in array(r, "TEXT")], object)) for r in requests]
"""


def code(*bodies):
    return "".join(map(dedent, bodies))


def x(*rows):
    return {"X": np.array(rows, np.float32).reshape(len(rows), -1)}


# Loading.


def test_a_model_is_told_what_a_server_tells_it(write):
    path = write("""
        def initialize(self, args):
            self.args = args
            self.directory = pb_utils.get_model_dir()

        def execute(self, requests):
            return [answer(Y=array(request)) for request in requests]
    """)

    with load_python_model(path, instance_kind="GPU", device_id=3) as model:
        args = model.python_object.args
        assert args.pop("model_config")
        assert args == {
            "model_instance_kind": "GPU",
            "model_instance_name": "net_0",
            "model_instance_device_id": "3",
            "model_repository": str(path),
            "model_version": "1",
            "model_name": "net",
        }
        assert model.python_object.directory == str(path / "1")
        assert model.config["max_batch_size"] == 4
        assert model.config["instance_group"][0]["kind"] == "KIND_CPU"


@pytest.mark.parametrize("part", ["", "1", "1/model.py"])
def test_the_path_may_be_the_model_its_version_or_its_file(write, part):
    with load_python_model(write(DOUBLE) / part) as model:
        assert (model.name, model.version) == ("net", 1)
        assert model.infer(x([1, 2]))["Y"].tolist() == [[2, 4]]


def test_of_several_versions_the_highest_is_loaded(write):
    path = write(DOUBLE)
    (path / "12").mkdir()
    (path / "12" / "model.py").write_text((path / "1" / "model.py").read_text().replace("* 2", "* 12"))

    with load_python_model(path) as model:
        assert model.version == 12
        assert model.infer(x([1, 2]))["Y"].tolist() == [[12, 24]]


def test_a_model_may_complete_its_configuration(write):
    path = write(
        code(
            """
        @staticmethod
        def auto_complete_config(config):
            config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [2]})
            config.add_output({"name": "Y", "data_type": "TYPE_FP32", "dims": [2]})
            config.set_max_batch_size(8)
            config.set_dynamic_batching()
            return config
        """,
            DOUBLE,
        ),
        config=None,
    )

    with load_python_model(path) as model:
        assert model.config["max_batch_size"] == 8
        assert model.config["dynamic_batching"]["preferred_batch_size"] == [8]
        assert model.infer(x([1, 2]))["Y"].tolist() == [[2, 4]]


def test_a_configuration_may_be_given_as_text_or_as_a_dict(write):
    path = write(DOUBLE)
    document = {
        "backend": "python",
        "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
    }

    with load_python_model(path, config=document) as model:
        assert model.infer({"X": [4]})["Y"].tolist() == [8]
    with load_python_model(path, config=CONFIG.replace("4", "7")) as model:
        assert model.config["max_batch_size"] == 7


def test_the_configuration_may_be_yaml(write):
    path = write(DOUBLE)
    (path / "config.pbtxt").unlink()
    (path / "config.yaml").write_text(
        "backend: python\nmax_batch_size: 7\n"
        "input: [{name: X, data_type: TYPE_FP32, dims: [2]}]\n"
        "output: [{name: Y, data_type: TYPE_FP32, dims: [2]}]\n"
    )

    with load_python_model(path) as model:
        assert model.config["max_batch_size"] == 7


def test_a_model_for_gpus_can_be_tested_without_one(write):
    group = "instance_group [ { kind: KIND_GPU gpus: [ 0, 5 ] } ]"

    with load_python_model(write(DOUBLE, CONFIG + group)) as model:
        assert model.config["instance_group"][0]["gpus"] == [0, 5]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("other", r"no model at .*other: there is nothing; expected <model>, <model>/<version> or"),
        ("net/1/none.py", r"no model at .*none.py: there is nothing"),
        ("net/src/model.py", r"no model at .*src/model.py: 'src' is no version number"),
        (".", r"no model at .*: it has no version directory"),
    ],
)
def test_a_path_without_a_model_is_refused(write, tmp_path, path, message):
    write(DOUBLE)
    (tmp_path / "net" / "src").mkdir()
    (tmp_path / "net" / "src" / "model.py").touch()

    with pytest.raises(NotFound, match=message):
        load_python_model(tmp_path / path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('backend: "onnxruntime"', "model 'net' is for backend 'onnxruntime', expected 'python'"),
        (CONFIG.replace("FP32", "FP33"), "has no value named TYPE_FP33"),
        (CONFIG + 'name: "web"', "net"),
        (CONFIG + "dynamic_batching { preferred_batch_size: 9 }", "preferred size must be <= max batch size"),
    ],
)
def test_a_configuration_that_a_server_refuses_is_refused(write, config, message):
    path = write(DOUBLE)

    with pytest.raises(InvalidArg, match=message):
        load_python_model(path, config=config)


def test_a_file_that_the_configuration_does_not_name_is_refused(write):
    path = write(DOUBLE, other="")

    with pytest.raises(InvalidArg, match=r"got the file 'other.py', but a server loads 'model.py'"):
        load_python_model(path / "1" / "other.py")


@pytest.mark.parametrize("method", ["initialize(self, args)", "auto_complete_config(config)"])
def test_what_a_model_raises_while_it_loads_is_raised(write, method):
    decorator = "" if "self" in method else "@staticmethod\n"
    path = write(f"{decorator}def {method}:\n    raise LookupError('no weights')")
    before = list(sys.path), set(sys.modules)

    with pytest.raises(LookupError, match="no weights"):
        load_python_model(path)
    assert (list(sys.path), set(sys.modules)) == before


def test_auto_complete_must_return_the_configuration(write):
    path = write("@staticmethod\ndef auto_complete_config(config): pass")

    with pytest.raises(pb_utils.TritonError, match=r"must return a valid pb.ModelConfig object"):
        load_python_model(path)


def test_a_file_without_the_class_is_refused(write):
    path = write("pass")
    (path / "1" / "model.py").write_text("")

    with pytest.raises(AttributeError, match="has no attribute 'TritonPythonModel'"):
        load_python_model(path)


def test_the_python_backend_is_imported_only_when_a_model_is_loaded():
    program = "import sys, tritonpy_sdk.testing; print('triton_python_backend_utils' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "False\n"


def test_where_the_python_backend_is_missing_it_is_named(write, monkeypatch):
    path = write(DOUBLE)
    monkeypatch.setitem(sys.modules, "tritonpy_backend_python", None)

    with pytest.raises(ImportError, match="runs models with tritonpy-backend-python: install it"):
        load_python_model(path)


# Inputs and outputs.


def test_lists_and_numbers_become_what_the_configuration_says(load):
    model = load(DOUBLE)

    outputs = model.infer({"X": [[1, 2], [0.5, 4]]})

    assert outputs["Y"].dtype == np.float32
    assert outputs["Y"].tolist() == [[2, 4], [1, 8]]


@pytest.mark.parametrize(
    "texts",
    [
        ["a", "ü"],
        [b"a", "ü".encode()],
        np.array(["a", "ü"]),
        np.array([b"a", "ü".encode()]),
        np.array(["a", "ü".encode()], object),
    ],
)
def test_texts_of_every_kind_become_bytes(load, texts):
    outputs = load(LOUD, TEXT_CONFIG).infer({"TEXT": texts})

    assert outputs["LOUD"].dtype == object
    assert outputs["LOUD"].tolist() == [b"A", "ü".encode()]


def test_bf16_goes_in_and_comes_out_as_raw_bits(load):
    model = load(
        DOUBLE.replace(" * 2", " + 1"),
        CONFIG.replace("FP32", "BF16"),
    )

    assert model.infer({"X": np.array([[1, 2]], np.uint16)})["Y"].tolist() == [[2, 3]]


def test_the_model_may_write_to_its_inputs_and_the_test_to_its_outputs(load):
    given = x([1, 2])
    outputs = load("""
        def execute(self, requests):
            for request in requests:
                array(request)[:] = 7
            return [answer(Y=array(request)) for request in requests]
    """).infer(given)

    outputs["Y"] += 1

    assert outputs["Y"].tolist() == [[8, 8]]
    assert given["X"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"X": np.ones((1, 2))}, "data-type is 'FP64', but model 'net' expects 'FP32'"),
        ({"X": [["a", "b"]]}, r"input 'X': got \[\['a', 'b'\]\], expected values of FP32"),
        ({"X": [[1, 2], [3]]}, "input 'X': got .*, expected values of FP32: .*inhomogeneous"),
        (
            {"X": [[1, 2, 3]]},
            r"unexpected shape for input 'X' for model 'net'. Expected \[-1,2\], got \[1,3\]",
        ),
        ({"X": np.ones((5, 2), np.float32)}, "inference request batch-size must be <= 4 for 'net'"),
        ({"Z": [[1, 2]]}, "unexpected inference input 'Z' for model 'net'"),
        ({}, "expected 1 inputs but got 0 inputs for model 'net'"),
        ({"X": np.ones((1, 2), complex)}, "input 'X'|tensor 'X'"),
    ],
)
def test_a_request_that_a_server_refuses_is_refused(load, inputs, message):
    model = load(DOUBLE)

    with pytest.raises(pb_utils.TritonError, match=message) as failure:
        model.infer(inputs)
    assert failure.value.code() == INVALID
    assert model.infer(x([1, 2]))["Y"].tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        ("INT32", [1.5]),
        ("INT32", [1 << 40]),
        ("UINT8", [-1]),
        ("BOOL", [1]),
        ("STRING", [1]),
        ("BF16", [1.0]),
    ],
)
def test_values_that_do_not_fit_are_refused_instead_of_cut(load, data_type, values):
    config = f'backend: "python" input {{ name: "X" data_type: TYPE_{data_type} dims: 1 }}'
    model = load("def execute(self, requests): return [answer() for _ in requests]", config)

    with pytest.raises(pb_utils.TritonError, match="input 'X': got "):
        model.infer({"X": values})


def test_a_request_carries_what_a_client_may_say(load):
    model = load("""
        def execute(self, requests):
            self.seen = [
                (r.request_id(), r.correlation_id(), r.flags(), r.timeout(), json.loads(r.parameters()),
                 r.requested_output_names())
                for r in requests
            ]
            return [answer(Y=array(request)) for request in requests]
    """)

    model.infer(
        x([1, 2]),
        request_id="7",
        correlation_id="seq",
        flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
        timeout_us=5,
        parameters={"a": 1, "b": "s"},
        requested=["Y"],
    )
    assert model.python_object.seen == [("7", "seq", 1, 5, {"a": 1, "b": "s"}, {"Y"})]

    model.infer(x([1, 2]))
    assert model.python_object.seen == [("", 0, 0, 0, {}, {"Y"})]


def test_a_parameter_that_cannot_travel_is_refused(load):
    with pytest.raises(TypeError, match="parameter 'a': got list, expected bool, int, float or str"):
        load(DOUBLE).infer(x([1, 2]), parameters={"a": []})


TWO_OUTPUTS = CONFIG + 'output { name: "Z" data_type: TYPE_FP32 dims: 2 }'


def test_only_requested_outputs_come(load):
    model = load(
        "def execute(self, requests): return [answer(Y=array(r), Z=array(r)) for r in requests]", TWO_OUTPUTS
    )

    assert list(model.infer(x([1, 2]), requested=["Z"])) == ["Z"]
    assert list(model.infer(x([1, 2]))) == ["Y", "Z"]
    with pytest.raises(pb_utils.TritonError, match="unexpected inference output 'W' for model 'net'"):
        model.infer(x([1, 2]), requested=["W"])


def test_an_output_that_was_not_given_is_named(load):
    outputs = load(DOUBLE).infer(x([1, 2]))

    with pytest.raises(KeyError, match=r"the response has no output 'Z', only \['Y'\]"):
        outputs["Z"]


def test_response_parameters_can_be_read(load):
    model = load("""
        def execute(self, requests):
            return [pb_utils.InferenceResponse([], parameters={"seconds": 1.5}) for _ in requests]
    """)

    assert model.infer(x([1, 2])).parameters == {"seconds": 1.5}


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            "Y=array(r), W=array(r)",
            "output 'W' of model 'net' is not in its configuration, which has \\['Y'\\]",
        ),
        ("Y=array(r).astype(np.float64)", r"'Y' of model 'net': got FP64 \[1, 2\], .* says FP32 \[1, 2\]"),
        ("Y=array(r)[0]", r"output 'Y' of model 'net': got FP32 \[2\], .* says FP32 \[1, 2\]"),
        ("Y=np.repeat(array(r), 3, 0)", r"got FP32 \[3, 2\], .* says FP32 \[1, 2\]"),
    ],
)
def test_outputs_that_do_not_fit_the_configuration_are_warned_of(load, outputs, message):
    model = load(f"def execute(self, requests): return [answer({outputs}) for r in requests]")

    with pytest.warns(ModelWarning, match=message) as caught:
        assert list(model.infer(x([1, 2]))) == ["Y"]
    assert [warning.filename for warning in caught] == [__file__]


# Errors.


def test_an_exception_of_the_model_is_raised_with_its_traceback(load):
    model = load("""
        def execute(self, requests):
            raise ZeroDivisionError("nothing to divide by")
    """)

    with pytest.raises(ZeroDivisionError, match="nothing to divide by") as failure:
        model.infer(x([1, 2]))
    assert str(failure.traceback[-1].path) == model.python_object.execute.__code__.co_filename


@pytest.mark.parametrize("way", ["raise error", "return [pb_utils.InferenceResponse(error=error)]"])
def test_a_tritonerror_is_raised_with_its_code(load, way):
    model = load(f"""
        def execute(self, requests):
            error = pb_utils.TritonError("too dark", pb_utils.TritonError.NOT_FOUND)
            {way}
    """)

    with pytest.raises(pb_utils.TritonError, match=r"^too dark$") as failure:
        model.infer(x([1, 2]))
    assert failure.value.code() == pb_utils.TritonError.NOT_FOUND


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("5", "message: Expected a list in the execute return, found type '<class 'int'>'"),
        ("[]", "Number of InferenceResponse objects do not match the number of InferenceRequest objects"),
        (
            "[3 for _ in requests]",
            "Expected an 'InferenceResponse' object in the execute function return list",
        ),
    ],
)
def test_what_is_no_list_of_responses_fails_as_in_a_server(load, returned, message):
    model = load(f"def execute(self, requests): return {returned}")

    with pytest.raises(pb_utils.TritonError, match=message) as failure:
        model.infer(x([1, 2]))
    assert failure.value.code() == INTERNAL
    assert str(failure.value).startswith("Failed to process the request(s) for model 'net_0', message: ")


def test_a_model_without_execute_says_so(load):
    with pytest.raises(pb_utils.TritonError, match="does not implement `execute` method"):
        load("pass").infer(x([1, 2]))


def test_a_request_that_the_model_forgets_is_answered(load):
    model = load("def execute(self, requests): return None")

    with pytest.raises(
        pb_utils.TritonError, match="model 'net' dropped the request without a final response"
    ):
        model.infer(x([1, 2]))


def test_a_request_that_the_model_keeps_is_not_waited_for_for_ever(load):
    model = load(
        """
        def execute(self, requests):
            self.kept = [request.get_response_sender() for request in requests]
    """,
        answer_timeout_s=0.05,
    )

    with pytest.raises(
        TimeoutError, match=r"request '7' for model 'net' had no response 0.05 s after execute"
    ):
        model.infer(x([1, 2]), request_id="7")


def test_an_answer_may_come_later_from_a_thread(load):
    model = load("""
        def execute(self, requests):
            for request in requests:
                threading.Thread(target=self.send, args=[request.get_response_sender()]).start()

        def send(self, sender):
            sender.send(answer(Y=np.ones((1, 2), np.float32)), FINAL)
    """)

    assert model.infer(x([1, 2]))["Y"].tolist() == [[1, 1]]


def test_what_a_server_would_log_goes_to_standard_error(load, capfd):
    model = load("""
        def execute(self, requests):
            requests[0].get_response_sender().send(answer(Y=array(requests[0])))
            return [answer(Y=array(request)) for request in requests]
    """)

    assert model.infer(x([1, 2]))["Y"].tolist() == [[1, 2]]
    model.finalize()
    assert "Non-decoupled model cannot send more than one response." in capfd.readouterr().err


def test_a_model_may_say_whether_it_is_ready(load):
    model = load(
        code(
            """
        async def is_ready(self):
            return self.answers.pop()
    """,
            DOUBLE,
        )
    )
    model.python_object.answers = [0, False, True]

    assert model.is_ready() is True
    assert model.is_ready() is False
    with pytest.raises(pb_utils.TritonError, match="is_ready must return a bool, got int"):
        model.is_ready()
    with pytest.raises(pb_utils.TritonError, match="IndexError: pop from empty list"):
        model.is_ready()
    assert load(DOUBLE, name="plain").is_ready()


# Batches.


def test_several_requests_come_in_one_batch(load):
    model = load("""
        def execute(self, requests):
            self.ids = [request.request_id() for request in requests]
            return [answer(Y=array(request) * 2) for request in requests]
    """)

    first, second = model.infer_batch([x([1, 2]), ModelRequest(inputs=x([3, 4], [5, 6]), request_id="b")])

    assert model.python_object.ids == ["", "b"]
    assert first["Y"].tolist() == [[2, 4]]
    assert second["Y"].tolist() == [[6, 8], [10, 12]]


def test_one_request_of_a_batch_may_fail_alone(load):
    model = load("""
        def execute(self, requests):
            error = pb_utils.InferenceResponse(error=pb_utils.TritonError("no"))
            return [answer(Y=array(request)) if array(request).min() else error for request in requests]
    """)

    good, bad = model.infer_batch([x([1, 2]), x([0, 0])])

    assert good.error is None
    assert isinstance(bad.error, pb_utils.TritonError)
    with pytest.raises(pb_utils.TritonError, match=r"^no$"):
        bad["Y"]


def test_an_exception_fails_the_whole_batch(load):
    model = load("def execute(self, requests): raise ValueError(len(requests))")

    with pytest.raises(ValueError, match="2"):
        model.infer_batch([x([1, 2]), x([1, 2])])


def test_a_batch_that_no_server_would_make_is_refused(load):
    model = load(DOUBLE)
    alone = load(LOUD, TEXT_CONFIG, name="alone")

    with pytest.raises(pb_utils.TritonError, match=r"a batch of 3 requests with 6 rows .* more than 4"):
        model.infer_batch([x([1, 2], [1, 2])] * 3)
    with pytest.raises(pb_utils.TritonError, match=r"more than 1 \(max_batch_size 0\)"):
        alone.infer_batch([{"TEXT": ["a"]}] * 2)


def test_the_models_log_goes_to_standard_error(load, capfd):
    model = load("""
        def execute(self, requests):
            pb_utils.Logger.log_warn("careful")
            return [answer(Y=array(request)) for request in requests]
    """)

    model.infer(x([1, 2]))

    assert "WARNING: careful\n" in capfd.readouterr().err


def test_warnings_may_be_errors(load):
    model = load("def execute(self, requests): return [answer(Y=array(r), W=array(r)) for r in requests]")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ModelWarning, match="output 'W'"):
            model.infer(x([1, 2]))
    with pytest.warns(ModelWarning):
        model.infer(x([1, 2]))
