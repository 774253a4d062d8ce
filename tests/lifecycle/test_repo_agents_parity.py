"""What agents are told by a real tritonserver, and by ours.

The agent is written twice, in C for the real one and in Python for ours, and does the same in both.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..repository_client import RepositoryClient

MODEL = """
import triton_python_backend_utils as pb_utils

ADDED = 1

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + ADDED)]) for x in inputs]
"""

BROKEN = """
class TritonPythonModel:
    def initialize(self, arguments):
        raise RuntimeError("boom")

    def execute(self, requests): ...
"""

CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
"""

AGENT = """
import os, pathlib, shutil
from tritonpy.plugin import InvalidArg, TritonError, hookimpl

def note(agent, what):
    with open(os.environ["AGENTS_LOG"], "a") as log:
        print(agent.name, what, file=log)

@hookimpl
def repo_agent_model_action(agent, model, action):
    note(agent, action)
    if model.parameters.get("raise_in") == action:
        raise InvalidArg("does not like it")
    if model.parameters.get("hand_over_in") == action:
        copy = model.acquire_directory()
        shutil.copytree(model.directory, copy, dirs_exist_ok=True)
        source = copy / "1/model.py"
        source.write_text(source.read_text().replace("ADDED = 1", "ADDED = 7"))
        try:
            model.directory = copy
        except TritonError as refusal:
            note(agent, refusal.message.removesuffix(f" (model '{model.name}')"))
"""

Agents = list[tuple[str, dict[str, str]]]

MODELS: dict[str, Agents] = {
    "plain": [("a", {}), ("b", {}), ("c", {})],
    "refused": [("a", {}), ("b", {"raise_in": "LOAD"}), ("c", {})],
    "broken": [("a", {}), ("b", {})],
    "grumbling": [("a", {"raise_in": "LOAD_COMPLETE"}), ("b", {})],
    "handed_over": [("a", {"hand_over_in": "LOAD"}), ("b", {})],
    "late": [("a", {"hand_over_in": "LOAD_COMPLETE"}), ("b", {"hand_over_in": "UNLOAD"})],
    "twice": [("a", {}), ("a", {"hand_over_in": "LOAD"})],
    "absent": [("absent", {})],
}


class Side(RepositoryClient):
    """One of the two servers, and what its agents wrote down."""

    def __init__(self, port: int, log: Path) -> None:
        super().__init__(port)
        self._log = log
        self._read_count = 0

    def infer(self, name: str) -> Any:
        tensor = {"name": "IN", "datatype": "INT32", "shape": [1], "data": [100]}
        status, answer = self.ask(f"/v2/models/{name}/infer", {"inputs": [tensor]})
        return answer["outputs"][0]["data"] if status == 200 else None

    def unload(self, name: str) -> tuple[int, Any]:
        """Returns when the agents of all models have been told of their end."""
        answer = super().unload(name)
        until(self._is_quiet, self._log.read_text)
        return answer

    def _is_quiet(self) -> bool:
        lines = self._log.read_text().splitlines()
        begun = [line.split()[0] for line in lines if line.endswith(" LOAD")]
        ended = [line.split()[0] for line in lines if line.endswith((" LOAD_FAIL", " UNLOAD_COMPLETE"))]
        return sorted(begun) == sorted(ended)

    def news(self) -> list[str]:
        """What the agents have written down since it was asked last."""
        lines = self._log.read_text().splitlines()
        news, self._read_count = lines[self._read_count :], len(lines)
        return news


@pytest.fixture
def sides(
    tmp_path: Path,
    real_triton: Callable[..., dict[str, int]],
    corectl: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Side, Side]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    models = ModelRepository(tmp_path / "models")
    for model, settings in MODELS.items():
        models.python(model, BROKEN if model == "broken" else MODEL, CONFIG + text_of(settings))
    for name in "abc":
        folder = tmp_path / "agents" / name
        folder.mkdir(parents=True)
        (folder / "agent.py").write_text(AGENT)
        source = Path(__file__).parent / "recording_agent.c"
        library = tmp_path / "real" / name / f"libtritonrepoagent_{name}.so"
        library.parent.mkdir(parents=True)
        define = f'-DNAME="{name}"'
        subprocess.run([compiler, "-shared", "-fPIC", define, "-o", library, source], check=True, timeout=60)
    logs = [tmp_path / "real.log", tmp_path / "ours.log"]
    for log in logs:
        log.touch()

    monkeypatch.setenv("AGENTS_LOG", str(logs[0]))
    ports = real_triton(
        models.path, "--model-control-mode=explicit", f"--repoagent-directory={tmp_path / 'real'}"
    )
    monkeypatch.setenv("AGENTS_LOG", str(logs[1]))
    ours = corectl(
        f"--model-repository={models.path}",
        "--model-control-mode=explicit",
        f"--repoagent-directory={tmp_path / 'agents'}",
    )
    return Side(ports["http"], logs[0]), Side(ours.ports["HTTPService"], logs[1])


def text_of(settings: Agents) -> str:
    blocks = []
    for name, parameters in settings:
        lines = (f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
        blocks.append(f'agents {{ name: "{name}" {" ".join(lines)} }}')
    return f"model_repository_agents {{ {' '.join(blocks)} }}"


@pytest.mark.parity
@pytest.mark.timeout(180)
def test_agents_are_told_what_the_real_server_tells_them(sides: tuple[Side, Side], tmp_path: Path) -> None:
    models = tmp_path / "models"
    for model in MODELS:
        outcomes = []
        for side in sides:
            status, _ = side.load(model)
            loaded = side.news()
            answer = side.infer(model)
            side.unload(model)
            outcomes.append((model, status, loaded, answer, side.news()))
        real, ours = outcomes
        assert ours == real

    # A reload that fails leaves the agents of what serves alone.
    for side in sides:
        assert side.load("plain")[0] == 200
    before = [side.news() for side in sides]
    (models / "plain/1/model.py").write_text(BROKEN)
    outcomes = [(side.load("plain")[0], side.news(), side.infer("plain")) for side in sides]
    assert before[0] == before[1]
    assert outcomes[0] == outcomes[1]
    (models / "plain/1/model.py").write_text(MODEL)
    for side in sides:
        side.unload("plain")
        side.news()

    # The agents of a configuration that comes with a load are those that act.
    override = json.dumps(
        {
            "backend": "python",
            "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
            "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
            "model_repository_agents": {"agents": [{"name": "c"}]},
        }
    )
    outcomes = []
    for side in sides:
        status, _ = side.load("plain", config=override)
        side.unload("plain")
        outcomes.append(("override", status, side.news()))
    assert outcomes[0] == outcomes[1]
