from __future__ import annotations

import errno
import io
import json
import logging
import os
import queue
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tritonpy import logs
from tritonpy.options import ServerOptions
from tritonpy_sdk.testing import until

from .conftest import log_options

LOG = logging.getLogger("tritonpy.test")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["info", "warning", "error"]),
        ({"log_info": False}, ["warning", "error"]),
        ({"log_warning": False}, ["info", "error"]),
        ({"log_error": False}, ["info", "warning"]),
        ({"log_info": False, "log_warning": False, "log_error": False}, []),
        ({"log_verbose": 1}, ["verbose 1", "info", "warning", "error"]),
        ({"log_verbose": 2, "log_info": False}, ["verbose 1", "verbose 2", "warning", "error"]),
    ],
)
def test_each_kind_of_line_has_its_own_switch(
    log_path: Path, changes: dict[str, object], expected: list[str]
) -> None:
    with logs.configure(log_options(log_path, **changes)):
        LOG.log(logs.verbose(1), "verbose 1")
        LOG.log(logs.verbose(2), "verbose 2")
        LOG.info("info")
        LOG.warning("warning")
        LOG.error("error")

    assert re.findall(r'\] "(.*)"', log_path.read_text()) == expected


def test_verbose_call_is_off_for_its_logger_when_verbose_is_off(log_path: Path) -> None:
    with logs.configure(log_options(log_path)):
        assert not LOG.isEnabledFor(logs.verbose(1))


def test_warnings_of_asyncio_are_written_but_not_its_information(log_path: Path) -> None:
    with logs.configure(log_options(log_path)):
        logging.getLogger("asyncio").info("started")
        logging.getLogger("asyncio").warning("slow")

    assert re.findall(r'\] "(.*)"', log_path.read_text()) == ["slow"]


def test_arguments_are_settled_when_the_line_is_logged(log_path: Path) -> None:
    batch = [1, 2]
    with logs.configure(log_options(log_path)):
        LOG.info("batch %s", batch)
        batch.clear()

    assert '"batch [1, 2]"' in log_path.read_text()


def test_standard_error_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    with logs.configure(ServerOptions(model_repositories=())):
        LOG.info("hello")

    assert '"hello"' in stream.getvalue()


def test_lines_go_back_to_the_embedding_program_after_close(
    log_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs.configure(log_options(log_path)).close()
    LOG.warning("after")

    assert "after" not in log_path.read_text()
    assert "after" in caplog.text


def test_a_stuck_reader_costs_lines_and_not_the_caller(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 3)
    stuck, entered, written = threading.Event(), threading.Event(), queue.SimpleQueue[str]()

    class StuckStream:
        def write(self, text: str) -> None:
            entered.set()
            stuck.wait()
            written.put(text)

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", StuckStream())
    running = logs.configure(ServerOptions(model_repositories=()))
    try:
        LOG.info("first")
        entered.wait()
        for index in range(8):
            LOG.info("line %d", index)
    finally:
        stuck.set()
        running.close()

    text = "".join(written.get() for _ in range(written.qsize()))
    assert re.findall(r'\] "(.*)"', text) == [
        "first",
        "line 0",
        "line 1",
        "line 2",
        "5 log lines were dropped because the log could not be written fast enough",
    ]


def test_close_gives_up_on_a_reader_that_never_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 1)
    monkeypatch.setattr(logs, "CLOSE_TIMEOUT_S", 0.01)
    stuck, entered = threading.Event(), threading.Event()

    class StuckStream:
        def write(self, text: str) -> None:
            entered.set()
            stuck.wait()

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stderr", StuckStream())
    running = logs.configure(ServerOptions(model_repositories=()))
    LOG.info("first")
    entered.wait()
    LOG.info("second")
    LOG.info("third")

    running.close()

    assert not stuck.is_set()
    stuck.set()


def test_a_log_file_that_cannot_be_opened_is_an_error_that_names_it(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "server.log"

    with pytest.raises(FileNotFoundError, match="missing"):
        logs.configure(log_options(missing))


def write_all_kinds() -> None:
    LOG.log(logs.verbose(2), "verbose 2")
    LOG.log(logs.verbose(1), "verbose 1")
    LOG.info("info")
    LOG.warning("warning")
    LOG.error("error")


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (logs.LogSettings(log_verbose=1), ["verbose 1", "info", "warning", "error"]),
        (logs.LogSettings(log_verbose=2, log_error=False), ["verbose 2", "verbose 1", "info", "warning"]),
        (logs.LogSettings(log_info=False), ["warning", "error"]),
        (logs.LogSettings(log_info=False, log_warning=False, log_error=False), []),
    ],
)
def test_what_is_written_can_be_changed_while_the_log_runs(
    log_path: Path, changed: logs.LogSettings, expected: list[str]
) -> None:
    with logs.configure(log_options(log_path)) as log:
        write_all_kinds()
        log.change(changed)
        write_all_kinds()
        log.change(logs.LogSettings())
        write_all_kinds()

    usual = ["info", "warning", "error"]
    assert re.findall(r'\] "(.*)"', log_path.read_text()) == [*usual, *expected, *usual]


