"""The commands of the pages on several servers start, show, change and end a fleet, as the pages say."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tritonpy.cli.serve import options_of
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

pytest.importorskip("tritonpy_router")
from tritonpy_router.route_cli import PORT_FLAG, route

HOW_TO = Path(__file__).parents[2] / "docs/how-to"
ALL_CORES = (HOW_TO / "use-all-cores.md").read_text()
SEVERAL = (HOW_TO / "route-to-several-servers.md").read_text()
CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
}
CORECTL = [sys.executable, "-m", "tritonpy.cli.main"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fleets are for Linux and macOS")


def commands(page: str, program: str) -> list[list[str]]:
    lines = page.replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in re.findall(rf"^\$ (corectl {program}.*)$", lines, re.MULTILINE)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}


@pytest.fixture
def fleet(tmp_path: Path, environment: dict[str, str]) -> Iterator[Path]:
    """The fleet of the page, with as few servers as it has after `scale`; the log of all."""
    [words] = commands(ALL_CORES, "cluster local")
    assert words[2] == "4"
    words[2] = "1"
    ModelRepository(tmp_path / "models").model("m", CONFIG)
    ports = [f"--{service}-{what}" for service in ("http", "grpc", "metrics") for what in ("port=0",)]
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*CORECTL, *words, *ports, "--http-address=127.0.0.1"],
            cwd=tmp_path,
            env=environment,
            stderr=output,
        )
    try:
        yield log
        assert process.wait(DEADLINE_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_the_commands_of_the_page_start_change_and_end_a_fleet(
    fleet: Path, environment: dict[str, str]
) -> None:
    def run(words: list[str]) -> str:
        done = subprocess.run(
            [*CORECTL, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=3 * DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr + fleet.read_text()
        return done.stdout

    def states() -> list[str]:
        return [row["state"] for row in json.loads(run(["cluster", "status", "--json"]))]

    shown = commands(ALL_CORES, "cluster (?!local)")
    assert [words[1] for words in shown] == ["status", "scale", "update", "down"]
    until(lambda: "HTTP on port" in fleet.read_text())
    until(lambda: states() == ["ready"], fleet.read_text)
    status, scale, _, down = shown
    run(scale)
    until(lambda: states() == ["ready"] * int(scale[-1]), fleet.read_text)
    [port] = re.findall(r"Routing: HTTP on port (\d+)", fleet.read_text())
    with urlopen(f"http://127.0.0.1:{port}/v2/models/m/ready", timeout=DEADLINE_S) as answer:
        assert answer.status == 200
    assert run(status).startswith("name ")
    run(down)


@pytest.mark.parametrize("page", [ALL_CORES, SEVERAL])
def test_routers_take_what_pages_tell_them(page: str) -> None:
    told = commands(page, "route")

    contexts: list[Any] = [route.make_context("route", words[1:]) for words in told]

    assert contexts
    for context in contexts:
        flags = context.params["port_flags"]
        options_of(["--model-repository=m", *flags])
        assert all(PORT_FLAG.match(flag) for flag in flags if flag.startswith("--")), flags
