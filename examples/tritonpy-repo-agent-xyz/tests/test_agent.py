"""The repository agent xyz, called as a server calls it, without one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tritonpy_repo_agent_xyz
from tritonpy.plugin import InvalidArg
from tritonpy_sdk.testing import RepoAgentConformance, load_with_agent

MODELS = Path(__file__).parents[1] / "models"


class TestRules(
    RepoAgentConformance,
    agent=tritonpy_repo_agent_xyz,
    model=MODELS / "released",
    wrong_parameters=[{"file": "../secret"}, {"file": "none.txt"}],
):
    """What all repository agents have in common; a test that fails says what to do."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return shutil.copytree(MODELS / "released", tmp_path / "released")


def test_the_version_that_the_file_names_is_loaded(model: Path) -> None:
    (model / "candidate.txt").write_text("2\n")

    with load_with_agent(tritonpy_repo_agent_xyz, model, {"file": "candidate.txt"}) as load:
        versions = [path.name for path in load.directory.iterdir() if path.is_dir()]

    assert versions == ["2"]
    assert (model / "1").is_dir()  # the repository is as it was
    assert not load.directory.exists()


@pytest.mark.parametrize("version", ["3", "", "../2", "release.txt"])
def test_a_version_that_is_not_there_is_not_loaded(model: Path, version: str) -> None:
    (model / "release.txt").write_text(version)

    with (
        pytest.raises(InvalidArg, match=f"'released': release.txt names version '{version}', which is not"),
        load_with_agent(tritonpy_repo_agent_xyz, model),
    ):
        pass


def test_a_model_without_the_file_is_not_loaded(model: Path) -> None:
    (model / "release.txt").unlink()

    with (
        pytest.raises(InvalidArg, match=r"cannot read which version to load: .*release\.txt"),
        load_with_agent(tritonpy_repo_agent_xyz, model),
    ):
        pass


def test_the_file_lies_in_the_model(model: Path) -> None:
    with (
        pytest.raises(InvalidArg, match=r"got '\.\./secret', expected a name without '/'"),
        load_with_agent(tritonpy_repo_agent_xyz, model, {"file": "../secret"}),
    ):
        pass
