"""Repositories whose models have agents in C, and who asks a server for them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tritonpy_sdk.repository import ModelRepository

from ..repository_client import RepositoryClient
from .conftest import Compiled

TENSORS = """
input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
"""

MODEL = """
import triton_python_backend_utils as pb_utils

ADDED = 1

class TritonPythonModel:
    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", x + ADDED)]) for x in inputs]
"""

Agents = Iterable[tuple[str, Mapping[str, str]]]


class AgentPlace:
    """A repository, a directory of agents, and what they write down.

    Args:
        path: where all of it lies.
        compiled: makes the agents.
    """

    def __init__(self, path: Path, compiled: Compiled) -> None:
        self.models = ModelRepository(path / "models")
        self.agents = path / "agents"
        self.log_path = path / "agents.log"
        self.log_path.touch()
        self._compiled = compiled

    def agent(self, name: str, source: str = "obedient.cc") -> Path:
        """Compile an agent and put it where a server finds it."""
        library = self.agents / name / f"libtritonrepoagent_{name}.so"
        library.parent.mkdir(parents=True)
        flags = [f'-DNAME="{name}"'] if source in ("obedient.cc", "curious.c") else []
        shutil.copy(self._compiled(f"agents/{source}", *flags), library)
        return library

    def model(self, name: str, *agents: tuple[str, Mapping[str, str]]) -> Path:
        """A model that needs no process; its directory."""
        self.models.model(name, f'backend: "identity" {TENSORS} {text_of(agents)}')
        return self.models.path / name

    def python(self, name: str, *agents: tuple[str, Mapping[str, str]]) -> Path:
        """A model that adds 1; its directory."""
        self.models.python(name, MODEL, f'backend: "python" {TENSORS} {text_of(agents)}')
        return self.models.path / name

    def change(self, name: str) -> None:
        """Change a model's files, so that a load is one."""
        (self.models.path / name / "1").mkdir(exist_ok=True)
        (self.models.path / name / "1/weights").write_text(str(time.monotonic_ns()))

    @property
    def flags(self) -> list[str]:
        return [
            f"--model-repository={self.models.path}",
            f"--repoagent-directory={self.agents}",
            "--model-control-mode=explicit",
        ]

    @property
    def log(self) -> list[str]:
        """What the agents have written down, without the numbers of their processes."""
        lines = (line.split(maxsplit=2) for line in whole_lines(self.log_path))
        return [f"{name} {rest}".strip() for name, _, rest in lines]

    def pids(self, agent: str) -> list[int]:
        """Of the processes of an agent, in the order of their first calls."""
        lines = (line.split() for line in whole_lines(self.log_path))
        return list(dict.fromkeys(int(line[1]) for line in lines if line[0] == agent))


class Client(RepositoryClient):
    """Asks over HTTP."""

    def infer(self, name: str) -> Any:
        """What a model answers to 100: a number, or status and error."""
        tensor = {"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [100]}
        status, answer = self.ask(f"/v2/models/{name}/infer", {"inputs": [tensor]})
        return answer["outputs"][0]["data"][0] if status == 200 else (status, answer)


def text_of(agents: Agents) -> str:
    """The lines of a configuration that name agents with their parameters."""
    blocks = []
    for name, parameters in agents:
        lines = (f'parameters {{ key: "{key}" value: "{value}" }}' for key, value in parameters.items())
        blocks.append(f'agents {{ name: "{name}" {" ".join(lines)} }}')
    return f"model_repository_agents {{ {' '.join(blocks)} }}" if blocks else ""


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that others write; not the last one while it is being written."""
    return path.read_bytes().rpartition(b"\n")[0].decode().splitlines()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended, also if nobody has asked for its status."""
    with suppress(FileNotFoundError, ProcessLookupError):  # the latter where it ends while its file is read
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    return True
