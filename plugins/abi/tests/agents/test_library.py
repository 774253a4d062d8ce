"""The life of agents in C and of their processes."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tritonpy.plugin import ErrorCode, RepoAgentModel, TritonError
from tritonpy_abi.agents.library import AgentLibrary
from tritonpy_abi.agents.output import AgentOutput
from tritonpy_sdk.testing import load_with_agent, until

from ..conftest import Compiled
from .conftest import Living, Place, gone

LIFE = ["LOAD", "LOAD_COMPLETE", "UNLOAD", "UNLOAD_COMPLETE"]


def test_an_agent_hears_of_the_life_of_a_model_in_one_process_that_ends_with_it(place: Place) -> None:
    place.load()

    assert place.steps == [
        "constructor",
        "Initialize",
        "ModelInitialize",
        *LIFE,
        "ModelFinalize",
        "Finalize",
        "destructor",
    ]
    (pid,) = place.pids
    assert pid != os.getpid()
    assert gone(pid)


@pytest.mark.stress
def test_an_agent_needs_no_more_than_the_action(compiled: Compiled, tmp_path: Path) -> None:
    directory = tmp_path / "net"
    directory.mkdir()
    (directory / "weights").write_bytes(b"foobar")
    agent = AgentLibrary(str(compiled("agents/digest.c")))

    with load_with_agent(agent, directory, {"FNV:weights": "85944171f73967e8"}) as load:
        assert load.directory == directory
    with pytest.raises(TritonError, match="weights has the digest 85944171f73967e8, expected 1") as caught:
        load_with_agent(agent, directory, {"FNV:weights": "1"}).__enter__()
    assert caught.value.code is ErrorCode.INVALID_ARG


def test_a_library_that_is_no_agent_is_named_with_what_it_lacks(compiled: Compiled, tmp_path: Path) -> None:
    library = compiled("agents/obedient.cc", "-DWITHOUT_ACTION")

    with pytest.raises(TritonError, match="'TRITONREPOAGENT_ModelAction' in shared library: ") as caught:
        load_with_agent(AgentLibrary(str(library)), tmp_path).__enter__()
    assert str(library) in caught.value.message
    assert caught.value.code is ErrorCode.NOT_FOUND

    text = tmp_path / "libtritonrepoagent_text.so"
    text.write_text("no library")
    with pytest.raises(TritonError, match=f"unable to load shared library: {text}: file too short"):
        load_with_agent(AgentLibrary(str(text)), tmp_path).__enter__()


@pytest.mark.parametrize("step", ["ModelInitialize", "LOAD"])
def test_what_an_agent_refuses_keeps_its_code_and_its_text(place: Place, step: str) -> None:
    error = place.refusal(step, "refuse", "not this one, nor änother")

    assert (error.code, error.message) == (ErrorCode.ALREADY_EXISTS, "not this one, nor änother")
    assert gone(place.pids[0])


def test_an_agent_that_cannot_begin_says_why_and_is_not_finalized(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"AGENT_IN": "Initialize", "AGENT_DO": "refuse", "AGENT_WITH": "no key"}.items():
        monkeypatch.setenv(name, value)

    assert place.refusal("", "").described() == "Already exists: no key"
    assert place.steps == ["constructor", "Initialize", "destructor"]


def test_cpp_exceptions_are_errors_with_their_text(place: Place) -> None:
    assert place.refusal("LOAD", "throw").described() == (
        "Internal: TRITONREPOAGENT_ModelAction threw a C++ exception: a limit of 23 digits"
    )
    assert "that is no std::exception" in place.refusal("ModelInitialize", "throw a number").message


@pytest.mark.parametrize(
    ("deed", "end"),
    [
        ("crash", "was killed by signal 11 (SIGSEGV)"),
        ("exit", "exited with code 3"),
    ],
)
def test_an_agent_that_ends_its_process_fails_the_load_with_its_name_its_call_and_its_end(
    place: Place, deed: str, end: str
) -> None:
    error = place.refusal("LOAD", deed)

    assert error.described() == (
        f"Internal: the process of repository agent library {place.library} {end} "
        f"in TRITONREPOAGENT_ModelAction with LOAD for model 'net'"
    )
    assert gone(place.pids[0])


@pytest.mark.stress
def test_the_call_in_which_a_process_ends_is_told_of_it_wherever_that_is(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "with LOAD_COMPLETE for model 'net'" in place.failure("LOAD_COMPLETE", "crash").message
    monkeypatch.setenv("AGENT_DO", "abort")
    monkeypatch.setenv("AGENT_IN", "constructor")
    assert place.refusal("", "").message.endswith("killed by signal 6 (SIGABRT) while it was opened")
    monkeypatch.setenv("AGENT_IN", "Finalize")
    assert place.failure("", "").message.endswith("in TRITONREPOAGENT_Finalize")


class TakesTime(logging.Filter):
    """Whoever ends an agent may close the log next: the line must be there by then."""

    def filter(self, record: logging.LogRecord) -> bool:
        time.sleep(0.1)
        return True


def test_a_crash_after_the_last_call_is_logged(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AGENT_DO", "crash")
    monkeypatch.setenv("AGENT_IN", "destructor")

    with caplog.filtering(TakesTime()):
        place.load()

    assert [record.message for record in caplog.records] == [
        f"the process of repository agent library {place.library} was killed by signal 11 (SIGSEGV)"
    ]


def test_the_process_of_an_agent_does_not_wait_for_numpy(living: Living, place: Place) -> None:
    model = living.model("net")
    (pid,) = place.pids
    mapped = Path(f"/proc/{pid}/maps").read_text()
    living.end(model)

    assert str(place.library) in mapped
    assert "numpy" not in mapped


def test_after_the_death_of_an_idle_process_the_next_load_begins_a_new_one(
    place: Place, living: Living, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = living.model("first"), living.model("second")
    os.kill(place.pids[0], signal.SIGKILL)

    third = living.model("third")  # at once: whether the end has been noticed or not
    for model in (first, second, third):
        living.end(model)

    before, after = place.pids
    assert gone(before)
    assert not gone(after)
    assert place.steps[-4:] == [
        "LOAD_COMPLETE third",
        "UNLOAD third",
        "UNLOAD_COMPLETE third",
        "ModelFinalize third",
    ]
    until(lambda: caplog.records)
    (record,) = caplog.records
    assert record.message.startswith(
        f"the process of repository agent library {place.library} was killed by signal 9 (SIGKILL)"
    )
    assert record.message.endswith(
        "; it will not hear what becomes of models that it has let through: first, second"
    )


def test_what_ends_before_the_death_of_its_process_is_noticed_is_among_what_was_never_told(
    place: Place, living: Living, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_noticed, finish = threading.Event(), AgentOutput.finish
    model = living.model("first")
    monkeypatch.setattr(AgentOutput, "finish", lambda self: is_noticed.wait(20) and finish(self))
    os.kill(place.pids[0], signal.SIGKILL)
    until(lambda: model.state._process.is_gone)  # its last thread, too

    living.end(model)
    is_noticed.set()

    until(lambda: caplog.records)
    assert caplog.records[0].message.endswith("of models that it has let through: first")


def test_a_crash_fails_the_loads_that_are_under_way_and_names_their_calls(
    place: Place, living: Living, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    errors = []

    def load(name: str, deed: str) -> None:
        with pytest.raises(TritonError) as caught:
            living.model(name, **{"in": "LOAD", "do": deed, "with": str(gate)})
        errors.append(caught.value.message)

    threads = [
        threading.Thread(target=load, args=arguments)
        for arguments in (("one", "wait"), ("two", "crash while it waits"))
    ]
    for thread in threads:
        thread.start()
    until(lambda: {"LOAD one", "LOAD two"} <= set(place.steps))
    os.kill(place.pids[0], signal.SIGSEGV)
    for thread in threads:
        thread.join()

    assert errors[0] == errors[1]
    assert all(f"with LOAD for model '{name}'" in errors[0] for name in ("one", "two"))


@pytest.mark.stress
def test_programs_that_an_agent_leaves_behind_end_with_it(place: Place) -> None:
    place.load("LOAD", "leave a program behind")

    left = int(place.named("left"))
    until(lambda: gone(left))


@pytest.mark.parametrize("deed", ["acquire", pytest.param("acquire and release", marks=pytest.mark.stress)])
def test_acquired_directories_are_removed_also_if_they_may_only_be_read(place: Place, deed: str) -> None:
    place.load("LOAD", deed)

    acquired = Path(place.named("acquired"))
    assert not acquired.exists()
    assert not acquired.parent.exists()


@pytest.mark.stress
def test_only_agents_that_acquire_a_directory_need_a_place_for_one(
    living: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: RepoAgentModel) -> Path:
        raise OSError("the disk is full")

    monkeypatch.setattr(RepoAgentModel, "acquire_directory", fail)

    model = living.model("modest")
    with pytest.raises(TritonError) as caught:
        living.model("greedy", **{"in": "LOAD", "do": "acquire"})
    assert caught.value.described() == (
        "Internal: no directory can be made for model 'greedy': the disk is full"
    )
    living.plugin.repo_agent_model_finalize(model)


@pytest.mark.stress
@pytest.mark.timeout(120)
def test_nothing_is_left_of_many_loads(place: Place) -> None:
    place.load()  # what stays for ever is there
    before = open_descriptors(), threading.active_count()
    for _ in range(25):
        place.load("LOAD", "acquire")
        place.refusal("LOAD", "crash")
    until(lambda: open_descriptors() <= before[0] and threading.active_count() <= before[1])
    assert all(gone(pid) for pid in place.pids)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
