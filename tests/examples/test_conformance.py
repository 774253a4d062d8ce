"""The plugins of the examples keep to the rules of their kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from urllib.error import HTTPError
from urllib.request import urlopen

from tritonpy.plugin import Address
from tritonpy_sdk.testing import DEADLINE_S, BackendConformance, FrontendConformance, RepoAgentConformance

EXAMPLES = Path(__file__).parents[2] / "examples"


def module_of(distribution: str) -> ModuleType:
    """The module of an example, without its installation."""
    name = distribution.replace("-", "_")
    spec = spec_from_file_location(name, EXAMPLES / distribution / "src" / name / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestRepoAgent(
    RepoAgentConformance,
    agent=EXAMPLES / "tritonpy-repo-agent-xyz/src/tritonpy_repo_agent_xyz/__init__.py",
    model=EXAMPLES / "tritonpy-repo-agent-xyz/models/fitted",
    parameters={"degree": "2"},
    wrong_parameters=[{"degree": "many"}],
): ...


class TestBackend(
    BackendConformance,
    backend=module_of("tritonpy-backend-xyz"),
    models=EXAMPLES / "tritonpy-backend-xyz/models",
): ...


class TestFrontend(
    FrontendConformance,
    frontend=module_of("tritonpy-frontend-xyz"),
    settings={"port": "0"},
    wrong_settings=[{"port": "many"}, {"ports": "0"}],
):
    def ask(self, addresses: Sequence[Address], model: str, values: Sequence[float]) -> list[float]:
        url = f"http://127.0.0.1:{addresses[0].port}/{model}"
        try:
            with urlopen(url, json.dumps({"INPUT0": values}).encode(), timeout=DEADLINE_S) as answer:
                output: list[float] = json.load(answer)["OUTPUT0"]
                return output
        except HTTPError as error:
            with error:
                raise RuntimeError(error.read().decode()) from None
