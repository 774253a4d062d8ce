"""What an agent in C hears in a real tritonserver, and in ours: the same file, which asks for everything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.testing import until

from .agent_places import AgentPlace, Client, whole_lines
from .conftest import Compiled

MODELS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "plain": [("one", {"z": "1", "a": "", "m": "größer", "raise_in": "LOAD_COMPLETE"}), ("two", {})],
    "refused": [("one", {}), ("two", {"raise_in": "LOAD"})],
    "refused_early": [("one", {}), ("two", {"raise_in": "ModelInitialize"})],
    "moved": [("one", {"hand_over_in": "LOAD"}), ("two", {"hand_over_in": "LOAD_COMPLETE"})],
    "moved_bare": [("one", {"hand_over_in": "LOAD", "without": "config.pbtxt"}), ("two", {})],
    "untimely": [("one", {"hand_over_in": "ModelInitialize"}), ("two", {"hand_over_in": "ModelFinalize"})],
    "twice": [("one", {"hand_over_in": "LOAD"}), ("one", {"hand_over_in": "UNLOAD"})],
    "broken": [("one", {}), ("two", {})],  # the last one: Triton finalizes its agents when it ends
}

Call = tuple[str, str, tuple[str, ...]]
"""The agent, the function, and what the agent heard while it ran."""


class Side:
    """One of the two servers, and what its agents wrote down."""

    def __init__(self, port: int, log: Path) -> None:
        self.client = Client(port)
        self._log = log
        self._read_count = 0

    def live(self, name: str) -> tuple[int, Any, list[Call]]:
        """Load a model, ask it, unload it: how that went, and all calls of its agents."""
        status, _ = self.client.load(name)
        answer = self.client.infer(name) if status == 200 else None
        self.client.unload(name)
        until(lambda: name == "broken" or self._is_over(self._calls()), self._log.read_text)
        calls = self._calls()
        self._read_count += sum(1 + len(heard) for _, _, heard in calls)
        return status, answer, calls

    def _is_over(self, calls: list[Call]) -> bool:
        finalized = [agent for agent, function, heard in calls if function == "Finalize" and heard]
        return sorted(finalized) == sorted(agent for agent, function, _ in calls if function == "Initialize")

    def _calls(self) -> list[Call]:
        calls: list[tuple[str, str, list[str]]] = []
        for line in whole_lines(self._log)[self._read_count :]:
            agent, _, rest = line.partition(" ")
            if rest.startswith("  "):
                calls[-1][2].append(comparable(rest.strip()))
            else:
                calls.append((agent, rest, []))
        return [(agent, function, in_order(heard)) for agent, function, heard in calls]


def comparable(line: str) -> str:
    """The order of keys has no meaning in JSON."""
    head, found, document = line.partition("configuration {")
    return head + "configuration " + json.dumps(json.loads("{" + document), sort_keys=True) if found else line


def in_order(heard: list[str]) -> tuple[str, ...]:
    """Parameters have no order in a configuration, and in Triton another one in every load."""
    parameters = sorted(line for line in heard if re.match("parameter .*=", line))
    return tuple(parameters + [line for line in heard if line not in parameters])


def per_agent(calls: list[Call]) -> dict[str, list[Call]]:
    """The calls of each agent; in the end Triton finalizes models in configured order, and we in reverse."""
    found = {}
    for agent in ("one", "two"):
        theirs = [call for call in calls if call[0] == agent]
        finals = sorted(call for call in theirs if call[1] == "ModelFinalize")
        found[agent] = [finals.pop(0) if call[1] == "ModelFinalize" else call for call in theirs]
    return found


def actions(calls: list[Call]) -> list[tuple[str, str]]:
    """In the order in which agents are told of them."""
    return [(agent, function) for agent, function, _ in calls if function.startswith("ModelAction")]


@pytest.fixture
def sides(
    tmp_path: Path,
    compiled: Compiled,
    real_triton: Callable[..., dict[str, int]],
    corectl: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[Side, Side]:
    place = AgentPlace(tmp_path, compiled)
    for name in ("one", "two"):
        place.agent(name, "curious.c")
    for name, agents in MODELS.items():
        directory = place.python(name, *agents)
        if name == "broken":
            (directory / "1/model.py").write_text("raise RuntimeError('boom')")
    logs = tmp_path / "real.log", tmp_path / "ours.log"
    for log in logs:
        log.touch()
    monkeypatch.setenv("AGENTS_LOG", str(logs[0]))
    ports = real_triton(place.models.path, *place.flags[1:])
    monkeypatch.setenv("AGENTS_LOG", str(logs[1]))
    ours = corectl(*place.flags)
    return Side(ports["http"], logs[0]), Side(ours.ports["HTTPService"], logs[1])


@pytest.mark.parity
@pytest.mark.timeout(240)
def test_an_agent_hears_the_same_whatever_it_asks(sides: tuple[Side, Side]) -> None:
    for name in MODELS:
        (real_status, real_answer, real), (status, answer, ours) = (side.live(name) for side in sides)

        assert (name, status, answer) == (name, real_status, real_answer)
        assert (name, actions(ours)) == (name, actions(real))
        if name == "moved_bare":  # where there is no configuration we tell the one that counts
            assert "configuration" in {line for call in real if call[0] == "two" for line in call[2]}
            real, ours = without_configurations(real), without_configurations(ours)
        if name == "refused_early":  # what could not be initialized is not finalized
            (extra,) = [call for call in real if call[:2] == ("two", "ModelFinalize")]
            real.remove(extra)
        if name == "broken":
            assert actions(ours)[-2:] == [("two", "ModelAction LOAD_FAIL"), ("one", "ModelAction LOAD_FAIL")]
            ours, real = without_ends(ours), without_ends(real)
        assert (name, per_agent(ours)) == (name, per_agent(real))


def without_configurations(calls: list[Call]) -> list[Call]:
    return [
        (agent, function, tuple(line for line in heard if not re.match(r"configuration( \{|$)", line)))
        for agent, function, heard in calls
    ]


def without_ends(calls: list[Call]) -> list[Call]:
    return [call for call in calls if call[1] not in ("ModelFinalize", "Finalize")]
