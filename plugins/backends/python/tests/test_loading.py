"""From SETUP to an initialized instance, and everything that may go wrong on the way."""

from __future__ import annotations

import json
import sys

import pytest
from tritonpy.ipc import frame

ECHO_ARGS = """
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        seen = {
            "args": self.args,
            "module": __name__,
            "file": __file__,
            "package": __package__,
            "directory": pb_utils.get_model_dir(),
            "path": sys.path,
            "modules": sorted(name for name in sys.modules if name.startswith("tritonpy")),
        }
        text = np.array([json.dumps(seen)], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", text)]) for _ in requests]
"""


def seen(worker):
    [outputs] = worker.infer(worker.request())
    return json.loads(outputs["OUTPUT0"][0])


def test_initialize_gets_triton_s_seven_strings(set_up):
    worker = set_up(ECHO_ARGS, config={"parameters": {"a": {"string_value": "ü"}}})
    worker.initialize(name="net_0_1", kind="KIND_GPU", device_id=3)

    args = seen(worker)["args"]

    assert json.loads(args.pop("model_config")) == worker.config
    assert args == {
        "model_instance_kind": "GPU",
        "model_instance_name": "net_0_1",
        "model_instance_device_id": "3",
        "model_repository": str(worker.directory),
        "model_version": "1",
        "model_name": "net",
    }


def test_the_model_is_a_member_of_its_version_directory(load):
    worker = load(ECHO_ARGS)

    what = seen(worker)

    assert what["module"] == "1.model"
    assert what["package"] == "1"
    assert what["file"] == str(worker.model_file)
    assert what["directory"] == str(worker.model_file.parent)


def test_the_module_path_ends_with_the_model_s_directories_and_has_none_of_the_server_s(load):
    worker = load(ECHO_ARGS)

    path = seen(worker)["path"]

    assert path[-2:] == [str(worker.model_file.parent), str(worker.directory)]
    assert not [entry for entry in path if entry.endswith("worker")]


def test_the_worker_does_not_import_the_server(load):
    modules = seen(load(ECHO_ARGS))["modules"]

    assert [name for name in modules if name.partition(".")[0] != "tritonpy_model"] == []


def test_files_beside_the_model_can_be_imported_both_ways(load):
    code = """
        from .left import LEFT
        import right
        assert (LEFT, right.RIGHT) == ("l", "r")
        class TritonPythonModel: pass
    """

    load(code, files={"left.py": "LEFT = 'l'", "right.py": "RIGHT = 'r'"})


def test_the_file_s_name_can_be_configured(set_up):
    worker = set_up(
        "raise AssertionError('not this one')",
        files={"other.py": "class TritonPythonModel: pass"},
        config={"default_model_filename": "other.py"},
    )

    assert worker.initialize()[0] == frame.INITIALIZED


def test_the_worker_finds_ipc_beside_the_installed_server_when_it_is_not_told(workers, load):
    load(ECHO_ARGS, worker=workers(sys.executable, variables={"TRITONPY_IPC_PATH": ""}))


def failed(message):
    assert message[0] == frame.FAILED, message
    return message[2:]


def at(worker, *lines):
    return "\n\nAt:\n" + "".join(f"  {worker.model_file}({line}): {name}\n" for line, name in lines)


