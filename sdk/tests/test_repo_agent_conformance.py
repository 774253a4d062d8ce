"""A right agent passes every check of the kit; each wrong one is named with what to do about it."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest
from tritonpy.plugin import InvalidArg, hookimpl
from tritonpy_sdk.testing import DEADLINE_S, PluginFault, RepoAgentConformance
from tritonpy_sdk.testing.rules import rules_of


class Checks:
    """Lets models load whose weights are as many bytes as they should be; hands nothing over."""

    @hookimpl
    def repo_agent_model_action(self, agent, model, action):
        if action == "LOAD":
            self.check(model)

    def check(self, model):
        wanted = model.parameters.get("SIZE", "256")
        if not wanted.isdigit():
            raise InvalidArg(f"model '{model.name}': SIZE: got '{wanted}', expected a number of bytes")
        path = model.directory / "1/weights"
        if not path.is_file() or path.stat().st_size != int(wanted):
            raise InvalidArg(f"model '{model.name}': {path} is not there, or has not {wanted} bytes")


class Copies(Checks):
    """Hands a copy over, and is there from begin to end."""

    @hookimpl
    def repo_agent_initialize(self, agent):
        agent.state = {"loads": 0}

    @hookimpl
    def repo_agent_finalize(self, agent):
        assert agent.state.pop("loads") > 0

    @hookimpl
    def repo_agent_model_initialize(self, agent, model):
        agent.state["loads"] += 1
        model.state = "new"

    @hookimpl
    def repo_agent_model_finalize(self, agent, model):
        assert model.state is not None

    @hookimpl
    def repo_agent_model_action(self, agent, model, action):
        getattr(self, action.lower())(model)

    def load(self, model):
        self.check(model)
        copy = model.acquire_directory()
        shutil.copytree(model.directory, copy, dirs_exist_ok=True)
        (copy / "name").write_text(model.name)
        model.directory = copy

    def load_complete(self, model): ...

    def load_fail(self, model): ...

    def unload(self, model): ...

    def unload_complete(self, model): ...


class SetsTheDirectoryLate(Copies):
    def load_complete(self, model):
        model.directory = model.directory.parent


class ConnectionOfItsThread(Copies):
    """As database clients are that belong to the thread that has made them."""

    local = threading.local()

    def load(self, model):
        super().load(model)
        self.local.connection = object()

    def load_complete(self, model):
        assert self.local.connection


class KnowsNoFailure(Copies):
    load_fail = None


class CountsOnItsLoad(Copies):
    def load(self, model):
        super().load(model)
        model.state = [1]

    def load_fail(self, model):
        model.state.pop()


class TakesAnyParameter(Checks):
    def check(self, model):
        pass


class StumblesOverParameters(Checks):
    def check(self, model):
        int(model.parameters.get("SIZE", "256"))


class RefusesWithoutAName(Checks):
    def check(self, model):
        if not model.parameters.get("SIZE", "256").isdigit():
            raise InvalidArg("bad parameter")


class StumblesOverFiles(Copies):
    def check(self, model):
        super().check(model) if model.parameters else (model.directory / "1/weights").read_bytes()


class EndsForGood(Copies):
    is_over = False

    @hookimpl
    def repo_agent_finalize(self, agent):
        self.is_over = True

    def check(self, model):
        super().check(model)
        if self.is_over:
            raise RuntimeError("cannot schedule new futures after shutdown")


class UploadsInTheEnd(Copies):
    def unload(self, model):
        time.sleep(0.1)


class WritesBesideTheModel(Checks):
    def check(self, model):
        super().check(model)
        (model.directory / "1/checked").write_text("yes")


class TouchesTheModel(Checks):
    times = itertools.count(1)

    def check(self, model):
        super().check(model)
        os.utime(model.directory / "1/weights", (0, next(self.times)))


class HandsOverAnEmptyOne(Copies):
    def load(self, model):
        self.check(model)
        model.directory = model.acquire_directory()


class RemovesWhenLoaded(Copies):
    def load_complete(self, model):
        model.release_directory()


class ShredsInUnload(Copies):
    def unload(self, model):
        (model.directory / "1/weights").write_bytes(b"")


class MakesItsOwnDirectory(Copies):
    def load(self, model):
        self.check(model)
        copy = Path(tempfile.mkdtemp())
        shutil.copytree(model.directory, copy, dirs_exist_ok=True)
        model.directory = copy


class RemovesAfterUnloadsOnly(MakesItsOwnDirectory):
    def unload_complete(self, model):
        shutil.rmtree(model.directory)


class LeavesItsNotes(Copies):
    def load(self, model):
        super().load(model)
        tempfile.mkstemp(text=True)


class OneModelAtATime(Copies):
    def __init__(self):
        self.count = itertools.count()
        self.meeting = threading.Barrier(4)

    def load(self, model):
        self.name = model.name
        if next(self.count) >= 4:  # each of the four has been loaded alone
            self.meeting.wait(DEADLINE_S)
        super().load(model)
        (model.directory / "name").write_text(self.name)


class KeepsByName(Copies):
    """Has a directory of its own for each name, and looks into it at the model's end."""

    def __init__(self):
        self.directories = {}

    def load(self, model):
        super().load(model)
        self.directories[model.name] = model.directory

    def unload_complete(self, model):
        shutil.rmtree(self.directories[model.name] / "1")


