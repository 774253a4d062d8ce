"""The plugins of the examples keep to the rules of their kinds."""

from __future__ import annotations

from pathlib import Path

from tritonpy_sdk.testing import RepoAgentConformance

EXAMPLES = Path(__file__).parents[2] / "examples"


class TestRepoAgent(
    RepoAgentConformance,
    agent=EXAMPLES / "tritonpy-repo-agent-xyz/src/tritonpy_repo_agent_xyz/__init__.py",
    model=EXAMPLES / "tritonpy-repo-agent-xyz/models/fitted",
    parameters={"degree": "2"},
    wrong_parameters=[{"degree": "many"}],
): ...
