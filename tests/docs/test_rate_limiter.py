"""What the page on shared resources shows works: its models, its flags, and what it says is refused."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/rate-limiter.md").read_text()
CONFIGS = re.findall(r"```protobuf\n# models/(\w+)/config.pbtxt\n(.*?)```", PAGE, re.DOTALL)
((FLAGS),) = re.findall(r"^\$ corectl serve --model-repository=models (.*)$", PAGE, re.MULTILINE)

(SHOWN,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
WORK = "        time.sleep(0.01)\n"

# The model of the page, which notes here when it begins and ends.
NOTE = """
    def initialize(self, args):
        self.name = args["model_name"]
        self.path = args["model_repository"] + "/../../journal"

    def note(self, line):
        with open(self.path, "a") as journal:
            journal.write(line + "\\n")
"""
NOTED = f'        self.note(f"begin {{self.name}}")\n{WORK}        self.note(f"end {{self.name}}")\n'
MODEL = SHOWN.replace(WORK, NOTED) + NOTE


def test_no_more_is_used_than_there_is(corectl: Callable[..., Any], tmp_path: Path) -> None:
    assert SHOWN.count(WORK) == 1
    models = ModelRepository(tmp_path / "models")
    for name, config in CONFIGS:
        models.python(name, MODEL, config)
    server = corectl(f"--model-repository={models.path}", *FLAGS.split())

    def ask(name: str) -> None:
        body = b'{"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [1]}]}'
        url = f"http://localhost:{server.ports['HTTPService']}/v2/models/{name}/infer"
        for _ in range(6):
            urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=30).close()

    clients = [threading.Thread(target=ask, args=(name,)) for name in ["small", "small", "large", "large"]]
    for client in clients:
        client.start()
    for client in clients:
        client.join()

    needs = {"small": 1, "large": 3}
    used, uses = 0, set()
    for line in (tmp_path / "journal").read_text().split(sep="\n")[:-1]:
        step, name = line.split()
        used += needs[name] if step == "begin" else -needs[name]
        uses.add(used)
    assert max(uses) == 4
    assert 2 in uses


def test_an_instance_that_needs_too_much_is_refused_as_the_page_says(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path / "models")
    for name, config in CONFIGS:
        models.python(name, MODEL, config)

    server = serve(
        models.path,
        rate_limit="execution_count",
        rate_limit_resources=(("memory", 2, None),),
        exit_on_error=False,
    )

    reasons = {entry["name"]: entry.get("reason", "") for entry in server.runtime.registry.index()}
    (told,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    assert told.replace("\n", " ") in reasons["large"]
    assert reasons["small"] == ""
