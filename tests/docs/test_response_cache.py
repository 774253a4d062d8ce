"""What the pages on response caches show works: the model, the client, the cache and its test."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.testing.shared_objects import find_compiler

from ..shell import run

ROOT = Path(__file__).parent.parent.parent
HOW_TO = ROOT / "docs/how-to"
USE, WRITE = ((HOW_TO / name).read_text() for name in ("response-cache.md", "write-a-cache.md"))
FILES = dict(
    re.findall(r"^```(?:python|protobuf)\n# (\S+)\n(.*?)^```", USE + WRITE, re.MULTILINE | re.DOTALL)
)
COMMANDS = re.findall(r"^\$ corectl serve --model-repository models (.*)$", USE + WRITE, re.MULTILINE)
PRINTED = r"(?:    (?P<answer>\[\[.*\]\]) \d\.\d s\n){2}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    return tmp_path


def ask_twice(server: Any) -> list[str]:
    """What the client of the page prints."""
    script = FILES["ask_twice.py"].replace("localhost:8000", f"localhost:{server.ports['HTTPService']}")
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()


def seconds(line: str) -> float:
    return float(line.split()[-2])


def execution_count(server: Any) -> int:
    """How often the model of the page, which takes half a second, was executed."""
    url = f"http://127.0.0.1:{server.ports['HTTPService']}/v2/models/slow/stats"
    with urllib.request.urlopen(url, timeout=30) as answer:
        [stats] = json.load(answer)["model_stats"]
        return int(stats["execution_count"])


def test_the_second_answer_of_the_page_comes_at_once(served: Callable[..., Any], folder: Path) -> None:
    server = served("--model-repository=models", *COMMANDS[0].split())
    lines = ask_twice(server)

    shown = re.search(PRINTED, USE)
    assert shown is not None
    assert [line.rsplit(maxsplit=2)[0] for line in lines] == [shown["answer"]] * 2
    assert seconds(lines[0]) >= 0.5
    assert execution_count(server) == 1


def test_the_cache_of_the_page_survives_the_server(served: Callable[..., Any], folder: Path) -> None:
    (command,) = [command for command in COMMANDS if "folder" in command]
    patient = ("--cache-timeout-ms=20000",)  # however slow this machine is: 100 by default, and then a miss
    first = served("--model-repository=models", *patient, *command.split())
    assert len(ask_twice(first)) == 2
    first.stop()

    again = served("--model-repository=models", *patient, *command.split())
    assert len(ask_twice(again)) == 2

    assert execution_count(again) == 0
    assert len(list((folder / "responses").iterdir())) == 1


def test_the_command_for_redis_asks_for_an_installed_cache(folder: Path) -> None:
    (command,) = [command for command in COMMANDS if "redis" in command]
    corectl = Path(sys.executable).with_name("corectl")
    done = subprocess.run(
        [str(corectl), "serve", "--model-repository=models", "--show-config", *command.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "redis,host=localhost redis,port=6379" in done.stdout


def test_the_test_of_the_page_passes(folder: Path) -> None:
    for path in ("caches/folder/cache.py", "test_folder.py"):
        (folder / Path(path).name).write_text(FILES[path])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_folder.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.timeout(240)  # it compiles, and starts three programs
def test_the_cache_in_c_of_the_page_works(served: Callable[..., Any], folder: Path) -> None:
    if find_compiler() is None:
        pytest.skip("there is no compiler for the cache of the page")
    ((name, source),) = re.findall(r"^```c\n/\* (\S+) \*/\n(.*?)^```", WRITE, re.MULTILINE | re.DOTALL)
    (folder / name).write_text(source)
    for command in re.findall(r"^\$ ((?:mkdir|cc) .*slots.*)$", WRITE, re.MULTILINE):
        run(command, folder)

    assert "1 passed" in run("python -m pytest -q -p no:cacheprovider test_slots.py", folder)
    (command,) = [command for command in COMMANDS if "slots" in command]
    server = served("--model-repository=models", *command.split())
    assert seconds(ask_twice(server)[0]) >= 0.5
    assert execution_count(server) == 1


@pytest.mark.parity
def test_tritons_own_cache_works_as_the_page_says(
    served: Callable[..., Any], real_caches: Path, folder: Path
) -> None:
    for command in re.findall(r"^\$ ((?:mkdir|cp) .*theirs.*)$", USE, re.MULTILINE):
        run(command.replace("/opt/tritonserver/caches", str(real_caches)), folder)

    (command,) = [command for command in COMMANDS if "theirs" in command]
    server = served("--model-repository=models", *command.split())
    assert seconds(ask_twice(server)[0]) >= 0.5
    assert execution_count(server) == 1


def test_the_page_tells_every_metric_of_the_cache() -> None:
    from tritonpy.metrics import models, server

    source = Path(server.__file__).read_text() + Path(models.__file__).read_text()
    names = {
        f"nv_cache_{name}"
        for name in re.findall(r'^ +\(?"((?:num|lookup|insertion|util)\w*)", ', source, re.M)
    }
    names |= set(re.findall(r'"(nv_cache_\w+_per_model)"', source)) | {server.ERRORS}
    names = {name for name in names if "summary" not in name}

    assert len(names) > 8
    assert {name for name in names if f"`{name}`" not in USE} == set()
