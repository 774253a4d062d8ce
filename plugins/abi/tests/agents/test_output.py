"""What agents log and print, and what the server's log admits of it."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tritonpy import logs
from tritonpy.options import ServerOptions
from tritonpy_abi.logs import NAME
from tritonpy_sdk.testing import until

from .conftest import Place


class Held(logging.Handler):
    """Keeps whoever brings a line while it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.has_come = threading.Event()
        self.gate = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.has_come.set()
        self.gate.wait(20)


@pytest.fixture
def held() -> Iterator[Held]:
    handler = Held()
    logging.getLogger(NAME).addHandler(handler)
    yield handler
    handler.gate.set()
    logging.getLogger(NAME).removeHandler(handler)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[logs.Logs]:
    with logs.configure(ServerOptions((), log_file=str(tmp_path / "log"))) as log:
        yield log


def written(log: logs.Logs) -> list[tuple[str, str]]:
    """Letter and text of every line that an agent has logged, when all are written."""
    log.close()
    return re.findall(
        r'^([IWE])\d{4} \S+ \d+ where\.cc:\d+\] "(.*)"$', Path(log.settings.log_file).read_text(), re.M
    )


def test_what_an_agent_logs_and_prints_is_in_the_log(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tritonpy.abi")
    place.load("LOAD", "log", "größer")
    place.load("LOAD", "print", "größer")

    lines = [(r.levelname, r.filename, r.lineno, r.message) for r in caplog.records]
    assert lines[:4] == [
        ("INFO", "where.cc", 41, "größer"),
        ("WARNING", "where.cc", 42, 'two\nlines, "quoted" and \\xff'),
        ("ERROR", "where.cc", 43, "bad"),
        ("DEBUG", "where.cc", 44, "chatter"),
    ]
    name = place.library.name
    assert sorted(lines[4:]) == [
        ("INFO", name, 0, "and"),
        ("INFO", name, 0, "printed: größer"),
        ("WARNING", name, 0, "complained: größer"),
    ]
    assert {record.process for record in caplog.records} == set(place.pids)


@pytest.mark.stress
def test_only_levels_that_are_logged_are_written(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "tritonpy.abi")
    place.load("LOAD", "log", "said")
    assert [record.message for record in caplog.records] == ["bad"]


def test_the_last_words_before_a_crash_are_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tritonpy.abi")

    place.refusal("LOAD", "log and crash")

    assert [record.message for record in caplog.records] == ["the last words"]


def test_an_agent_is_told_what_the_servers_log_admits(place: Place, log: logs.Logs) -> None:
    for settings in ({}, {"log_info": False, "log_verbose": 1}, {"log_warning": False, "log_error": False}):
        log.change(replace(logs.LogSettings(log_file=log.settings.log_file), **settings))
        place.load("LOAD", "note levels")

    assert [step for step in place.steps if step.startswith("levels")] == [
        "levels IWE-",
        "levels -WEV",
        "levels I---",
    ]


def test_only_lines_that_the_servers_log_admits_are_written(place: Place, log: logs.Logs) -> None:
    log.change(replace(log.settings, log_info=False, log_verbose=1))
    place.load("LOAD", "log", "said")

    assert written(log) == [("W", 'two\\nlines, \\"quoted\\" and \\\\xff'), ("E", "bad"), ("I", "chatter")]


def test_levels_that_change_during_a_call_count_at_once(
    place: Place, log: logs.Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_WAITS_FOR", str(tmp_path / "gate"))
    load = threading.Thread(target=place.load, args=("LOAD", "wait and log", "said"), daemon=True)
    load.start()
    until(lambda: any(step.startswith("LOAD") for step in place.steps))
    log.change(replace(log.settings, log_warning=False, log_error=False, log_verbose=1))
    (tmp_path / "gate").touch()
    load.join(20)

    assert written(log) == [("I", "said"), ("I", "chatter")]


def test_lines_count_by_the_levels_of_the_moment_they_were_written(
    place: Place, log: logs.Logs, held: Held
) -> None:
    load = threading.Thread(target=place.load, args=("LOAD", "log", "said"), daemon=True)
    load.start()
    assert held.has_come.wait(20)  # the first line is about to be handed over, and the others wait behind it
    until(lambda: "LOAD_COMPLETE" in place.steps)
    log.change(replace(log.settings, log_warning=False, log_error=False))
    held.gate.set()
    load.join(20)

    assert [letter for letter, _ in written(log)] == ["I", "W", "E"]


class Slow(logging.Filter):
    """So slow that lines wait in the pipe when the process has ended."""

    def filter(self, record: logging.LogRecord) -> bool:
        time.sleep(0.6)
        return True


def test_lines_that_wait_when_the_process_ends_are_waited_for(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, NAME)

    with caplog.filtering(Slow()):
        place.load("LOAD", "log", "said")

    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "ERROR"]
