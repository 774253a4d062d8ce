"""Tries of strategies and caches in a child process: what they find, and what they leave."""

from __future__ import annotations

import logging
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tritonpy.plugin import Backend, ErrorCode, Internal, InvalidArg, Model, TritonError, Unavailable
from tritonpy_abi.probe import try_cache, try_strategy
from tritonpy_abi.probe.process import PROGRAM, Ending, run_child
from tritonpy_abi.strategies import open_strategy
from tritonpy_sdk.testing import until

from .conftest import Compiled

BATCHING = (
    "ModelBatcherInitialize",
    "ModelBatchInitialize",
    "ModelBatchFinalize",
    "ModelBatcherFinalize",
)
DEATHS = {"segfault": "SIGSEGV", "abort": "SIGABRT", "kill": "SIGKILL", "exit": "exit code 3"}


def model(fault: str = "", directory: Path = Path("/models/m")) -> Model:
    config = {"name": "m", "max_batch_size": 8, "parameters": {"FAULT": {"string_value": fault}}}
    return Model("m", 1, config, directory, Backend("identity"))


def children() -> list[int]:
    """The processes that this one has started, of all its threads."""
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found += map(int, task.read_text().split())
    return found


@pytest.fixture
def faulty(compiled: Compiled) -> Path:
    return compiled("strategies/faulty.cc")


@pytest.fixture
def cache(compiled: Compiled) -> Path:
    return compiled("caches/faulty.cc")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    descriptors, before = {*os.listdir("/proc/self/fd")}, {*children()}
    yield
    # Other tests of this process may have left what ends meanwhile.
    assert before.issuperset(children())
    assert descriptors.issuperset(os.listdir("/proc/self/fd"))
    assert not list((tmp_path / "temporary").iterdir())


def test_a_strategy_that_does_its_work_may_be_loaded(faulty: Path) -> None:
    try_strategy(faulty, model())


@pytest.mark.parametrize("where", BATCHING)
@pytest.mark.parametrize("fault", DEATHS)
def test_a_strategy_that_ends_its_process_is_refused_with_the_function_it_did_so_in(
    faulty: Path, where: str, fault: str
) -> None:
    with pytest.raises(Internal) as refusal:
        try_strategy(faulty, model(f"{where} {fault}"))

    assert str(refusal.value).startswith(
        f"batching strategy '{faulty}' ended the process it was tried in: {DEATHS[fault]} in "
        f"TRITONBACKEND_{where};"
    )
    assert "TRITONPY_ABI_PROBE_S=0" in str(refusal.value)


@pytest.mark.parametrize("fault", DEATHS)
def test_a_library_that_ends_its_process_while_it_is_opened_is_refused(
    faulty: Path, tmp_path: Path, fault: str
) -> None:
    library = Path(shutil.copy(faulty, tmp_path))
    (tmp_path / "faulty.so.fault").write_text(fault)

    with pytest.raises(Internal, match=f"{DEATHS[fault]} while it was opened"):
        try_strategy(library, model())


def test_an_exception_while_a_library_is_opened_is_no_good(faulty: Path, tmp_path: Path) -> None:
    library = Path(shutil.copy(faulty, tmp_path))
    (tmp_path / "faulty.so.fault").write_text("digits")

    with pytest.raises(Internal, match="while it was opened"):
        try_strategy(library, model())


def test_what_does_not_return_is_ended_when_its_time_is_over(
    faulty: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"where": "CacheLookup", "fault": "loop"}

    def ended_after(time_s: float) -> dict[str, BaseException | None]:
        """What each is refused with, by the function that it does not return from."""
        monkeypatch.setenv("TRITONPY_ABI_PROBE_S", f"{time_s:g}")
        began = time.monotonic()
        with ThreadPoolExecutor(8) as threads:
            tries = {
                f"TRITONBACKEND_{where}": threads.submit(try_strategy, faulty, model(f"{where} loop"))
                for where in BATCHING
            }
            tries["TRITONCACHE_CacheLookup"] = threads.submit(try_cache, cache, settings)
        assert time.monotonic() - began >= time_s
        return {where: attempt.exception() for where, attempt in tries.items()}

    for time_s in (1.2, 6, 30):  # five processes on a slow machine take long to get there
        refusals = ended_after(time_s)
        texts = {
            where: f"was still in {where} after {time_s:g} s; TRITONPY_ABI_PROBE_S" for where in refusals
        }
        if all(texts[where] in str(refusal) for where, refusal in refusals.items()):
            break

    for where, refusal in refusals.items():
        assert isinstance(refusal, Unavailable)
        assert texts[where] in str(refusal)


