"""PyTriton's public names, each with its counterpart or the reason why it has none."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tritonpy_sdk.pytriton.check import __main__ as check

from .public_names import read_names, recorded_names

NAMES = recorded_names()
ROOT = Path(__file__).parents[3]
INSIDE = "how PyTriton works inside"
LEFT_OUT = {
    "client.client": {
        "BaseModelClient.create_client_from_url": INSIDE,
        "BaseModelClient.get_lib": INSIDE,
        "ModelClient.get_lib": INSIDE,
        "AsyncioModelClient.get_lib": INSIDE,
    },
    "client.utils": dict.fromkeys(
        NAMES["client.utils"], "helpers around tritonclient, which is there itself"
    ),
    "constants": {
        "PYTRITON_HOME": "nothing is kept there",
        "TRITON_PYTHON_BACKEND_INTERPRETER_DIRNAME": "there is no interpreter of its own",
    },
    "decorators": {
        "convert_output": INSIDE,
        "get_model_config": INSIDE,
        "get_triton_context": INSIDE,
        "ModelConfigDict": INSIDE,
        "TritonContext.model_configs": "a function is given the one model that it is called for",
    },
    "model_config.common": {"generate_warmup_data": INSIDE, "generate_warmup_requests": INSIDE},
    "proxy.types": {
        "ResponsesNoneOrError": INSIDE,
        "ResponsesOrError": INSIDE,
        "Scope": INSIDE,
        "Request.traced_span": "traces are those of the server",
        **{f"Response.{name}": "outputs are dicts" for name in ["data", "items", "keys", "values"]},
    },
    "triton": dict.fromkeys(
        (
            "DEFAULT_PROTECTED_ENDPOINTS",
            "GROWTH_BACKEND_SHM_SIZE",
            "INITIAL_BACKEND_SHM_SIZE",
            "LOGGER",
            "MODEL_CONFIG_URL",
            "MODEL_INFER_URL",
            "MODEL_READY_URL",
            "MODEL_URL",
            "MONITORING_PERIOD_S",
            "TRITONSERVER_DIST_DIR",
            "TRITON_ACCESS_HEADER",
            "VALID_TRITON_ENDPOINTS",
            "WAIT_FORM_MODEL_TIMEOUT_S",
            "TritonBase:url",
            "TritonBase:workspace",
            "TritonBase:access_token",
        ),
        INSIDE,
    ),
}


@pytest.mark.parametrize("module", NAMES)
def test_each_public_name_has_a_counterpart(module: str) -> None:
    left_out = LEFT_OUT.get(module, {})
    wanted = {name: told for name, told in NAMES[module].items() if name not in left_out}
    if not wanted:
        return
    ours = import_module(f"tritonpy_sdk.pytriton.{module}")

    missing = [text for name, told in wanted.items() for text in missing_of(ours, name, told)]

    assert [text for text in missing if text not in left_out] == []
    unneeded = {name for name in left_out if name in NAMES[module] and hasattr(ours, name)}
    assert unneeded == set()


def missing_of(module: Any, name: str, told: dict[str, Any]) -> list[str]:
    """What a name of ours lacks: `NAME`, `CLASS.MEMBER`, `NAME:ARGUMENT` or `CLASS.METHOD:ARGUMENT`."""
    found = getattr(module, name, None)
    if found is None:
        return [name]
    missing = [f"{name}:{each}" for each in lacking(found, told.get("arguments", ()))]
    members = set(dir(found)) | set(arguments_of(found))
    if isinstance(found, type) and issubclass(found, Exception):
        members |= set(dir(found("text")))
    for method, arguments in told.get("methods", {}).items():
        if method not in members:
            missing.append(f"{name}.{method}")
        else:
            called = getattr(found, method, None)
            missing += [f"{name}.{method}:{each}" for each in lacking(called, arguments)]
    return missing + [f"{name}.{field}" for field in told.get("fields", ()) if field not in members]


def lacking(function: Any, arguments: list[str]) -> list[str]:
    """Arguments that it does not take; decorators take their function by any name."""
    if "wrapped" in arguments or not callable(function):
        return []
    own = arguments_of(function)
    return [each for each in arguments if own and each not in own]


def arguments_of(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of the interpreter, or no function
        return []


@pytest.mark.parity
def test_the_names_that_are_written_down_are_those_of_the_wheel(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        real_triton = import_module("real_triton")
    finally:
        sys.path.pop(0)
    real_triton.fetch(ROOT / ".cache/real-triton")
    (wheel,) = (ROOT / ".cache/real-triton/wheels").glob("nvidia_pytriton-0.7.0-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(
            tmp_path,
            [name for name in packed.namelist() if name.startswith("pytriton/") and name.endswith(".py")],
        )

    assert read_names(tmp_path / "pytriton") == NAMES


@pytest.mark.parametrize(
    ("arguments", "titles"),
    [
        (["env"], ["environment"]),
        (["examples"], ["example in this process", "example in a process of its own"]),
    ],
)
def test_the_check_finds_that_everything_is_in_order(
    tmp_path: Path, arguments: list[str], titles: list[str]
) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "tritonpy_sdk.pytriton.check",
            *arguments,
            "--workspace",
            str(tmp_path / "found"),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "no_proxy": "*", "A_SECRET": "hidden away"},
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    text = (tmp_path / "found/check.txt").read_text()
    assert [line for line in text.splitlines() if line.startswith("== ")] == [
        f"== {title}" for title in titles
    ]
    assert text in ended.stdout
    assert "hidden away" not in text
    with zipfile.ZipFile(tmp_path / "found.zip") as packed:
        assert packed.read("check.txt").decode() == text


def test_a_check_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> list[str]:
        raise OSError("no port is free")

    monkeypatch.setattr(check, "_HERE", ("example in this process", fails))
    ended = CliRunner().invoke(check.main, ["example-add-sub", "-w", str(tmp_path / "found"), "--no-zip"])
    again = CliRunner().invoke(check.main, ["env", "-w", str(tmp_path)])

    assert ended.exit_code == 1
    assert "FAILED: OSError: no port is free" in ended.output
    assert not (tmp_path / "found.zip").exists()
    assert again.exit_code == 2
    assert "exists already" in again.output