class CleansUpByName(KeepsByName):
    def load(self, model):
        super(KeepsByName, self).load(model)
        self.directories.setdefault(model.name, model.directory)

    unload_complete = Copies.unload_complete

    def load_fail(self, model):
        shutil.rmtree(self.directories.pop(model.name) / "1", ignore_errors=True)


class KeepsFilesOpen(Copies):
    def __init__(self):
        self.files = []

    def load(self, model):
        super().load(model)
        self.files.append((model.directory / "1/weights").open("rb"))

    def __del__(self):
        for file in self.files:
            file.close()


class Prints(Checks):
    def check(self, model):
        super().check(model)
        print("checked")


class ChangesDirectory(Copies):
    def load(self, model):
        super().load(model)
        os.chdir(model.directory.parent)


RIGHT = (Checks, Copies)
WRONG = [
    (SetsTheDirectoryLate, "it_acts_from_load_to_unload", "can only be updated during", "in LOAD only"),
    (ConnectionOfItsThread, "it_acts_from_load_to_unload", "no attribute 'connection'", "look at the"),
    (KnowsNoFailure, "it_acts_on_a_load_that_fails", "failed in LOAD_FAIL of model 'net'", "raise nothing"),
    (
        CountsOnItsLoad,
        "wrong_parameters_are_refused_with_words",
        "no attribute 'pop'",
        "in LOAD_FAIL count on",
    ),
    (TakesAnyParameter, "wrong_parameters_are_refused_with_words", "took {'SIZE': 'many'}", "raise Invalid"),
    (StumblesOverParameters, "wrong_parameters_are_refused_with_words", "ValueError", "raise InvalidArg"),
    (RefusesWithoutAName, "wrong_parameters_are_refused_with_words", "names none", "with the parameter"),
    (StumblesOverFiles, "a_model_without_files_is_no_accident", "FileNotFoundError", "catch OSError"),
    (EndsForGood, "it_begins_anew_after_its_last_model", "after shutdown", "in repo_agent_initialize"),
    (UploadsInTheEnd, "other_actions_than_load_take_seconds", "seconds for another action", "in LOAD, or"),
    (WritesBesideTheModel, "the_repository_is_left_alone", "made 'net/1/checked'", "acquire_directory"),
    (TouchesTheModel, "the_repository_is_left_alone", "changed 'net/1/weights'", "acquire_directory"),
    (HandsOverAnEmptyOne, "what_it_hands_over_stays_until_the_end", "nothing can be read", "remove nothing"),
    (RemovesWhenLoaded, "what_it_hands_over_stays_until_the_end", "changed in LOAD_COMPLETE", "before that"),
    (ShredsInUnload, "what_it_hands_over_stays_until_the_end", "changed in UNLOAD", "remove nothing"),
    (MakesItsOwnDirectory, "nothing_is_left_of_a_model_that_is_gone", "left 'tmp", "acquire_directory"),
    (RemovesAfterUnloadsOnly, "nothing_is_left_of_a_load_that_failed", "left 'tmp", "do in LOAD_FAIL"),
    (LeavesItsNotes, "nothing_is_left_of_a_model_that_is_gone", "among temporary files", "acquire_directory"),
    (OneModelAtATime, "models_load_at_the_same_time", "handed over other files for", "in model.state"),
    (KeepsByName, "a_reload_stands_beside_what_serves", "spoiled the files of a reload", "under the model's"),
    (CleansUpByName, "a_reload_that_fails_leaves_what_serves_alone", "when its reload failed", "LOAD_FAIL,"),
    (KeepsFilesOpen, "nothing_grows_with_the_number_of_loads", "more file descriptors", "close files"),
    (Prints, "nothing_is_printed", "wrote 'checked", "logging.getLogger"),
    (ChangesDirectory, "the_process_stays_as_it_was", "changed the working directory", "give paths"),
]
CHECKS = [name for name, _ in rules_of(RepoAgentConformance)]


@pytest.fixture
def little_patience(monkeypatch):
    monkeypatch.setattr("tritonpy_sdk.testing.traces._GRACE_S", 0.0)
    monkeypatch.setattr("tritonpy_sdk.testing.repo_agent_conformance._TIME_LIMIT_S", 0.05)


def run(agent, check):
    class Suite(RepoAgentConformance, agent=agent(), wrong_parameters=[{"SIZE": "many"}]): ...

    getattr(Suite(), check)()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("agent", RIGHT)
def test_right_agent_passes(agent, check):
    run(agent, check)


@pytest.mark.parametrize(
    ("agent", "check", "did", "remedy"), WRONG, ids=lambda each: getattr(each, "__name__", "")
)
def test_wrong_agent_is_named_with_what_to_do(agent, check, did, remedy, little_patience):
    with pytest.raises(PluginFault) as caught:
        run(agent, f"test_{check}")

    assert did in caught.value.did
    assert remedy in caught.value.rule.remedy


def test_every_check_of_the_kit_can_fail():
    assert {f"test_{check}" for _, check, _, _ in WRONG} == set(CHECKS)


def test_a_model_may_be_given(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/points").write_text("1 2")
    seen = []

    class Sees:
        @hookimpl
        def repo_agent_model_action(self, model):
            seen.append((model.directory / "points").read_text())

    class Suite(RepoAgentConformance, agent=Sees(), model=tmp_path / "mine"): ...

    Suite().test_it_acts_from_load_to_unload()
    assert set(seen) == {"1 2"}
    with pytest.raises(NotADirectoryError, match="'no/model' of Lost"):

        class Lost(RepoAgentConformance, agent=Sees(), model="no/model"): ...