def test_the_error_of_a_strategy_comes_with_its_code_and_its_text(faulty: Path) -> None:
    with pytest.raises(TritonError) as refusal:
        try_strategy(faulty, model("ModelBatcherInitialize error"))

    assert refusal.value.code is ErrorCode.UNAVAILABLE
    assert str(refusal.value) == "ModelBatcherInitialize had no wish to"


def test_a_strategy_sees_the_same_of_its_model_as_in_the_server(
    faulty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Backend("identity", {"one": "1"}, directory=tmp_path / "backends/identity")
    shown = Model("m", 2**63, model("tells its model").config, tmp_path / "m", backend)

    with pytest.raises(TritonError) as in_the_child:
        try_strategy(faulty, shown)
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "0")
    with pytest.raises(TritonError) as in_the_server:
        open_strategy(faulty).model_batcher_initialize(shown)

    assert str(in_the_child.value) == str(in_the_server.value)
    assert str(in_the_child.value).startswith(
        f"m|{2**63}|{tmp_path}/m|completes|identity|{tmp_path}/backends/identity|"
    )


def test_an_exception_of_a_strategy_is_an_error(faulty: Path) -> None:
    with pytest.raises(TritonError) as refusal:
        try_strategy(faulty, model("ModelBatcherInitialize digits"))

    assert refusal.value.code is ErrorCode.INTERNAL
    assert str(refusal.value) == "TRITONBACKEND_ModelBatcherInitialize threw a C++ exception: stoull"


@pytest.mark.parametrize("where", BATCHING[1:])
@pytest.mark.parametrize("fault", ["error", "digits", "throw"])
def test_errors_of_a_batch_are_none_of_the_load(faulty: Path, where: str, fault: str) -> None:
    try_strategy(faulty, model(f"{where} {fault}"))


@pytest.mark.parametrize("content", [b"", b"no library\n", b"\x7fELF\x02\x01"])
@pytest.mark.usefixtures("library")
def test_what_cannot_be_opened_is_for_the_server_to_refuse(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "nothing.so").write_bytes(content)

    try_strategy(tmp_path / "nothing.so", model())
    try_strategy(tmp_path / "missing.so", model())
    try_strategy(tmp_path, model())


def test_a_library_that_lacks_a_function_is_for_the_server_to_refuse(compiled: Compiled) -> None:
    try_strategy(compiled("strategies/partial.c", "-DWITH_1"), model())


def test_a_path_may_have_any_bytes(faulty: Path, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/b\xe9 \"'.so")
    os.symlink(faulty, path)

    with pytest.raises(TritonError, match="had no wish to"):
        try_strategy(path, model("ModelBatcherInitialize error", tmp_path / path))


def test_a_library_from_a_wheel_finds_the_server_under_its_other_name(
    compiled: Compiled, tmp_path: Path
) -> None:
    stub = tmp_path / "libtritonserver-0123abcd.so"
    stub.write_bytes(compiled("strategies/partial.c", "-Wl,-soname,libtritonserver-0123abcd.so").read_bytes())
    library = compiled("strategies/faulty.cc", "-Wl,--no-as-needed", str(stub))
    stub.unlink()

    with pytest.raises(TritonError, match="had no wish to"):
        try_strategy(library, model("ModelBatcherInitialize error"))


