from __future__ import annotations

import asyncio
import io
import itertools
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tritonpy import logs
from tritonpy.log_lines import CONTEXT
from tritonpy.options import ServerOptions
from tritonpy.workers import worker_output
from tritonpy.workers.worker_output import MAX_LINE_BYTES, PipeReader, WorkerLines
from tritonpy.workers.worker_services import Caller
from tritonpy_sdk.testing import until_async


class Heard(logging.Handler):
    """What reached the log."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def heard() -> Iterator[Heard]:
    logger = logging.getLogger("tritonpy.worker")
    level = logger.level
    handler = Heard()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)


class Worker:
    """The server's side of a worker that has nothing but its output."""

    def __init__(self) -> None:
        self.is_read: list[bool] = []
        self.lines = WorkerLines(Caller("net", 3, "net_0_1"), self.set_reading)
        self.lines.pid = 4711
        read, self.write = os.pipe()
        self.pipe = PipeReader(read, "stderr", logging.WARNING, self.lines)

    def set_reading(self, is_reading: bool) -> None:
        self.is_read.append(is_reading)
        self.pipe.set_reading(is_reading)

    async def says(self, data: bytes) -> None:
        """Write to the pipe, end it, and wait until all of it is in the log."""
        await asyncio.to_thread(self._say, data)
        await until_async(lambda: not self.pipe._is_open)
        await self.lines.written()

    def _say(self, data: bytes) -> None:
        with open(self.write, "wb") as stream:
            stream.write(data)


@pytest.fixture
async def worker() -> Worker:
    return Worker()


async def test_lines_say_whose_they_are(worker: Worker, heard: Heard) -> None:
    worker.lines.add(logging.ERROR, "100 % done", "id-7", "/models/net/3/model.py", 12)
    await worker.lines.written()

    (record,) = heard.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "100 % done")
    assert (record.filename, record.lineno, record.process) == ("model.py", 12, 4711)
    assert {key: getattr(record, key) for key in CONTEXT} == {
        "model": "net",
        "version": 3,
        "instance": "net_0_1",
        "request_id": "id-7",
    }


async def test_a_pipe_is_cut_into_lines(worker: Worker, heard: Heard) -> None:
    await worker.says("first\n\nsecond ä\r\nthird".encode() + b" \xff")

    assert heard.texts == ["first", "second ä", "third \\xff"]
    assert {(record.levelno, record.filename) for record in heard.records} == {(logging.WARNING, "stderr")}


async def test_lines_of_libraries_for_triton_keep_their_level_and_place(worker: Worker, heard: Heard) -> None:
    head = b"1123 20:35:04.751504 32677 lib.c:"
    lines = [
        b"W" + head + b'7] "gr\xc3\xb6\xc3\x9fer \\"als\\"\\n\\tgedacht"',
        b"half a lineE" + head + b'8] "bad"',
        b"V" + head + b'9] "not admitted"',
        b"I" + head + b'10] "not a "text""',
    ]

    await worker.says(b"\n".join(lines))

    found = [
        (record.levelno, record.filename, record.lineno, record.getMessage()) for record in heard.records
    ]
    assert found == [
        (logging.WARNING, "lib.c", 7, 'größer "als"\n\tgedacht'),
        (logging.WARNING, "stderr", 0, "half a line"),
        (logging.ERROR, "lib.c", 8, "bad"),
        (logging.WARNING, "stderr", 0, lines[-1].decode()),
    ]


async def test_a_line_in_pieces_is_one_line(worker: Worker, heard: Heard) -> None:
    os.write(worker.write, b"Segmentation ")
    await asyncio.sleep(0.02)
    assert heard.texts == []

    await worker.says(b"fault\nnext\n")

    assert heard.texts == ["Segmentation fault", "next"]


