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
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tritonpy import logs
from tritonpy.options import ServerOptions
from tritonpy.request import InferRequest

LOG = logging.getLogger("tritonpy.test")


def settings(path: Path, **changes: object) -> ServerOptions:
    return ServerOptions(model_repositories=(), log_file=str(path), **changes)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    level, propagate = logging.getLogger("tritonpy").level, logging.getLogger("tritonpy").propagate
    yield tmp_path / "server.log"
    assert (logging.getLogger("tritonpy").level, logging.getLogger("tritonpy").propagate) == (
        level,
        propagate,
    )


def test_default_line_has_tritons_shape(path: Path) -> None:
    with logs.configure(settings(path)):
        LOG.warning("hello %s", "world")

    line = path.read_text()
    assert re.fullmatch(
        rf'W\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} {os.getpid()} test_logs\.py:\d+\] "hello world"\n', line
    )


def test_iso8601_line_has_tritons_shape(path: Path) -> None:
    with logs.configure(settings(path, log_format="ISO8601")):
        LOG.info("hello")

    line = path.read_text()
    assert re.fullmatch(
        rf'\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ I {os.getpid()} test_logs\.py:\d+\] "hello"\n', line
    )


def test_json_line_carries_context_and_exception(path: Path) -> None:
    with logs.configure(settings(path, log_format="json")):
        try:
            raise ValueError("broken")
        except ValueError:
            LOG.exception("failed", extra={"model": "digits", "version": 3, "request_id": "a b"})

    line = json.loads(path.read_text())
    assert line["level"] == "ERROR"
    assert line["message"] == "failed"
    assert (line["model"], line["version"], line["request_id"]) == ("digits", "3", "a b")
    assert line["pid"] == os.getpid()
    assert line["file"] == "test_logs.py"
    assert line["exception"].endswith("ValueError: broken")
    assert line["time"].endswith("Z")


def test_context_follows_the_message_and_odd_values_are_quoted(path: Path) -> None:
    with logs.configure(settings(path)):
        LOG.info("ran", extra={"model": "digits", "version": "1", "request_id": 'a "b"'})

    assert path.read_text().endswith('] "ran" model=digits version=1 request_id="a \\"b\\""\n')


@pytest.mark.parametrize("log_format", ["default", "ISO8601", "json"])
def test_a_message_that_begins_with_its_requests_id_says_it_once(path: Path, log_format: str) -> None:
    request = InferRequest("digits", {}, id="r 1")
    with logs.configure(settings(path, log_format=log_format)):
        LOG.warning("%sno", request.label, extra=request.about)
        LOG.warning("[request id: other] no", extra=request.about)

    one, other = path.read_text().splitlines()
    if log_format == "json":
        assert [json.loads(line)["request_id"] for line in (one, other)] == ["r 1", "r 1"]
    else:
        assert one.endswith('] "[request id: r 1] no" model=digits')
        assert other.endswith('] "[request id: other] no" model=digits request_id="r 1"')


def test_a_clients_text_cannot_forge_a_line(path: Path) -> None:
    forged = 'x\nE1121 00:00:00.000000 1 server.cc:1] "all is lost"'
    with logs.configure(settings(path)):
        try:
            raise ValueError(forged)
        except ValueError:
            LOG.exception("bad input %s", forged, extra={"request_id": forged})

    lines = path.read_text().splitlines()
    assert [line for line in lines if line.startswith("E")] == lines[:1]


def test_a_table_stands_below_a_line_without_text_as_tritons_do(path: Path) -> None:
    with logs.configure(settings(path)):
        LOG.info("models", extra={"table": "+---+\n| a |\n+---+"})

    assert path.read_text().endswith("] \n+---+\n| a |\n+---+\n\n")


