"""Which tests of a run are run, in what order and for how long: what `tests/run.py` asks of pytest.

A run of pytest by hand needs none of these options, and goes as pytest goes.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

_WRITES_NO_BYTECODE = sys.dont_write_bytecode
_RUNNING_GC = gc.get_threshold()
COLLECTING_GC = 100_000, 50, 1_000
MODULES_NAMED = 3
GROWN_S, GROWN_RATIO = 2.0, 1.5  # a module takes longer if it does by that much and by that factor
PACED_S = 1.0  # recorded modules by which it is told how fast this machine is
MOST_GROWN = 10  # are named
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # of glibc's malloc.h
KNOWN_MIB = 400  # of a process below this nothing is said about its modules


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("runs")
    group.addoption("--plan", metavar="FILE", help="run what FILE lists, in its order: a node id a line")
    group.addoption(
        "--longest-first",
        metavar="FILE",
        help="JSON: seconds by module; the longest module first, and name those that take longer",
    )
    group.addoption("--begin-within-s", type=float, metavar="S", help="begin no module after that time")
    group.addoption("--results", metavar="FILE", help="write a line of JSON there for all that happens")
    group.addoption("--again", action="store_true", help="name what passes: it has failed before")
    group.addoption("--note", action="append", default=[], help="say it before pytest's last line")


def pytest_configure(config: pytest.Config) -> None:
    """Give each process what it has to do: workers run tests, the first process keeps the results.

    Interrupts reach what tests start: a run in the background ignores them, as its children would.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return_large_blocks_at_once()
    # For what tests start: other threads of numpy, once it is imported, look for work for a while.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    config.pluginmanager.register(Selection(config.option), "runs-selection")
    config.pluginmanager.register(Limits(config), "runs-limits")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Results(config.option), "runs-results")


def pytest_collection() -> None:
    """Keep the bytecode of tests whatever the environment says: to make it takes longer than to read it.

    And look for garbage seldom: nearly all that is made now lives until the end.
    """
    sys.dont_write_bytecode = False
    gc.set_threshold(*COLLECTING_GC)


def pytest_collection_finish() -> None:
    """Write none of what tests make, if the environment says so."""
    sys.dont_write_bytecode = _WRITES_NO_BYTECODE
    gc.set_threshold(*_RUNNING_GC)


