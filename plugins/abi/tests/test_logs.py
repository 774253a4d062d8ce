from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, c_bool, c_char_p, c_int, c_void_p
from dataclasses import replace
from pathlib import Path

import pytest
from tritonpy import logs
from tritonpy.logs import LogSettings
from tritonpy.options import ServerOptions
from tritonpy_abi.build import library
from tritonpy_abi.logs import NAME
from tritonpy_abi.serving import connect
from tritonpy_abi.shim import open_shim

pytestmark = pytest.mark.skipif(not library().is_file(), reason="the library is not compiled")

INFO, WARNING, ERROR, VERBOSE = range(4)


class Plugin:
    """What a shared object does: it logs, and Python has nothing to do with it."""

    def __init__(self) -> None:
        lib = CDLL(str(library()))
        self._log = lib.TRITONSERVER_LogMessage
        self._log.argtypes = (c_int, c_char_p, c_int, c_char_p)
        self._log.restype = c_void_p
        self.is_enabled = lib.TRITONSERVER_LogIsEnabled
        self.is_enabled.restype = c_bool

    def log(self, message: bytes, level: int = WARNING, line: int = 1) -> None:
        assert self._log(level, b"/plugin/source.cc", line, message) is None


class Held(logging.Handler):
    """Keeps records, and whoever brings one while it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.gate = threading.Event()
        self.gate.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.gate.wait()
        self.records.append(record)


@pytest.fixture
def held() -> Iterator[Held]:
    handler, log = Held(), logging.getLogger(NAME)
    connect()
    flush()  # what libraries of other tests have said
    log.addHandler(handler)
    yield handler
    handler.gate.set()
    flush()
    log.removeHandler(handler)


@pytest.fixture
def plugin() -> Plugin:
    return Plugin()


def flush() -> None:
    assert open_shim().lib.TRITONPY_LogFlush(20_000)


def test_lines_of_many_threads_arrive_whole_and_in_order(held: Held, plugin: Plugin) -> None:
    def talk(thread: int) -> None:
        for number in range(300):
            plugin.log(b"%d says %d" % (thread, number), line=number)

    before = time.time()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(talk, range(8)))
    flush()

    said = [record.getMessage() for record in held.records]
    assert len(said) == 2400
    for thread in range(8):
        own = [text for text in said if text.startswith(f"{thread} ")]
        assert own == [f"{thread} says {number}" for number in range(300)]
    record = held.records[-1]
    assert (record.name, record.levelno, record.filename) == (NAME, logging.WARNING, "source.cc")
    assert record.getMessage().endswith(f"says {record.lineno}")
    assert all(before <= record.created <= time.time() for record in held.records)


def test_lines_beyond_what_fits_are_counted_and_the_plugin_never_waits(held: Held, plugin: Plugin) -> None:
    held.gate.clear()
    for _ in range(12_000):
        plugin.log(b"flood")
    held.gate.set()
    flush()
    plugin.log(b"at last")
    flush()

    said = [record.getMessage() for record in held.records]
    dropped = [
        int(found[1]) for text in said if (found := re.match(r"(\d+) log lines of shared objects", text))
    ]
    assert said.count("flood") + sum(dropped) == 12_000
    assert said.count("flood") >= 10_000
    assert said[-1] == "at last"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"100% %s %d", "100% %s %d"),
        (b"", ""),
        (b"two\nlines \xff\xc3\xa9", "two\nlines \ufffdé"),
    ],
    ids=["percent", "empty", "bytes"],
)
def test_messages_are_taken_as_they_are(held: Held, plugin: Plugin, message: bytes, text: str) -> None:
    plugin.log(message)
    flush()

    assert [record.getMessage() for record in held.records] == [text]


def test_of_a_message_no_more_than_a_mebibyte_is_taken(held: Held, plugin: Plugin) -> None:
    for byte_size in (1 << 20, (1 << 20) + 7):
        plugin.log(b"x" * byte_size)
    flush()

    whole, cut = (record.getMessage() for record in held.records)
    assert whole == "x" * (1 << 20)
    assert cut == whole + "... (7 bytes more)"


def enabled(plugin: Plugin) -> list[bool]:
    return [plugin.is_enabled(level) for level in (INFO, WARNING, ERROR, VERBOSE)]


def test_levels_follow_the_servers_log(held: Held, plugin: Plugin, tmp_path: Path) -> None:
    with logs.configure(ServerOptions((), log_file=str(tmp_path / "log"))) as log:
        assert enabled(plugin) == [True, True, True, False]
        log.change(replace(log.settings, log_info=False, log_error=False, log_verbose=2))
        assert enabled(plugin) == [False, True, False, True]
        plugin.log(b"kept", WARNING)
        plugin.log(b"lost", ERROR)
        plugin.log(b"in depth", VERBOSE)

    written = (tmp_path / "log").read_text()  # closing the log has waited for them
    assert re.findall(r'([IWE])\d{4} \S+ \d+ source\.cc:1\] "(.*)"', written) == [
        ("W", "kept"),
        ("I", "in depth"),
    ]


def test_the_last_levels_count_also_if_they_change_while_the_log_is_looked_at(
    held: Held, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = connect()
    later = LogSettings(log_error=False)
    change = threading.Thread(target=follower.settings_changed, args=(later,))
    admits = LogSettings.admits

    def admits_slowly(settings: LogSettings, level: int) -> bool:
        if change.ident is None:
            change.start()
            change.join(0.2)
        return admits(settings, level)

    monkeypatch.setattr(LogSettings, "admits", admits_slowly)
    try:
        follower.settings_changed(LogSettings(log_info=False))
        change.join()
        assert enabled(plugin) == [True, True, False, False]
    finally:
        follower.settings_changed(None)


def test_lines_count_by_the_levels_of_the_moment_they_were_written(
    held: Held, plugin: Plugin, tmp_path: Path
) -> None:
    with logs.configure(ServerOptions((), log_file=str(tmp_path / "log"))) as log:
        held.gate.clear()
        plugin.log(b"early")
        plugin.log(b"early too")
        log.change(replace(log.settings, log_warning=False))
        plugin.log(b"late")
        held.gate.set()

    assert re.findall(r'"(.*)"', (tmp_path / "log").read_text()) == ["early", "early too"]


def test_levels_follow_the_loggers_of_a_program_that_has_a_server_in_it(held: Held, plugin: Plugin) -> None:
    log = logging.getLogger(NAME)
    try:
        log.setLevel(logging.ERROR)
        connect()
        assert enabled(plugin) == [False, False, True, False]
        log.setLevel(logging.DEBUG)
        connect()
        assert enabled(plugin) == [True, True, True, True]
    finally:
        log.setLevel(logging.NOTSET)
        connect()


PROGRAM = """
import ctypes, logging, os, sys, threading
from tritonpy_abi.build import library
from tritonpy_abi.serving import connect
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr)
connect()
log = ctypes.CDLL(str(library())).TRITONSERVER_LogMessage
log.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stderr


