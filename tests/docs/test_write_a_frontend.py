"""The frontend of the page, given to a server and installed as a stranger's distribution."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import local_options

PAGE = (Path(__file__).parents[2] / "docs/how-to/write-a-frontend.md").read_text()
FILES = dict(re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
}


@pytest.fixture
def heartbeat() -> ModuleType:
    module = ModuleType("heartbeat")
    exec(compile(FILES["heartbeat.py"], "heartbeat.py", "exec"), vars(module))
    return module


def beats(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tritonpy.heartbeat"]


@pytest.mark.parametrize(("model", "outcome"), [("echo", "answered"), ("nope", "failed: Request for")])
def test_the_frontend_of_the_page_asks_its_model_again_and_again(
    heartbeat: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture, model: str, outcome: str
) -> None:
    ModelRepository(tmp_path).model("echo", CONFIG)
    config = (("heartbeat", "model", model), ("heartbeat", "seconds", "0.01"))
    options = local_options(tmp_path, frontend_config=config)

    with (
        caplog.at_level(logging.INFO, "tritonpy.heartbeat"),
        Server(options, plugins={"frontends": {"heartbeat": heartbeat}}),
    ):
        until(lambda: len(beats(caplog)) > 1)
    count = len(beats(caplog))

    assert all(beat.startswith(f"heartbeat {outcome}") for beat in beats(caplog))
    assert count == len(beats(caplog))


def test_the_frontend_of_the_page_says_what_it_needs(heartbeat: ModuleType, tmp_path: Path) -> None:
    server = Server(local_options(tmp_path), plugins={"frontends": {"heartbeat": heartbeat}})

    with pytest.raises(InvalidArg, match="expected --frontend-config heartbeat,model=NAME"):
        server.start()


def test_the_page_names_it_by_an_entry_point(
    corectl: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    [(group, entries)] = project["entry-points"].items()
    info = tmp_path / "site" / "heartbeat-1.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\nheartbeat = {entries['heartbeat']}\n")
    (tmp_path / "site" / "heartbeat.py").write_text(FILES["heartbeat.py"])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    ModelRepository(tmp_path / "models").model("echo", CONFIG)
    _, command = [line for line in PAGE.splitlines() if line.startswith("$ corectl serve")]
    arguments = command.split()[3:]
    arguments[arguments.index("models")] = str(tmp_path / "models")

    server = corectl(*arguments)

    until(lambda: "heartbeat answered after" in server.log)
    assert server.stop() == 0
    assert "Started frontend 'heartbeat'" in server.log


def test_one_of_the_three_can_be_left_out(serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(tmp_path, disabled_plugins=(("frontends", "metrics"),))

    assert list(server.runtime.frontends.by_name) == ["grpc", "http"]
    with urlopen(f"http://127.0.0.1:{server.http_port}/v2/health/ready", timeout=30) as answer:
        assert answer.status == 200


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    (tmp_path / "test_frontend.py").write_text(FILES["test_frontend.py"])
    sources = Path(__file__).parents[2] / "examples/tritonpy-frontend-xyz/src"

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(sources)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
