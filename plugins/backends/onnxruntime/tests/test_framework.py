from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from tritonpy.plugin import Backend, TritonError
from tritonpy_backend_onnxruntime import framework
from tritonpy_backend_onnxruntime.framework import framework_error, start_framework


def backend(settings=None):
    return Backend("onnxruntime", settings or {})


@pytest.fixture
def installed(monkeypatch):
    """Pretend that exactly these distributions are installed."""

    def pretend(*names):
        def version(name):
            if name not in names:
                raise PackageNotFoundError(name)
            return "1.31.1"

        monkeypatch.setattr(framework, "version", version)

    return pretend


def test_missing_onnxruntime_says_which_extra_to_install(monkeypatch, installed):
    installed()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(
        TritonError, match=r"pip install 'tritonpy-backend-onnxruntime\[cpu\]', or \[gpu\]"
    ) as refused:
        start_framework(backend())

    assert refused.value.code.text == "Unavailable"


def test_broken_onnxruntime_is_told_apart_from_a_missing_one(monkeypatch, installed):
    installed("onnxruntime-gpu")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)

    with pytest.raises(TritonError, match="onnxruntime-gpu is installed but fails: "):
        start_framework(backend())


def test_both_wheels_at_once_are_warned_about(installed, caplog):
    installed("onnxruntime", "onnxruntime-gpu")

    start_framework(backend())

    assert (
        "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files" in caplog.text
    )


def test_one_wheel_is_not_warned_about(installed, caplog):
    installed("onnxruntime")

    start_framework(backend())

    assert not caplog.records


def test_backend_config_is_read():
    started = start_framework(
        backend({"default-max-batch-size": "0", "intra_op_thread_count": "3", "inter_op_thread_count": "2"})
    )

    assert started.default_max_batch_size == 0
    assert (started.intra_op_thread_count, started.inter_op_thread_count) == (3, 2)
    assert start_framework(backend()).default_max_batch_size == 4


@pytest.mark.parametrize(
    ("key", "value"), [("default-max-batch-size", "-1"), ("enable-global-threadpool", "perhaps")]
)
def test_bad_backend_config_is_refused_with_its_flag(key, value):
    with pytest.raises(TritonError, match=f"--backend-config=onnxruntime,{key}: got '{value}', expected"):
        start_framework(backend({key: value}))


def test_errors_of_onnxruntime_carry_its_code_and_not_its_prefix():
    error = framework_error(
        RuntimeError("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions")
    )

    assert error.message == "onnx runtime error 2: Got invalid dimensions"
    assert error.code.text == "Internal"
    assert framework_error(ValueError("odd"), "net: ").message == "net: onnx runtime error: odd"


def test_importing_the_plugin_and_its_attributes_loads_no_framework():
    program = (
        "import sys, tritonpy_backend_onnxruntime as plugin\n"
        "attributes = plugin.backend_attributes()\n"
        "assert 'onnxruntime' not in sys.modules\n"
        "wishes = [(group.kind, group.count) for group in attributes.preferred_groups]\n"
        "print(attributes.execution, wishes, attributes.default_filename)\n"
    )

    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert output == "thread [('KIND_GPU', 0), ('KIND_CPU', 2)] model.onnx\n"


@pytest.mark.parametrize(
    ("library", "uses"),
    [("libonnxruntime_providers_cuda.so", True), ("libonnxruntime_providers_x.so", False)],
)
def test_models_are_placed_on_gpus_only_by_a_wheel_that_runs_on_them(tmp_path, library, uses):
    package = tmp_path / "onnxruntime"
    (package / "capi").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "capi" / library).touch()
    program = "import tritonpy_backend_onnxruntime as plugin; print(plugin.backend_attributes().uses_gpus)"

    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    output = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert output == f"{uses}\n"


def test_global_thread_pool_serves_models_and_survives_a_second_start():
    """In a process of its own: the pool stays for the life of the process."""
    program = (
        "import onnxruntime\n"
        "from pathlib import Path\n"
        "from tritonpy.plugin import Backend, Model\n"
        "from tritonpy_backend_onnxruntime.framework import start_framework\n"
        "from tritonpy_backend_onnxruntime.options import read_settings, session_options\n"
        "settings = {'enable-global-threadpool': '1', 'intra_op_thread_count': '2'}\n"
        "backend = Backend('onnxruntime', settings)\n"
        "start_framework(backend)\n"
        "framework = start_framework(backend)\n"
        "model = Model('net', 1, {'name': 'net'}, Path(), backend)\n"
        "options = session_options(framework, read_settings(model, framework))\n"
        "onnxruntime.InferenceSession(Path(__import__('sys').argv[1]), options)\n"
        "print(options.use_per_session_threads)\n"
    )
    path = f"{__file__.rpartition('/')[0]}/models/affine/1/model.onnx"

    output = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    ).stdout

    assert output == "False\n"