def test_a_worker_sees_which_levels_the_log_admits_and_when_that_changes(tmp_path: Path) -> None:
    seen: list[str] = []

    class Sees:
        def set_levels(self, admitted: int) -> None:
            seen.append("".join(name for bit, name in enumerate("IWEV") if admitted >> bit & 1))

    with logs.configure(ServerOptions((), log_file=str(tmp_path / "log"))) as log:
        worker = Sees()
        worker_output.show_levels(worker)
        log.change(replace(log.settings, log_info=False, log_verbose=2))

    assert seen[:2] == ["IWE", "WEV"]


async def test_of_a_progress_bar_its_last_state_is_logged(worker: Worker, heard: Heard) -> None:
    await worker.says(b"\r 10%\r 50%\r100%\r\ndone\n")

    assert heard.texts == ["100%", "done"]


async def test_long_lines_are_cut_with_a_note(worker: Worker, heard: Heard) -> None:
    await worker.says(b"x" * (MAX_LINE_BYTES + 100_000) + b"\n" + b"y" * MAX_LINE_BYTES + b"\nshort\n")

    assert heard.texts == [
        "x" * MAX_LINE_BYTES + " … [cut: 100000 bytes more]",
        "y" * MAX_LINE_BYTES,
        "short",
    ]


async def test_closing_takes_what_is_there_and_waits_for_nobody(worker: Worker, heard: Heard) -> None:
    child = subprocess.Popen(  # noqa: ASYNC220 (a moment)
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[worker.write]
    )
    os.write(worker.write, b"last words\nunfinished")
    os.close(worker.write)

    worker.pipe.close()  # the child still holds the other end
    await worker.lines.written()
    child.communicate(b"\n")

    assert heard.texts == ["last words", "unfinished"]
    worker.pipe.close()
    worker.pipe.set_reading(True)


async def test_lines_below_the_servers_level_cost_nothing(worker: Worker, heard: Heard) -> None:
    worker.lines.add(logging.DEBUG, "verbose")
    assert not worker.lines._waiting


async def test_a_flood_is_read_at_the_speed_of_the_log_and_nothing_is_lost(
    worker: Worker, tmp_path: Path
) -> None:
    path = tmp_path / "server.log"
    count = 30_000  # three times what the log holds
    turns = 0
    most_waiting = 0
    flood = b"".join(b"line %d\n" % number for number in range(count))
    with logs.configure(ServerOptions((), log_file=str(path))):
        flooding = asyncio.create_task(worker.says(flood))
        while not flooding.done():
            await asyncio.sleep(0)
            turns += 1
            most_waiting = max(most_waiting, len(worker.lines._waiting))
        await flooding

    written = path.read_text().splitlines()
    assert len(written) == count
    assert '"line 29999" model=net version=3 instance=net_0_1' in written[-1]
    assert not any("dropped" in line for line in written[-10:])
    assert worker.is_read[:2] == [False, True]
    assert most_waiting < 20_000  # one reading of the pipe
    assert turns > 50  # others on the loop have had theirs


async def test_a_log_that_nobody_reads_does_not_hold_up_the_worker_for_ever(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    monkeypatch.setattr("tritonpy.workers.worker_output.has_room", lambda: False)
    monkeypatch.setattr("tritonpy.workers.worker_output._MOST_LOOKS", 3)

    await worker.says(b"line\n" * 5000)

    assert len(heard.texts) == 5000


async def test_that_the_whole_process_stood_still_says_nothing_of_the_log(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    answers = iter([False] * 3)
    written: list[int] = []

    def has_room() -> bool:
        written.append(len(heard.texts))
        return next(answers, True)

    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(worker_output, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    monkeypatch.setattr(worker_output, "has_room", has_room)

    await worker.says(b"first\nsecond\n")

    assert written == [0, 0, 0, 0, 1]
    assert heard.texts == ["first", "second"]


def test_the_log_says_whether_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            stuck.wait(20)
            return len(text)

    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 4)
    monkeypatch.setattr(sys, "stderr", Stuck())
    assert logs.has_room()
    with logs.configure(ServerOptions(())):
        logger = logging.getLogger("tritonpy.test")
        assert logs.has_room()
        for _ in range(5):
            logger.info("line")
        assert not logs.has_room()
        stuck.set()
    assert logs.has_room()