def test_no_line_is_lost_when_the_process_ends() -> None:
    written = run("for number in range(3000): log(1, b'a.cc', 1, b'line %d' % number)")

    assert written.splitlines() == [f"WARNING line {number}" for number in range(3000)]


def test_a_forked_process_writes_its_own_lines_to_standard_error() -> None:
    written = run(
        """
stop = threading.Event()
def talk():
    while not stop.is_set():
        log(1, b"a.cc", 1, b"of the parent")
threads = [threading.Thread(target=talk) for _ in range(4)]
for thread in threads: thread.start()
for number in range(20):
    child = os.fork()
    if child == 0:
        log(1, b"b.cc", number, b"of a child")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
"""
    )

    lines = written.splitlines()
    own = re.findall(r'^W\d{4} \S+ \d+ b\.cc:(\d+)\] "of a child"$', written, re.MULTILINE)
    assert sorted(map(int, own)) == list(range(20))
    assert "WARNING of the parent" in lines


def test_lines_after_the_log_has_stopped_go_to_standard_error() -> None:
    written = run(
        """
import atexit
atexit._run_exitfuncs()
log(1, b"a.cc", 1, b"late")
"""
    )

    assert re.fullmatch(r'W\d{4} \S+ \d+ a\.cc:1\] "late"\n', written)
