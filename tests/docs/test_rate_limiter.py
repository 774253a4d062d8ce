"""What the page on shared resources shows works: its models, its flags, and what it says is refused."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/rate-limiter.md").read_text()
CONFIGS = re.findall(r"```protobuf\n# models/(\w+)/config.pbtxt\n(.*?)```", PAGE, re.DOTALL)
((FLAGS),) = re.findall(r"^\$ corectl serve --model-repository=models (.*)$", PAGE, re.MULTILINE)

(SHOWN,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
WORK = "        time.sleep(0.01)\n"

# The model of the page, which notes here when it begins and ends, and works while the file `gate` is there.
NOTE = """
    def initialize(self, args):
        self.name = args["model_name"]
        self.folder = args["model_repository"] + "/../.."

    def note(self, line):
        with open(self.folder + "/journal", "a") as journal:
            journal.write(line + "\\n")

    def is_held(self):
        import os
        return os.path.exists(self.folder + "/gate")
"""
NOTED = (
    f'        self.note(f"begin {{self.name}}")\n        while self.is_held():\n    {WORK}{WORK}'
    f'        self.note(f"end {{self.name}}")\n'
)
MODEL = SHOWN.replace(WORK, NOTED) + NOTE


def test_no_more_is_used_than_there_is(served: Callable[..., Any], tmp_path: Path) -> None:
    assert SHOWN.count(WORK) == 1
    models = ModelRepository(tmp_path / "models")
    for name, config in CONFIGS:
        models.python(name, MODEL, config)
    journal, gate = tmp_path / "journal", tmp_path / "gate"
    journal.touch()
    server = served(f"--model-repository={models.path}", *FLAGS.split())

    def ask(name: str, count: int) -> None:
        body = b'{"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "data": [1]}]}'
        url = f"http://localhost:{server.ports['HTTPService']}/v2/models/{name}/infer"
        for _ in range(count):
            urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=30).close()

    def ask_all(*names: str, count: int, held: int) -> None:
        """Ask, and let go what is asked when so many have begun."""
        if held:
            gate.touch()
        before = journal.read_text().count("begin")
        clients = [threading.Thread(target=ask, args=(name, count)) for name in names]
        for client in clients:
            client.start()
        until(lambda: journal.read_text().count("begin") >= before + held)
        gate.unlink(missing_ok=True)
        for client in clients:
            client.join()

    ask_all("small", "small", count=1, held=2)
    ask_all("small", "large", count=1, held=2)
    ask_all("small", "small", "large", "large", count=6, held=0)

    needs = {"small": 1, "large": 3}
    used, uses = 0, set()
    for line in journal.read_text().split(sep="\n")[:-1]:
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
