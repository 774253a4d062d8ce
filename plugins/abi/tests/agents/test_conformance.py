"""Shared objects keep to the rules of all repository agents, and the kit names those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tritonpy_sdk.testing import PluginFault, RepoAgentConformance

from ..conftest import Compiled

# Each life of an agent is a process of its own: these are the checks that are about loads.
CHECKS = [
    "it_acts_from_load_to_unload",
    "it_acts_on_a_load_that_fails",
    "a_model_without_files_is_no_accident",
    "a_reload_stands_beside_what_serves",
]


def suite(path: Path, parameters: Mapping[str, str]) -> RepoAgentConformance:
    class Suite(RepoAgentConformance, agent=path, parameters=parameters): ...

    return Suite()


def fnv(content: bytes) -> str:
    digest = 0xCBF29CE484222325
    for byte in content:
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"{digest:016x}"


@pytest.mark.parametrize("check", CHECKS)
def test_a_right_shared_object_passes(check: str, compiled: Compiled, library: Path) -> None:
    agent = suite(compiled("agents/digest.c"), {"FNV:1/weights": fnv(bytes(range(256)))})

    getattr(agent, f"test_{check}")()


def test_a_wrong_shared_object_is_named(
    compiled: Compiled, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTS_LOG", str(tmp_path / "log"))
    deed = {"in": "LOAD_FAIL", "do": "throw", "with": ""}

    with pytest.raises(PluginFault, match="a limit of 23 digits"):
        suite(compiled("agents/obedient.cc"), deed).test_it_acts_on_a_load_that_fails()