class Selection:
    """Leaves out tests and puts the others in order."""

    def __init__(self, options: Any) -> None:
        self._plan: str | None = options.plan
        self._durations: str | None = options.longest_first

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep what the plan lists; all processes of one run come to the same list."""
        if self._plan:
            place = {line: number for number, line in enumerate(Path(self._plan).read_text().splitlines())}
            left_out = [item for item in items if item.nodeid not in place]
            items[:] = sorted(
                (item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid]
            )
            config.hook.pytest_deselected(items=left_out)
        elif self._durations:
            seconds: dict[str, float] = json.loads(Path(self._durations).read_text())
            items.sort(key=lambda item: -seconds.get(_module(item.nodeid), 0.0))


class Limits:
    """Begins no module when the time is up, and measures the memory of the process that runs tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._limit_s: float | None = config.option.begin_within_s
        self._began = time.monotonic()
        self._module = ""
        self._peak_mib = 0
        self._grown: dict[str, int] = {}
        self._passed_over = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Pass over a test of a module that is not begun any more: it gets no result."""
        module = _module(item.nodeid)
        if module == self._module:
            return None
        if self._limit_s is not None and time.monotonic() - self._began > self._limit_s:
            self._passed_over += 1
            return True
        self._measure()
        self._module = module
        keep_what_lives()
        give_back_memory()
        return None

    def _measure(self) -> None:
        """Add to the module that ends what the process's peak has grown meanwhile."""
        peak_mib = peak_rss_mib()
        if peak_mib > self._peak_mib and self._module:
            self._grown[self._module] = peak_mib - self._peak_mib
        self._peak_mib = peak_mib

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Hand the peak to the process that keeps the results."""
        self._measure()
        most = sorted(self._grown.items(), key=lambda entry: -entry[1])[:MODULES_NAMED]
        peak = {"peak_mib": self._peak_mib, "grown": dict(most), "passed_over": self._passed_over}
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["runs"] = peak
        elif self._module or self._passed_over:  # one with workers runs no tests
            results = self._config.pluginmanager.get_plugin("runs-results")
            assert results is not None
            results.processes.append(peak)


class Results:
    """Writes down what happens, for the program that started pytest, and ends with the notes it was given."""

    def __init__(self, options: Any) -> None:
        self.processes: list[dict[str, Any]] = []
        self._notes: list[str] = options.note
        self._recorded: dict[str, float] = {}
        if options.longest_first:
            self._recorded.update(json.loads(Path(options.longest_first).read_text()))
        self._seconds: dict[str, float] = defaultdict(float)
        self._is_again: bool = options.again
        self._file: IO[str] | None = None
        if options.results:
            self._file = Path(options.results).open("w", buffering=1)  # noqa: SIM115 open until pytest ends

    def _write(self, **event: object) -> None:
        if self._file is not None:
            print(json.dumps(event), file=self._file)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write down what there is to run, with the marks of each test."""
        for item in session.items:
            self._write(collected=item.nodeid, marks=sorted({mark.name for mark in item.iter_markers()}))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write down which module could not be read."""
        if report.failed:
            self._write(unread=report.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write down which test begins."""
        self._write(began=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write down a phase of a test; the one of a process that died has no phase."""
        seconds = round(report.duration, 3)
        self._seconds[_module(report.nodeid)] += report.duration
        self._write(ended=report.nodeid, when=report.when, outcome=report.outcome, s=seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the peak of a worker that has ended; one that died has none."""
        output = getattr(node, "workeroutput", None) or {}
        if "runs" in output:
            self.processes.append(output["runs"])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Iterator[None]:
        """Say what is to be said between pytest's lists and its last line."""
        yield
        notes = [*self._notes]
        if self._is_again:
            passed = [report.nodeid for report in terminalreporter.stats.get("passed", ())]
            notes = [f"judged again, alone: {len(passed)} of {len(notes)} passed the second time", *notes]
        if passed_over := sum(process["passed_over"] for process in self.processes):
            notes.append(f"{passed_over} tests were not begun: the time was up")
        if self._file is not None and any(process["peak_mib"] for process in self.processes):
            peaks = ", ".join(f"{process['peak_mib']} MiB" for process in self.processes)
            notes.append(f"most memory of each process that ran tests: {peaks}")
        for process in self.processes:
            self._write(peak_mib=process["peak_mib"])
            if process["peak_mib"] > KNOWN_MIB:
                grown = ", ".join(f"{module} {mib}" for module, mib in process["grown"].items())
                notes.append(f"of {process['peak_mib']} MiB by module: {grown}")
        if self._file is not None:
            notes += skip_reasons(terminalreporter.stats.get("skipped", ()))
        notes += slower_modules(self._seconds, self._recorded)
        if notes:
            terminalreporter.section("this run")
        for note in notes:
            terminalreporter.line(note)


def skip_reasons(reports: Iterable[Any]) -> list[str]:
    """Say for each reason how many tests it made skipped, and of which module, or of how many."""
    modules: dict[str, list[str]] = defaultdict(list)
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        modules[reason.removeprefix("Skipped: ")].append(_module(report.nodeid))
    told = []
    for reason, names in sorted(modules.items(), key=lambda item: -len(item[1])):
        where = names[0] if len({*names}) == 1 else f"{len({*names})} modules"
        told.append(f"skipped {len(names)} of {where}: {reason}")
    return told


def slower_modules(seconds: dict[str, float], recorded: dict[str, float]) -> list[str]:
    """Name the modules that take longer than is recorded, at the pace of this run, or are not recorded.

    Args:
        seconds: of the modules that ran.
        recorded: of those that ran when it was recorded; without any, none is named.
    """
    if not recorded:
        return []
    ratios = [seconds[name] / s for name, s in recorded.items() if s >= PACED_S and name in seconds]
    pace = statistics.median(ratios) if ratios else 1.0
    more = {name: s / pace - recorded.get(name, 0.0) for name, s in seconds.items()}
    longer = [
        name
        for name in sorted(more, key=lambda name: -more[name])
        if more[name] > GROWN_S and seconds[name] / pace > GROWN_RATIO * recorded.get(name, 0.0)
    ]
    return [
        f"{name} takes {seconds[name] / pace:.1f} s, recorded are {recorded.get(name, 0.0):.1f} s"
        for name in longer[:MOST_GROWN]
    ]


def peak_rss_mib() -> int:
    """The most physical memory that this process has had, in MiB; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def return_large_blocks_at_once() -> None:
    """Let the allocator map what is large by itself, so that it goes back to the system when it is freed.

    Otherwise glibc keeps blocks of up to 32 MiB once it has seen some, in an arena for each few threads: the
    servers of many tests would leave hundreds of MiB. Processes that tests start are as they always are.
    """
    if hasattr(_LIBC, "mallopt"):
        for parameter, value in ((M_MMAP_THRESHOLD, 128 << 10), (M_ARENA_MAX, 2)):
            _LIBC.mallopt(parameter, value)


def keep_what_lives() -> None:
    """Let collections pass over what is alive between two modules: who asks for one pays for their own.

    Thousands of tests live until the end, and with PyTorch so many objects that one collection takes 0.2 s.
    """
    gc.collect()
    gc.freeze()


def give_back_memory() -> None:
    """Let the allocator return what the tests before have freed, so that their peaks do not add up."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def _module(nodeid: str) -> str:
    return nodeid.partition("::")[0]