FAILURES = {
    "initialize": (
        "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError('no')\n",
        "ValueError: no",
        [(3, "initialize")],
    ),
    "initialize, exit": (
        "class TritonPythonModel:\n    def initialize(self, args):\n        raise SystemExit(4)\n",
        "SystemExit: 4",
        [(3, "initialize")],
    ),
    "constructor": (
        "class TritonPythonModel:\n    def __init__(self):\n        raise ValueError('no')\n",
        "ValueError: no",
        [(3, "__init__")],
    ),
    "module": (
        "def f():\n    raise ValueError('no')\nf()\n",
        "ValueError: no",
        [(2, "f"), (3, "<module>")],
    ),
    "import": (
        "import nosuchmodule\n",
        "ModuleNotFoundError: No module named 'nosuchmodule'",
        [(1, "<module>")],
    ),
    "empty message": (
        "class TritonPythonModel:\n    def initialize(self, args):\n        raise ValueError()\n",
        "ValueError: <EMPTY MESSAGE>",
        [(3, "initialize")],
    ),
    "message of its own": (
        "import triton_python_backend_utils as pb_utils\n"
        "class TritonPythonModel:\n    def initialize(self, args):\n"
        "        raise pb_utils.TritonModelException('no')\n",
        "TritonModelException: no",
        [(4, "initialize")],
    ),
    "inside the module": (
        "import triton_python_backend_utils as pb_utils\n"
        "class TritonPythonModel:\n    def initialize(self, args):\n        pb_utils.Tensor('X', 5)\n",
        "TypeError: Tensor: numpy_array must be a numpy.ndarray, got int",
        [(4, "initialize")],
    ),
    "no class": ("x = 1\n", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'", []),
    "syntax": ("def (\n", "SyntaxError: invalid syntax (model.py, line 1)", []),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_model_that_cannot_start_says_why_and_where(set_up, case):
    code, message, lines = FAILURES[case]
    worker = set_up(code)

    code, text, trace = failed(worker.initialize())

    assert code == 1
    assert text == message + (at(worker, *lines) if lines else "")
    assert message.partition(":")[0] in trace
    assert "session.py" not in trace


def test_an_error_of_triton_s_own_kind_keeps_its_code_and_text(set_up):
    worker = set_up(
        """
        import triton_python_backend_utils as pb_utils
        raise pb_utils.TritonError("busy", pb_utils.TritonError.UNAVAILABLE)
        """
    )

    code, text, _ = failed(worker.initialize())

    assert (code, text) == (4, "busy")


def test_a_missing_model_file_is_named(set_up):
    worker = set_up(config={"default_model_filename": "other.py"})

    _, text, _ = failed(worker.initialize())

    path = worker.model_file.with_name("other.py")
    assert text == f"model 'net': expected its model file at {path}, which is no file"


def test_a_model_file_of_another_kind_is_named(set_up):
    worker = set_up(files={"model.txt": ""}, config={"default_model_filename": "model.txt"})

    _, text, _ = failed(worker.initialize())

    path = worker.model_file.with_name("model.txt")
    assert text == f"model 'net': {path} is no Python file; its name must end in .py"


# auto_complete_config


def complete(worker):
    answer = worker.ask(frame.COMPLETE)
    assert answer[0] == frame.COMPLETED, answer
    return json.loads(answer[2]) if answer[2] is not None else None


def test_a_model_completes_its_configuration(set_up):
    worker = set_up(
        """
        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(config):
                config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [4]})
                config.set_max_batch_size(8)
                return config
        """
    )

    completed = complete(worker)

    assert completed == {
        **worker.config,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [4]}],
        "max_batch_size": 8,
    }


def test_a_model_without_auto_complete_leaves_the_configuration(set_up):
    assert complete(set_up("class TritonPythonModel: pass")) is None


def test_the_file_is_imported_once_for_completing_and_initializing(set_up):
    worker = set_up(
        """
        import builtins
        assert not hasattr(builtins, "imported")
        builtins.imported = True
        class TritonPythonModel: pass
        """
    )

    complete(worker)

    assert worker.initialize()[0] == frame.INITIALIZED


COMPLETE = "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n        "


@pytest.mark.parametrize("result", ["None", "{}"])
def test_auto_complete_must_return_the_configuration(set_up, result):
    worker = set_up(f"{COMPLETE}return {result}\n")

    _, text, _ = failed(worker.ask(frame.COMPLETE))

    assert text == ("auto_complete_config function in model 'net' must return a valid pb.ModelConfig object.")


def test_an_exception_while_completing_says_where(set_up):
    worker = set_up(f"{COMPLETE}raise ValueError('no')\n")

    _, text, _ = failed(worker.ask(frame.COMPLETE))

    assert text == "ValueError: no" + at(worker, (4, "auto_complete_config"))


def test_a_contradiction_while_completing_says_where_in_the_model(set_up):
    worker = set_up(
        f"{COMPLETE}config.add_output({{'name': 'OUTPUT0', 'data_type': 'TYPE_INT8', 'dims': [-1]}})\n"
    )

    _, text, _ = failed(worker.ask(frame.COMPLETE))

    assert text == (
        "ValueError: unable to load model 'net', configuration expects datatype TYPE_FP32 for output "
        "'OUTPUT0', model provides TYPE_INT8" + at(worker, (4, "auto_complete_config"))
    )


# finalize


def test_finalize_is_called_and_the_worker_goes(load):
    worker = load("class TritonPythonModel:\n    def finalize(self):\n        print('bye')\n")

    answer = worker.ask(frame.FINALIZE)

    assert answer[2:] == (None,)
    assert worker.process.wait(20) == 0
    assert worker.logs == [(0, "bye", "")]


def test_an_exception_in_finalize_is_told(load):
    worker = load("class TritonPythonModel:\n    def finalize(self):\n        raise SystemExit('no')\n")

    answer = worker.ask(frame.FINALIZE)

    assert answer[2] == "SystemExit: no" + at(worker, (3, "finalize"))
    assert worker.process.wait(20) == 0


def test_a_worker_that_never_had_a_model_goes_too(workers):
    worker = workers()

    assert worker.ask(frame.FINALIZE)[2:] == (None,)
    assert worker.process.wait(20) == 0
