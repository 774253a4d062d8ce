"""A strategy that cannot be loaded is refused in the words of a real tritonserver, where that one goes on."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository

from .conftest import Compiled

ALL_FIVE = ("-DWITH_1", "-DWITH_2", "-DWITH_3", "-DWITH_4", "-DWITH_5")

MODEL = """
class TritonPythonModel:
    def execute(self, requests):
        return []
"""

LOADS = {"finalize_error", "begin_error"}
DIFFERS = {"directory": "unable to load shared library: {path}"}
"""What both have in common where the rest is in other words."""


def strategies(directory: Path, compiled: Compiled) -> dict[str, tuple[Path, str]]:
    """Names of models, with the path of a library and the fault that it is to show."""
    good = compiled("strategies/partial.c", *ALL_FIVE, "-s")
    faulty = compiled("strategies/faulty.cc")
    absent = Path(shutil.copy(good, directory / "libabsent.so"))
    needs = compiled("strategies/partial.c", *ALL_FIVE, "-Wl,--no-as-needed", str(absent))
    absent.unlink()
    machine = bytearray(good.read_bytes())
    machine[18:20] = (62 if machine[18] == 183 else 183).to_bytes(2, "little")
    (directory / "text.so").write_text("this is no library\n" * 10)
    (directory / "short.so").write_text("short")
    (directory / "empty.so").touch()
    (directory / "machine.so").write_bytes(machine)
    (directory / "directory.so").mkdir()
    files = ("text", "short", "empty", "machine", "directory", "missing")
    return {name: (directory / f"{name}.so", "") for name in files} | {
        "needs": (needs, ""),
        "undefined": (compiled("strategies/partial.c", *ALL_FIVE, "-DCALLS_NOBODY"), ""),
        "error": (faulty, "ModelBatcherInitialize error"),
        "begin_error": (faulty, "ModelBatchInitialize error"),
        "finalize_error": (faulty, "ModelBatcherFinalize error"),
    }


def configuration(path: Path, fault: str) -> dict[str, Any]:
    parameters = {"TRITON_BATCH_STRATEGY_PATH": str(path), "FAULT": fault}
    return {
        "max_batch_size": 8,
        "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "dynamic_batching": {},
        "parameters": {name: {"string_value": value} for name, value in parameters.items()},
    }


def load(port: int, name: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", f"/v2/repository/models/{name}/load", "{}")
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text or "{}").get("error", "")


@pytest.mark.parity
def test_what_cannot_be_loaded_is_refused_in_the_same_words(
    tmp_path: Path, compiled: Compiled, corectl: Callable[..., Any], real_triton: Callable[..., Any]
) -> None:
    models = ModelRepository(tmp_path / "models")
    cases = strategies(tmp_path, compiled)
    for name, (path, fault) in cases.items():
        models.python(name, MODEL, configuration(path, fault))
    real = real_triton(models.path, "--model-control-mode=explicit")
    ours = corectl(f"--model-repository={models.path}", "--model-control-mode=explicit")

    for name, (path, _) in cases.items():
        status, text = load(real["http"], name)
        our_status, our_text = load(ours.ports["HTTPService"], name)

        assert our_status == status == (200 if name in LOADS else 400), (name, text, our_text)
        common = DIFFERS[name].format(path=path) if name in DIFFERS else text.removesuffix(";\n")
        assert common in text
        assert common in our_text
        assert our_text.endswith(";\n") or name in LOADS
