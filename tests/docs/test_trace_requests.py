"""What the page on traces shows is what the server does."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tritonpy_sdk.repository import ModelRepository

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/how-to/trace-requests.md").read_text()
[CALLER] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[HEADER] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
OBJECTS, SETTINGS = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ (.*)$", PAGE.replace("\\\n    ", ""), re.MULTILINE)
TEXT = [{"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]}]
SHOUT = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        loud = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            shouted = np.array([word.decode().upper().encode() for word in text], np.object_)
            loud.append(pb_utils.InferenceResponse([pb_utils.Tensor("LOUD", shouted)]))
        return loud
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    repository = ModelRepository(tmp_path / "models")
    outputs = [{**TEXT[0], "name": name} for name in ("LOUD", "HEADERS")]
    repository.python("shout", SHOUT, {"backend": "python", "input": TEXT, "output": outputs[:1]})
    repository.python("caller", CALLER, {"backend": "python", "input": TEXT, "output": outputs})
    return repository.path


def infer(server: Any, model: str, id: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    body = {"id": id, "inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["hello"]}]}
    url = f"http://127.0.0.1:{server.ports['HTTPService']}/v2/models/{model}/infer"
    with urlopen(Request(url, json.dumps(body).encode(), headers or {}), timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def flags(command: str) -> list[str]:
    """The options of a `corectl serve` of the page, without its repository."""
    return shlex.split(command)[4:]


def test_the_page_traces_to_a_file_shows_it_and_changes_what_is_traced(
    served: Callable[..., Any], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve, summary, *curls = COMMANDS[:5]
    assert serve.startswith("corectl serve --model-repository models --trace-config triton,file=traces.json")
    monkeypatch.chdir(tmp_path)
    server = served("--model-repository=models", *flags(serve))
    port = server.ports["HTTPService"]

    answers = []
    for curl in curls:
        words = shlex.split(curl.replace("localhost:8000", f"localhost:{port}"))
        assert words[0] == "curl"
        command = [words[0], "-s", *words[1:]]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        answers.append(json.loads(ran.stdout))
        if len(answers) == 2:
            for number in range(3):
                infer(server, "shout", str(number))

    assert answers[0] == json.loads(SETTINGS)
    assert [answer["trace_rate"] for answer in answers] == ["100", "1", "100"]
    server.stop()
    shown = subprocess.run(
        [str(Path(sys.executable).with_name("corectl")), *shlex.split(summary)[1:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    header, row = shown.splitlines()
    assert header.split() == HEADER.split()
    assert row.split()[:4] == ["shout", "1", "HTTP", "3"]


def test_objects_of_a_file_are_as_the_page_shows(
    served: Callable[..., Any], models: Path, tmp_path: Path
) -> None:
    file = tmp_path / "traces.json"
    words = (f"triton,file={file}", "rate=1", "level=TIMESTAMPS", "level=TENSORS")
    server = served(f"--model-repository={models}", *(f"--trace-config={word}" for word in words))
    infer(server, "shout", "a")
    server.stop()
    written = json.loads(file.read_text())

    about, stamp, tensor = map(json.loads, OBJECTS.splitlines())
    assert about in written
    assert tensor in written
    assert stamp["timestamps"][0]["name"] in [
        entry["timestamps"][0]["name"] for entry in written if "timestamps" in entry
    ]
    activities = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", PAGE)) - {"TENSOR_QUEUE_INPUT"}
    over_http = {name for name in activities if not name.startswith(("GRPC_", "OTEL_"))}
    assert over_http == {entry["timestamps"][0]["name"] for entry in written if "timestamps" in entry}


@pytest.fixture
def collector() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a collector, and what it has been sent."""
    sent: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            sent.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_port, sent
        server.shutdown()
        thread.join()


def test_the_model_of_the_page_goes_on_with_its_trace(
    served: Callable[..., Any], models: Path, tmp_path: Path, collector: tuple[int, list[bytes]]
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    (serve,) = (command for command in COMMANDS if "opentelemetry,url" in command)
    port, sent = collector
    options = [word.replace("4318", str(port)) for word in flags(serve)]
    server = served(f"--model-repository={models}", *options)
    trace = "0af7651916cd43dd8448eb211c80319c"
    traced = infer(server, "caller", "a", {"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    untraced = infer(server, "caller", "b")

    found = {output["name"]: output["data"][0] for output in traced["outputs"]}
    assert found["LOUD"] == "HELLO"
    assert json.loads(found["HEADERS"])["traceparent"].startswith(f"00-{trace}-")
    assert {output["name"]: output["data"][0] for output in untraced["outputs"]}["HEADERS"] == "{}"
    server.stop()
    assert any(bytes.fromhex(trace) in spans for spans in sent)


def test_the_measurement_that_the_page_names_is_there() -> None:
    [name] = re.findall(r"\.\./\.\./(benchmarks/results/\S+\.json)", PAGE)
    measured = json.loads((ROOT / name).read_text())

    assert set(measured["cpu_us_per_request"]) == {"off", "rate 1000", "rate 1", "rate 1, tensors"}