def test_what_a_strategy_prints_and_logs_stays_in_the_child(
    faulty: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        try_strategy(faulty, model("ModelBatcherInitialize prints"))
        try_strategy(faulty, model("ModelBatcherInitialize logs"))

    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""


def test_the_last_lines_of_a_strategy_that_died_are_in_the_error_and_more_of_them_in_the_log(
    faulty: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(Internal) as refusal:
        try_strategy(faulty, model("ModelBatcherInitialize prints and aborts"))

    assert "it printed: line 4998 | line 4999 | the table is \ufffd torn" in str(refusal.value)
    assert "while it was tried: line 4990" in caplog.text
    assert len(str(refusal.value)) < 1000


def test_a_child_has_neither_descriptors_nor_signals_of_the_server(
    faulty: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as port, caplog.at_level(logging.INFO):
        port.set_inheritable(True)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            with pytest.raises(TritonError, match="had no wish to"):
                try_strategy(faulty, model("ModelBatcherInitialize shows its process"))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    assert "SigBlk:\t0000000000000000" in caplog.text
    assert "/dev/null" in caplog.text  # its standard input; and what it prints is in the log
    assert "socket:" not in caplog.text


def test_a_child_leaves_no_core(faulty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    monkeypatch.chdir(tmp_path)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        with pytest.raises(Internal, match="SIGABRT"):
            try_strategy(faulty, model("ModelBatcherInitialize abort"))
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)

    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]


def test_what_a_library_starts_ends_with_the_child(faulty: Path) -> None:
    def forked() -> list[str]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has just ended
                line = path.read_bytes()
                if os.fsencode(PROGRAM) in line and str(os.getpid()).encode() in line.split(b"\0"):
                    found.append(line.decode())
        return found

    try_strategy(faulty, model("ModelBatcherInitialize forks"))

    until(lambda: not forked())  # nobody tells of the end of a child's child


EMBEDDED = """
import sys
from pathlib import Path
from tritonpy.plugin import Backend, Model
from tritonpy_abi.probe import try_strategy
config = {"parameters": {"FAULT": {"string_value": sys.argv[2]}}}
try_strategy(sys.argv[1], Model("m", 1, config, Path("/m"), Backend("identity")))
print("good", flush=True)
"""


def test_a_child_ends_with_its_server_however_that_ends(faulty: Path) -> None:
    fault = "ModelBatcherInitialize loop"
    server = subprocess.Popen([sys.executable, "-c", EMBEDDED, str(faulty), fault])
    children_of = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    pid = until(lambda: children_of.read_text().split())[0]
    child = os.pidfd_open(int(pid))
    time.sleep(0.2)  # it may be anywhere between its start and the loop

    server.kill()
    server.wait()

    assert select.select([child], [], [], 20)[0]
    os.close(child)


@pytest.mark.parametrize("flags", [["-I"], []])
def test_it_works_wherever_the_server_runs_and_however_it_was_started(
    faulty: Path, tmp_path: Path, flags: list[str]
) -> None:
    for name in ("json", "ctypes", "signal", "tritonpy_abi"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "path").mkdir()
    (tmp_path / "path/resource.py").write_text("raise SystemExit('the wrong one')")
    command = [sys.executable, *flags, "-P", "-c", EMBEDDED, str(faulty), ""]
    variables = {"PATH": "/nowhere", "PYTHONPATH": str(tmp_path / "path")}

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )

    assert done.stdout == "good\n"
    assert done.stderr == ""


def test_several_loads_try_their_strategies_side_by_side(
    faulty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_are_there = threading.Barrier(4)

    def meet_and_run(arguments: Sequence[str], request: bytes, timeout_s: float) -> Ending:
        all_are_there.wait(20)
        return run_child(arguments, request, timeout_s)

    monkeypatch.setattr("tritonpy_abi.probe.run_child", meet_and_run)

    with ThreadPoolExecutor(4) as threads:
        for attempt in [threads.submit(try_strategy, faulty, model("")) for _ in range(4)]:
            attempt.result()


def test_with_no_time_a_library_is_not_tried(faulty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "0")

    try_strategy(faulty, model("ModelBatcherInitialize abort"))


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_refused(faulty: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", value)

    with pytest.raises(InvalidArg, match=f"TRITONPY_ABI_PROBE_S is '{value}'"):
        try_strategy(faulty, model())


@pytest.mark.parametrize("executable", ["/bin/false", "/nowhere/python"])
def test_a_server_that_cannot_start_a_child_says_so(
    faulty: Path, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)

    with pytest.raises(Unavailable, match=r"cannot be tried.*TRITONPY_ABI_PROBE_S=0"):
        try_strategy(faulty, model())


def test_a_cache_is_asked_for_a_key_that_is_not_there(cache: Path) -> None:
    try_cache(cache, {})
    for where in ("CacheInitialize", "CacheLookup", "CacheFinalize"):
        with pytest.raises(Internal, match=f"response cache '{cache}' .*SIGSEGV in TRITONCACHE_{where};"):
            try_cache(cache, {"where": where, "fault": "segfault"})


def test_the_error_of_a_cache_comes_with_its_code_and_its_text(cache: Path) -> None:
    with pytest.raises(TritonError) as refusal:
        try_cache(cache, {"where": "CacheInitialize", "fault": "error"})

    assert refusal.value.code is ErrorCode.INVALID_ARG
    assert str(refusal.value) == "CacheInitialize had no wish to"


def test_a_cache_that_errs_when_it_is_asked_may_be_used(cache: Path) -> None:
    for where in ("CacheLookup", "CacheFinalize"):
        for fault in ("error", "digits"):
            try_cache(cache, {"where": where, "fault": fault})
