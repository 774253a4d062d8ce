"""What the page on metrics and logs shows is what the server shows."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import InferenceServerClient
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/metrics-and-logs.md").read_text()
[MODEL] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
METRICS, LINES = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
SETTINGS, JSON_LINE = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)


def run(command: str, server: Any) -> str:
    """Run a `corectl` of the page; what it prints."""
    program, *arguments = shlex.split(command)
    url = f"localhost:{server.ports['HTTPService']}"
    line = [str(Path(sys.executable).with_name(program)), *arguments, "--url", url]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


def infer_text(server: Any, request_id: str, text: str) -> None:
    tensor = {"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": [text]}
    body = json.dumps({"id": request_id, "inputs": [tensor]}).encode()
    port = server.ports["HTTPService"]
    with urlopen(f"http://127.0.0.1:{port}/v2/models/shout/infer", body, timeout=30) as answer:
        assert answer.status == 200


def metrics_page(server: Any) -> str:
    with urlopen(f"http://127.0.0.1:{server.ports['Metrics Service']}/metrics", timeout=30) as answer:
        return answer.read().decode()  # type: ignore[no-any-return]


def without_what_differs(line: str) -> str:
    """A log line without its time and process id."""
    return re.sub(r"^(.)\d{4} \S+ \d+ ", r"\1 ", line)


def test_the_model_of_the_page_counts_and_prints_as_the_page_says(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path / "models").python("shout", MODEL, 'backend: "python"')
    serve, infer, curl, *_ = COMMANDS
    assert serve == "corectl serve --model-repository models"
    assert curl == "curl localhost:8002/metrics"
    server = served("--model-repository", str(tmp_path / "models"))

    assert "HOW LOUD IS THIS?" in run(infer, server)
    page = metrics_page(server)
    infer_text(server, "r1", "how loud is this?")
    infer_text(server, "r2", "")

    shown = [
        "# HELP " + family for family in METRICS.split("# HELP ")[1:]
    ]  # they stand with others of their kind
    assert len(shown) == 2
    assert [family for family in shown if family not in page] == []
    families = {family.name: family.type for family in text_string_to_metric_families(page)}
    named = set(re.findall(r"^\| `(tritonpy_\w+)`", PAGE, re.MULTILINE))
    assert {name.removesuffix("_total") for name in named - {"tritonpy_unanswered_requests_total"}} <= {
        *families,
        "tritonpy_worker_restarts",
    }
    expected = {without_what_differs(line) for line in LINES.splitlines()}
    until(
        lambda: expected <= {without_what_differs(line) for line in server.log.splitlines()},
        lambda: server.log,
    )
    server.wait_for_log('"ready to shout" model=shout version=1 instance=shout_0')


def test_the_page_serves_with_options_that_there_are(served: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path / "models").python("shout", MODEL, 'backend: "python"')
    settings = re.findall(r"--backend-config=\S+?(?=[`\s])", PAGE)
    assert len(settings) == 3

    server = served("--model-repository", str(tmp_path / "models"), *settings)

    assert "there is no such setting" not in server.log
    server.stop()


def curl(command: str, server: Any) -> str:
    """What a `curl URL` or `curl URL -d BODY` of the page, for the HTTP port, answers."""
    program, url, *body = shlex.split(command)
    assert (program, body[:1]) in (("curl", []), ("curl", ["-d"]))
    port = server.ports["HTTPService"]
    url = "http://" + url.replace("localhost:8000", f"127.0.0.1:{port}")
    with urlopen(url, body[1].encode() if body else None, timeout=30) as answer:
        return answer.read().decode()  # type: ignore[no-any-return]


def test_the_log_is_changed_over_the_network_as_the_page_says(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path / "models").python("shout", MODEL, 'backend: "python"')
    commands = [command for command in COMMANDS if "/v2/logging" in command]
    server = corectl("--model-repository", str(tmp_path / "models"))

    *_, last = [curl(command, server) for command in commands]
    infer_text(server, "r1", "not worth a line")
    infer_text(server, "r2", "")

    assert last == SETTINGS.strip()
    server.wait_for_log('"nothing to shout".*\n')
    lines = [line for line in server.log.splitlines() if "nothing to shout" in line]
    expected = json.loads(JSON_LINE)
    differing = {"time": expected["time"], "pid": expected["pid"]}
    assert [json.loads(line) | differing for line in lines] == [expected]
    assert "a text of 16 bytes" not in server.log


def test_the_page_names_a_client_that_changes_the_log(served: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    server = served("--model-repository", str(tmp_path / "models"))
    with InferenceServerClient(f"127.0.0.1:{server.ports['GRPCInferenceService']}") as client:
        [call] = re.findall(r"`client\.(\w+)\((.*)\)`", PAGE)
        method, settings = call

        answer = getattr(client, method)(json.loads(settings), as_json=True)

    assert answer["settings"]["log_verbose_level"] == {"uint32_param": 1}
