"""Repository agents in real servers: what they see, what they may stop, and what they are told."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.testing import until

from .agent_place import MODEL, RECORDER, Place, agents


@pytest.fixture
def place(
    tmp_path: Path,
    serve: Callable[..., Any],
    corectl: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    monkeypatch.setenv("AGENTS_LOG", str(tmp_path / "agents.log"))
    return Place(tmp_path, serve, corectl)


def test_only_files_with_the_right_checksums_are_served(place: Place) -> None:
    digest = hashlib.sha256(MODEL.encode()).hexdigest()
    checksum = agents(("checksum", {"SHA256:1/model.py": digest}))
    place.model("plain")
    place.python("right", checksum)
    changed = place.python("wrong", checksum)
    changed.write_text(MODEL.replace("ADDED = 1", "ADDED = 666"))
    found = hashlib.sha256(changed.read_bytes()).hexdigest()
    reason = f"Mismatched SHA256 hash for file {changed}, expect: {digest}, got: {found} (model 'wrong')"

    server, client = place.process("--exit-on-error=false", "--model-control-mode=explicit", "--load-model=*")

    assert [client.infer(name) for name in ("plain", "right")] == [[100], [101]]
    assert client.infer("wrong")[0] != 200
    index = client.index()
    assert {name: entry["state"] for name, entry in index.items()} == {
        "plain": "READY",
        "right": "READY",
        "wrong": "UNAVAILABLE",
    }
    assert index["wrong"]["reason"] == f"Invalid argument: {reason}"
    refusal = f"failed to load 'wrong', failed to poll from model repository: Invalid argument: {reason}"
    assert client.load("wrong") == (500, refusal)
    grpc = grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['GRPCInferenceService']}")
    with grpc, pytest.raises(InferenceServerException) as caught:
        grpc.load_model("wrong")
    assert caught.value.message() == refusal
    server.wait_for_log(re.escape(reason))

    changed.write_text(MODEL)
    assert client.load("wrong") == (200, None)
    assert client.infer("wrong") == [101]

    # A file that turns bad does not take the good one out of service.
    changed.write_text("raise SystemExit")
    status, error = client.load("wrong")
    assert (status, "Mismatched SHA256 hash for file" in error) == (500, True)
    assert client.infer("wrong") == [101]


def test_what_an_agent_hands_over_is_served_and_gone_afterwards(place: Place) -> None:
    original = place.python("m", agents(("a", {"added": "7"}), ("b", {})))
    server, client = place.process("--model-control-mode=explicit", "--load-model=m")

    assert client.infer("m") == [107]
    made = place.made()
    assert (made / "1/model.py").exists()
    config = client.ask("/v2/models/m/config")[1]
    assert [agent["name"] for agent in config["model_repository_agents"]["agents"]] == ["a", "b"]
    assert client.unload("m") == (200, None)
    until(lambda: not made.exists())
    assert original.read_text() == MODEL
    assert server.stop() == 0


def test_three_agents_are_told_of_the_life_of_a_model_in_order(place: Place) -> None:
    place.model("m", agents(("a", {}), ("b", {}), ("c", {})))
    client = place.serve()

    assert client.load("m") == (200, None)
    assert place.take_log() == [
        *("a initialize", "a m LOAD", "b initialize", "b m LOAD", "c initialize", "c m LOAD"),
        *("c m LOAD_COMPLETE", "b m LOAD_COMPLETE", "a m LOAD_COMPLETE"),
    ]
    client.unload("m")
    until(lambda: "a finalize" in place.log)
    assert place.take_log() == [
        *("a m UNLOAD", "b m UNLOAD", "c m UNLOAD"),
        *("c m UNLOAD_COMPLETE", "b m UNLOAD_COMPLETE", "a m UNLOAD_COMPLETE"),
        *("c finalize", "b finalize", "a finalize"),
    ]


def test_an_agent_that_refuses_ends_the_load_and_those_called_are_told(place: Place) -> None:
    place.model("m", agents(("a", {}), ("b", {"raise_in": "LOAD"}), ("c", {})))
    client = place.serve()

    assert client.load("m") == (
        500,
        "failed to load 'm', failed to poll from model repository: Invalid argument: b does not like LOAD",
    )

    assert place.log == [
        *("a initialize", "a m LOAD", "b initialize", "b m LOAD"),
        *("b m LOAD_FAIL", "a m LOAD_FAIL", "b finalize", "a finalize"),
    ]


def test_a_model_that_breaks_after_its_agents_is_told_to_them(place: Place) -> None:
    place.python("m", agents(("a", {"added": "7"})), source="raise RuntimeError('boom')")
    client = place.serve()

    status, error = client.load("m")

    assert (status, "boom" in error) == (400, True)
    assert place.log[-2:] == ["a m LOAD_FAIL", "a finalize"]
    assert "a m LOAD_COMPLETE" not in place.log
    assert not place.made().exists()


def test_a_server_that_ends_tells_agents_of_every_model(place: Place) -> None:
    for name in ("m", "n"):
        place.model(name, agents(("a", {"raise_in": "UNLOAD"}), ("b", {})))
    server, _ = place.process()
    place.take_log()

    assert server.stop() == 0

    for name in ("m", "n"):
        assert [line for line in place.log if f" {name} " in line] == [
            *(f"a {name} UNLOAD", f"b {name} UNLOAD"),
            *(f"b {name} UNLOAD_COMPLETE", f"a {name} UNLOAD_COMPLETE"),
        ]
        assert f"repository agent 'a' failed in UNLOAD of model '{name}'" in server.log
    assert "a does not like UNLOAD" in server.log
    assert [place.log.count(f"{name} finalize") for name in "ab"] == [1, 1]


def test_an_agent_that_waits_holds_up_its_model_only(place: Place, tmp_path: Path) -> None:
    place.model("slow", agents(("a", {"wait_for": str(tmp_path / "go")})))
    place.model("plain")
    client = place.serve("plain")
    with ThreadPoolExecutor(1) as executor:
        loading = executor.submit(client.load, "slow")
        until(lambda: "a slow LOAD" in place.log)

        assert [client.infer("plain") for _ in range(50)] == [[100]] * 50
        assert client.infer("slow")[0] != 200
        assert not loading.done()
        (tmp_path / "go").touch()

        assert loading.result(20) == (200, None)
    assert client.infer("slow") == [100]


def test_an_agent_that_cannot_start_fails_its_models_only(place: Place) -> None:
    place.agent("broken", "raise LookupError('no licence')")
    place.agent("late", RECORDER.replace('note(agent, "initialize")', "1 / 0"))
    place.model("one", agents(("a", {}), ("broken", {})))
    place.model("two", agents(("late", {})))
    place.model("three", agents(("absent", {})))
    place.model("four", agents(("a", {})))

    client = place.serve("*", exit_on_error=False)

    assert {name: entry.get("reason", "") for name, entry in client.index().items()} == {
        "one": f"Internal: repository agent {place.agents_path}/broken/agent.py failed to import: "
        f"LookupError: no licence",
        "two": "Internal: repository agent 'late' failed to initialize: ZeroDivisionError: division by zero",
        "three": f"Not found: unable to find 'libtritonrepoagent_absent.so' for repo agent 'absent', "
        f"searched: {place.agents_path}",
        "four": "",
    }
    assert client.infer("four") == [100]
    assert "a one LOAD_FAIL" in place.log


def test_a_configuration_in_a_load_request_brings_its_own_agents(place: Place) -> None:
    place.python("m", agents(("a", {})))
    client = place.serve("m")
    place.take_log()
    config = client.ask("/v2/models/m/config")[1]
    config["model_repository_agents"] = {"agents": [{"name": "b", "parameters": {"added": "9"}}]}

    assert client.load("m", config=json.dumps(config)) == (200, None)
    until(lambda: "a finalize" in place.log)

    assert client.infer("m") == [109]
    assert [line for line in place.log if line.startswith("a")] == [
        *("a m UNLOAD", "a m UNLOAD_COMPLETE", "a finalize"),
    ]


def test_a_repository_that_is_polled_tells_agents_of_each_change(place: Place) -> None:
    place.model("m", agents(("a", {"key": "1"})))
    client = place.serve(model_control_mode="poll", repository_poll_s=0.05)
    assert client.infer("m") == [100]
    place.take_log()

    place.model("m", agents(("a", {"key": "2"})))
    # The old one ends while the agent is told that the new one serves.
    until(lambda: {"a m LOAD_COMPLETE", "a m UNLOAD_COMPLETE"} <= set(place.log))
    assert [line for line in place.take_log() if line != "a m LOAD_COMPLETE"] == [
        *("a m LOAD", "a m UNLOAD", "a m UNLOAD_COMPLETE"),
    ]

    os.rename(place.models.path / "m", place.models.path.parent / "elsewhere")
    until(lambda: "a finalize" in place.log)
    assert place.log == ["a m UNLOAD", "a m UNLOAD_COMPLETE", "a finalize"]


def test_an_agent_that_is_not_ready_is_asked_again_at_the_next_look(place: Place, tmp_path: Path) -> None:
    place.agent(
        "busy",
        RECORDER.replace("InvalidArg", "Unavailable").replace(
            'if action == model.parameters.get("raise_in"):',
            f'if action == "LOAD" and not os.path.exists("{tmp_path / "go"}"):',
        ),
    )
    place.model("m", agents(("a", {})))
    client = place.serve(model_control_mode="poll", load_models=(), repository_poll_s=0.05)

    place.model("m", agents(("busy", {})))
    until(lambda: place.log.count("busy m LOAD") > 2)
    assert client.infer("m") == [100]
    assert "a m UNLOAD" not in place.log
    (tmp_path / "go").touch()

    until(lambda: "a m UNLOAD_COMPLETE" in place.log)
    assert client.infer("m") == [100]


def test_agents_are_listed_among_the_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    from click.testing import CliRunner
    from tritonpy.cli.plugins import plugins

    listed = json.loads(CliRunner().invoke(plugins, ["--load", "--json"]).output)

    (found,) = [info for info in listed if info["kind"] == "repo_agents"]
    assert (found["name"], found["distribution"], found["state"]) == (
        "checksum",
        "tritonpy-repo-agent-checksum",
        "loaded",
    )
    assert found["hooks"] == ["repo_agent_model_action"]
