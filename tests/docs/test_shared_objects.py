"""The pages on shared objects: what they tell authors and operators to type works."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tritonpy_sdk.testing import compile_shared_object, find_compiler

from ..counting import at_rest
from ..shell import environment, run

ROOT = Path(__file__).parents[2]
AUTHORS = (ROOT / "docs/how-to/batching-strategies-in-c.md").read_text()
OPERATORS = (ROOT / "docs/how-to/use-shared-objects.md").read_text()
PORTS = "".join(f" --{name}-address=127.0.0.1 --{name}-port=0" for name in ("http", "grpc", "metrics"))
REQUEST = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1.5]}]}
START_S = 40
ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x)]) for x in inputs]
"""

pytestmark = [
    pytest.mark.timeout(240),  # they compile, and start program after program
    pytest.mark.skipif(find_compiler(".c") is None, reason="there is no compiler for C"),
]


def commands(page: str, heading: str) -> list[str]:
    """What is to be typed below a heading."""
    section = page.partition(f"## {heading}\n")[2] if heading else page
    section = section.partition("\n## ")[0]
    found = re.findall(r"^\$ (.*)", section, re.MULTILINE)
    assert found, heading
    return found


@contextmanager
def running(command: str, folder: Path, log: list[str] | None = None) -> Iterator[int]:
    """Start the server of a command; gives its HTTP port. Its log is complete when it has ended."""
    server = subprocess.Popen(
        command + PORTS,
        shell=True,
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert server.stderr is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    log = [] if log is None else log

    def read() -> None:
        for line in server.stderr or []:
            log.append(line)
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        while line := lines.get(timeout=START_S):
            if found := re.search(r"Started HTTPService at 127\.0\.0\.1:(\d+)", line):
                yield int(found[1])
                break
        else:
            raise AssertionError(f"{command}\n{''.join(log)}")
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(START_S)
        reader.join()
        server.stderr.close()


def infer(port: int, model: str) -> int:
    url = f"http://127.0.0.1:{port}/v2/models/{model}/infer"
    with urllib.request.urlopen(url, json.dumps(REQUEST).encode(), timeout=20) as answer:
        status: int = answer.status
        return status


def typed_in_readme(folder: Path, beginning: str) -> str:
    """The line of a new strategy's README that begins so."""
    lines = re.findall(r"^    (.*)", (folder / "README.md").read_text(), re.MULTILINE)
    [line] = [line for line in lines if line.startswith(beginning)]
    return str(line)


@pytest.mark.parametrize(("lang", "most"), [("c", 4), pytest.param("cpp", 6, marks=pytest.mark.stress)])
def test_a_new_strategy_is_made_tested_and_served(
    lang: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_compiler(".cc") is None and lang == "cpp":
        pytest.skip("there is no compiler for C++")
    _, make, enter, test, build, serve = commands(AUTHORS, "Begin")
    folder = tmp_path / new(make, lang, enter, tmp_path)
    assert " passed" in run(test, folder)
    run(build, folder)

    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "12")  # all are there, however slow their clients are
    with running(serve, folder) as port:
        run(typed_in_readme(folder, "for ").replace("localhost:8000", f"localhost:{port}"), folder)
        shown = run(f"{typed_in_readme(folder, 'corectl explain')} --url localhost:{port}", folder)
    sizes = re.findall(r"^ +(\d+) +\d+ +[\d.]+%", shown.partition("Rows of a batch\n")[2], re.MULTILINE)
    assert "12 succeeded, 0 failed" in shown
    assert re.search(r"^ +strategy +[1-9]", shown, re.MULTILINE)
    assert max(map(int, sizes)) <= most


def new(command: str, lang: str, enter: str, folder: Path) -> str:
    """Make a strategy in another language than the page does; its folder."""
    run(command.replace("--language c", f"--language {lang}"), folder)
    return enter.removeprefix("cd ")


@pytest.mark.parity
@pytest.mark.parametrize(("lang", "model"), [("c", "limited"), ("cpp", "shared")])
def test_triton_asks_a_new_strategy_too(
    lang: str,
    model: str,
    tmp_path: Path,
    real_triton: Callable[..., dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, make, enter, _, build, _ = commands(AUTHORS, "Begin")
    folder = tmp_path / new(make, lang, enter, tmp_path)
    run(build, folder)
    config = folder / "models" / model / "config.pbtxt"
    config.write_text(config.read_text().replace('"identity"', '"python"'))
    (config.parent / "1/model.py").write_text(ECHO)
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "12")  # all wait before the first batch is formed
    port = real_triton(folder / "models")["http"]

    run(typed_in_readme(folder, "for ").replace("localhost:8000", f"localhost:{port}"), folder)

    def batches() -> dict[int, int]:
        with urllib.request.urlopen(f"http://localhost:{port}/v2/models/{model}/stats", timeout=20) as answer:
            [stats] = json.loads(answer.read())["model_stats"]
        return {batch["batch_size"]: batch["compute_infer"]["count"] for batch in stats["batch_stats"]}

    formed = at_rest(batches)  # it counts a moment after it has answered
    assert sum(size * count for size, count in formed.items()) == 12
    if lang == "c":
        assert formed == {4: 3}
    else:
        assert max(formed) <= 6  # of each tenant's requests


@pytest.mark.stress
@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb")
def test_a_debugger_and_the_sanitizers_find_the_strategy(tmp_path: Path) -> None:
    _, make, enter, *_ = commands(AUTHORS, "Begin")
    debug, build, serve = commands(AUTHORS, "Debug")
    run(make, tmp_path)
    folder = tmp_path / enter.removeprefix("cd ")

    stopped = r"Breakpoint 1, TRITONBACKEND_ModelBatchIncludeRequest \(.*\bat .*strategy\.c:"
    assert re.search(stopped, run(debug, folder))

    run(build, folder)
    with running(serve, folder) as port:
        assert infer(port, "limited") == 200
    source = folder / "strategy.c"
    source.write_text(source.read_text().replace("*left = batcher->limit;", "left[1] = *left = 4;"))
    run(build, folder)
    log: list[str] = []
    with pytest.raises((OSError, http.client.HTTPException)), running(serve, folder, log) as port:
        infer(port, "limited")
    assert "heap-buffer-overflow" in "".join(log)


def test_the_lines_that_read_parameters_compile(tmp_path: Path) -> None:
    [lines] = re.findall(r"^```c\n(.*?)^```", AUTHORS, re.MULTILINE | re.DOTALL)
    arguments = "TRITONBACKEND_Model *model, TRITONBACKEND_Request *request"
    source = tmp_path / "lines.c"
    source.write_text(
        '#include "tritonpy/parameters.h"\n'
        f"TRITONSERVER_Error *look({arguments}) {{\nTRITONSERVER_Error *error;\n{lines}return error;\n}}\n"
    )

    assert compile_shared_object(source, tmp_path / "lines.so").is_file()


def test_a_strategy_inside_its_model_is_found_under_the_strict_policy(tmp_path: Path) -> None:
    install, plugins = commands(OPERATORS, "")
    [config] = re.findall(r"^```protobuf\n# models/limited/config.pbtxt\n(.*?)^```", OPERATORS, re.M | re.S)
    model = tmp_path / "models/limited"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(config)
    source = ROOT / "sdk/src/tritonpy_sdk/templates/strategy/c/strategy.c"
    compile_shared_object(source, model / "strategies/mine.so")
    [serve] = commands(OPERATORS, "Trust")

    assert install == "pip install ./core ./plugins/abi"
    assert re.search(r"^abi +loaders", run(plugins, tmp_path), re.MULTILINE)
    with running(serve, tmp_path) as port:
        assert infer(port, "limited") == 200
        url = f"http://127.0.0.1:{port}/v2/models/limited/explain"
        with urllib.request.urlopen(url, timeout=20) as answer:
            assert "strategies/mine.so" in answer.read().decode()