def test_the_format_can_be_changed_while_the_log_runs(log_path: Path) -> None:
    with logs.configure(log_options(log_path)) as log:
        LOG.info("first")
        until(lambda: "first" in log_path.read_text())
        log.change(logs.LogSettings(log_format="json"))
        LOG.info("second")

    first, second = log_path.read_text().splitlines()
    assert first.startswith("I")
    assert json.loads(second)["message"] == "second"


def test_the_file_stays_when_settings_change(log_path: Path, tmp_path: Path) -> None:
    with logs.configure(log_options(log_path)) as log:
        log.change(logs.LogSettings(log_file=str(tmp_path / "other")))
        LOG.info("here")

        assert log.settings.log_file == str(log_path)
    assert "here" in log_path.read_text()
    assert not (tmp_path / "other").exists()


def test_warnings_of_libraries_follow_the_switch_for_warnings(log_path: Path) -> None:
    with logs.configure(log_options(log_path)) as log:
        log.change(logs.LogSettings(log_verbose=3))
        logging.getLogger("asyncio").info("unseen")
        log.change(logs.LogSettings(log_warning=False))
        logging.getLogger("asyncio").warning("unseen")
        log.change(logs.LogSettings())
        logging.getLogger("asyncio").warning("seen")

    assert re.findall(r'\] "(.*)"', log_path.read_text()) == ["seen"]


def test_the_running_log_is_the_one_begun_last(log_path: Path, tmp_path: Path) -> None:
    assert logs.running() is None
    with logs.configure(log_options(log_path)) as outer:
        with logs.configure(log_options(tmp_path / "inner.log")) as inner:
            assert logs.running() is inner
        assert logs.running() is outer
    assert logs.running() is None


def test_no_line_is_lost_or_torn_while_the_settings_change(log_path: Path) -> None:
    formats = ("default", "ISO8601", "json")
    with logs.configure(log_options(log_path)) as log:

        def write() -> None:
            for number in range(1000):
                LOG.info("line %d", number)

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        for number in range(1000):
            log.change(replace(log.settings, log_format=formats[number % 3], log_verbose=number % 2))
        for writer in writers:
            writer.join()

    lines = log_path.read_text().splitlines()
    assert len(lines) == 4000
    for line in lines:
        assert re.search(r'"line \d+"}?$', line), line


class _FullDisk(io.StringIO):
    """A file that takes nothing while `is_full`."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_full_disk_is_told_once_and_lines_are_counted(
    log_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = _FullDisk()
    with logs.configure(log_options(log_path)) as log:
        log._output.setStream(disk).close()  # type: ignore[attr-defined]
        for number in range(3):
            LOG.info("lost %d", number)
        until(lambda: log._output._lost == 3)  # type: ignore[attr-defined]
        disk.is_full = False
        LOG.info("there again")
        until(lambda: disk.getvalue().count("\n") == 2)
        written = disk.getvalue()

    told = capsys.readouterr().err
    expected = f"the log file '{log_path}' cannot be written: No space left on device"
    assert told == f"{expected}; its lines are dropped until it can\n"
    assert '"there again"\n' in written
    assert written.endswith('"3 log lines could not be written to the log file when they were due"\n')


def test_a_log_on_a_full_disk_can_be_closed(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.configure(log_options(Path("/dev/full"))):
        LOG.info("hello")

    assert "'/dev/full' cannot be written" in capsys.readouterr().err


class _Follower:
    def __init__(self, log: list[object]) -> None:
        self.seen = log

    def settings_changed(self, settings: logs.LogSettings | None) -> None:
        self.seen.append(settings and settings.log_verbose)

    def flush(self) -> None:
        LOG.info("the last line")


def test_a_follower_knows_the_settings_and_hands_over_its_lines_before_the_log_closes(
    log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_followers", [])
    seen: list[object] = []
    logs.follow(_Follower(seen))

    with logs.configure(log_options(log_path, log_verbose=2)) as log:
        log.change(replace(log.settings, log_verbose=3))

    assert seen == [None, 2, 3, None]
    assert '"the last line"\n' in log_path.read_text()


def test_who_follows_a_running_log_is_told_its_settings_at_once(
    log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_followers", [])
    seen: list[object] = []

    with logs.configure(log_options(log_path, log_verbose=1)):
        logs.follow(_Follower(seen))

        assert seen == [1]