@pytest.mark.parametrize("char", ["\r", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u202e"])
def test_what_is_not_printable_is_escaped(path: Path, char: str) -> None:
    with logs.configure(settings(path)):
        LOG.warning("a%sb é", char, extra={"request_id": f"r{char}"})

    line = path.read_text()
    assert line.removesuffix("\n").isprintable()
    escaped = json.dumps(char)
    assert line.endswith(f'] "a{escaped[1:-1]}b é" request_id="r{escaped[1:-1]}"\n')


def test_a_json_line_holds_printable_characters_only(path: Path) -> None:
    text = "a\n\x1b\x9b\u2028\U000e0001b é"
    with logs.configure(settings(path, log_format="json")):
        LOG.warning(text)

    line = path.read_text().removesuffix("\n")
    assert line.isprintable()
    assert "é" in line
    assert json.loads(line)["message"] == text


def test_a_json_line_carries_its_table(path: Path) -> None:
    with logs.configure(settings(path, log_format="json")):
        LOG.info("models", extra={"table": "+---+\n| a |\n+---+"})

    line = json.loads(path.read_text())
    assert (line["message"], line["table"]) == ("models", "+---+\n| a |\n+---+")


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
    path: Path, changes: dict[str, object], expected: list[str]
) -> None:
    with logs.configure(settings(path, **changes)):
        LOG.log(logs.verbose(1), "verbose 1")
        LOG.log(logs.verbose(2), "verbose 2")
        LOG.info("info")
        LOG.warning("warning")
        LOG.error("error")

    assert re.findall(r'\] "(.*)"', path.read_text()) == expected


def test_verbose_lines_carry_the_letter_of_information(path: Path) -> None:
    with logs.configure(settings(path, log_verbose=1)):
        LOG.debug("detail")

    assert path.read_text().startswith("I")


def test_verbose_call_is_off_for_its_logger_when_verbose_is_off(path: Path) -> None:
    with logs.configure(settings(path)):
        assert not LOG.isEnabledFor(logs.verbose(1))


def test_warnings_of_asyncio_are_written_but_not_its_information(path: Path) -> None:
    with logs.configure(settings(path)):
        logging.getLogger("asyncio").info("started")
        logging.getLogger("asyncio").warning("slow")

    assert re.findall(r'\] "(.*)"', path.read_text()) == ["slow"]


def test_arguments_are_settled_when_the_line_is_logged(path: Path) -> None:
    batch = [1, 2]
    with logs.configure(settings(path)):
        LOG.info("batch %s", batch)
        batch.clear()

    assert '"batch [1, 2]"' in path.read_text()


def test_standard_error_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    with logs.configure(ServerOptions(model_repositories=())):
        LOG.info("hello")

    assert '"hello"' in stream.getvalue()


def test_lines_go_back_to_the_embedding_program_after_close(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs.configure(settings(path)).close()
    LOG.warning("after")

    assert "after" not in path.read_text()
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
        logs.configure(settings(missing))


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
    path: Path, changed: logs.LogSettings, expected: list[str]
) -> None:
    with logs.configure(settings(path)) as log:
        write_all_kinds()
        log.change(changed)
        write_all_kinds()
        log.change(logs.LogSettings())
        write_all_kinds()

    usual = ["info", "warning", "error"]
    assert re.findall(r'\] "(.*)"', path.read_text()) == [*usual, *expected, *usual]


def test_the_format_can_be_changed_while_the_log_runs(path: Path) -> None:
    with logs.configure(settings(path)) as log:
        LOG.info("first")
        wait_until(lambda: "first" in path.read_text())
        log.change(logs.LogSettings(log_format="json"))
        LOG.info("second")

    first, second = path.read_text().splitlines()
    assert first.startswith("I")
    assert json.loads(second)["message"] == "second"


def test_the_file_stays_when_settings_change(path: Path, tmp_path: Path) -> None:
    with logs.configure(settings(path)) as log:
        log.change(logs.LogSettings(log_file=str(tmp_path / "other")))
        LOG.info("here")

        assert log.settings.log_file == str(path)
    assert "here" in path.read_text()
    assert not (tmp_path / "other").exists()


def test_warnings_of_libraries_follow_the_switch_for_warnings(path: Path) -> None:
    with logs.configure(settings(path)) as log:
        log.change(logs.LogSettings(log_verbose=3))
        logging.getLogger("asyncio").info("unseen")
        log.change(logs.LogSettings(log_warning=False))
        logging.getLogger("asyncio").warning("unseen")
        log.change(logs.LogSettings())
        logging.getLogger("asyncio").warning("seen")

    assert re.findall(r'\] "(.*)"', path.read_text()) == ["seen"]


def test_the_running_log_is_the_one_begun_last(path: Path, tmp_path: Path) -> None:
    assert logs.running() is None
    with logs.configure(settings(path)) as outer:
        with logs.configure(settings(tmp_path / "inner.log")) as inner:
            assert logs.running() is inner
        assert logs.running() is outer
    assert logs.running() is None


def test_no_line_is_lost_or_torn_while_the_settings_change(path: Path) -> None:
    formats = ("default", "ISO8601", "json")
    with logs.configure(settings(path)) as log:

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

    lines = path.read_text().splitlines()
    assert len(lines) == 4000
    for line in lines:
        assert re.search(r'"line \d+"}?$', line), line


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


class _FullDisk(io.StringIO):
    """A file that takes nothing while `is_full`."""

    is_full = True

    def write(self, text: str) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_full_disk_is_told_once_and_lines_are_counted(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = _FullDisk()
    with logs.configure(settings(path)) as log:
        log._output.setStream(disk).close()  # type: ignore[attr-defined]
        for number in range(3):
            LOG.info("lost %d", number)
        wait_until(lambda: log._output._lost == 3)  # type: ignore[attr-defined]
        disk.is_full = False
        LOG.info("there again")
        wait_until(lambda: disk.getvalue().count("\n") == 2)
        written = disk.getvalue()

    told = capsys.readouterr().err
    expected = f"the log file '{path}' cannot be written: No space left on device"
    assert told == f"{expected}; its lines are dropped until it can\n"
    assert '"there again"\n' in written
    assert written.endswith('"3 log lines could not be written to the log file when they were due"\n')


def test_a_log_on_a_full_disk_can_be_closed(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.configure(settings(Path("/dev/full"))):
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
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_followers", [])
    seen: list[object] = []
    logs.follow(_Follower(seen))

    with logs.configure(settings(path, log_verbose=2)) as log:
        log.change(replace(log.settings, log_verbose=3))

    assert seen == [None, 2, 3, None]
    assert '"the last line"\n' in path.read_text()


def test_who_follows_a_running_log_is_told_its_settings_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_followers", [])
    seen: list[object] = []

    with logs.configure(settings(path, log_verbose=1)):
        logs.follow(_Follower(seen))

        assert seen == [1]
