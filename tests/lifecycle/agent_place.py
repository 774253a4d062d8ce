"""Repositories whose models have agents that write down what they are told, and who asks for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository

from ..repository_client import RepositoryClient

MODEL = """
import triton_python_backend_utils as pb_utils

ADDED = 1

class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", self.input_of(request) + ADDED)]
            )
            for request in requests
        ]

    def input_of(self, request):
        return pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
"""

TENSORS = """
input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
"""

# Writes down what it is told; what its parameters say, it does.
RECORDER = """
import os, pathlib, shutil, time
from tritonpy.plugin import InvalidArg, hookimpl

LOG = pathlib.Path(os.environ["AGENTS_LOG"])

def note(agent, *words):
    with LOG.open("a") as log:
        print(agent.name, *words, file=log)

@hookimpl
def repo_agent_initialize(agent):
    note(agent, "initialize")

@hookimpl
def repo_agent_finalize(agent):
    note(agent, "finalize")

@hookimpl
def repo_agent_model_action(agent, model, action):
    note(agent, model.name, action)
    if action == model.parameters.get("raise_in"):
        raise InvalidArg(f"{agent.name} does not like {action}")
    if action == "LOAD" and "wait_for" in model.parameters:
        while not os.path.exists(model.parameters["wait_for"]):
            time.sleep(0.002)
    if action == "LOAD" and "added" in model.parameters:
        shutil.copytree(model.directory, model.acquire_directory(), dirs_exist_ok=True)
        model.directory = model.acquire_directory()
        source = model.directory / "1/model.py"
        source.write_text(source.read_text().replace("ADDED = 1", "ADDED = " + model.parameters["added"]))
        note(agent, "made", model.directory)
"""


def agents(*settings: tuple[str, dict[str, str]]) -> str:
    """The lines of a configuration that name agents with their parameters."""
    blocks = []
    for name, parameters in settings:
        lines = (f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
        blocks.append(f'{{ name: "{name}" {" ".join(lines)} }}')
    return f"model_repository_agents {{ agents [ {', '.join(blocks)} ] }}\n"


class Place:
    """A repository, a directory of agents, and what they wrote down.

    Args:
        path: where all of it lies.
        serve: starts a server in this process, which takes a moment only.
        corectl: starts one as a process of its own.
    """

    def __init__(self, path: Path, serve: Callable[..., Any], corectl: Callable[..., Any]) -> None:
        self.models = ModelRepository(path / "models")
        self.agents_path = path / "agents"
        self.log_path = path / "agents.log"
        self.log_path.touch()
        self._serve = serve
        self._corectl = corectl
        for name in "abc":
            self.agent(name)

    def agent(self, name: str, source: str = RECORDER) -> None:
        (self.agents_path / name).mkdir(parents=True)
        (self.agents_path / name / "agent.py").write_text(source)

    def model(self, name: str, agents: str = "") -> None:
        """A model that needs no files and no process."""
        self.models.model(name, f'backend: "identity" {TENSORS} {agents}')

    def python(self, name: str, agents: str = "", source: str = MODEL) -> Path:
        """A model that adds 1; its `model.py`."""
        self.models.python(name, source, f'backend: "python" {TENSORS} {agents}')
        return self.models.path / name / "1/model.py"

    def serve(self, *names: str, **options: object) -> Client:
        """A server of this process that has loaded these models."""
        settings = {"model_control_mode": "explicit", "load_models": names, **options}
        server = self._serve(self.models.path, repo_agent_directory=str(self.agents_path), **settings)
        return Client(server.http_port)

    def process(self, *flags: str) -> tuple[Any, Client]:
        """A server of its own, and its client."""
        server = self._corectl(
            f"--model-repository={self.models.path}", f"--repoagent-directory={self.agents_path}", *flags
        )
        return server, Client(server.ports["HTTPService"])

    @property
    def log(self) -> list[str]:
        return self.log_path.read_text().splitlines()

    def made(self) -> Path:
        """The directory that an agent handed over."""
        return Path(next(line for line in self.log if " made " in line).split()[2])

    def take_log(self) -> list[str]:
        log = self.log
        self.log_path.write_text("")
        return log


class Client(RepositoryClient):
    """Asks over HTTP."""

    def infer(self, name: str) -> object:
        tensor = {"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [100]}
        status, answer = self.ask(f"/v2/models/{name}/infer", {"inputs": [tensor]})
        return answer["outputs"][0]["data"] if status == 200 else (status, answer)

    def index(self) -> dict[str, dict[str, str]]:
        return {entry["name"]: entry for entry in self.ask("/v2/repository/index", {})[1]}
