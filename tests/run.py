"""Run the project's tests the way `make test`, `make test-all` and `.ci/run` do.

    python tests/run.py quick     what needs nothing but pip
    python tests/run.py slow      the rest: beside the real server, programs from npm, compilers, stress
    python tests/run.py sample    of the rest what a change touches, and more by a seed, within a time

Tests run in a few processes, module by module, those first that took longest by `durations.json`.
A test that fails is judged again: alone, once, in a fresh process; what fails twice fails the run. Which were
is said at the end, and which modules take longer than they did then; `.cache/test-runs.jsonl` keeps the runs.
Arguments after `--` go to pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SLOW = ("parity", "stress", "gpu", "emulator", "neighbours", "toolchain")
FOLDERS = ("core/tests", "sdk/tests", "plugins", "tests", "examples")
DURATIONS = Path("tests/durations.json")
HISTORY = Path(".cache/test-runs.jsonl")
LAST_RUNS = 20
LAST_COMMITS = 30  # of main, at most, are the change where there is no branch
PROCESSES = {"quick": 3, "slow": 2, "sample": 2}  # beside each other; quick tests wait for half of their time
MOST_AGAIN = 12  # modules: that many do not fail by chance, but one whose server failed loses all its tests
LIMITS_S = {"quick": 2400, "slow": 5400, "sample": 1800, "again": 1800, "list": 600}
STOP_S = 60
NO_TEST = 5  # pytest's exit status
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # with it each process of a run compiles all its modules anew

BUDGET_S = 420
TOUCHED_SHARE = 0.6  # of the budget, at first
TABLE_SIZE = 150  # of the cases of one test that a sample runs
MODULE_S = 1.0  # to begin a module
TEST_S = 0.5  # of a module that was never measured
RECORDED_S = 0.5  # quick modules that took less are not recorded
KEPT_S = 1.0  # modules of a run that took less are not kept
ONLY_TOUCHED = {"emulator", "toolchain"}  # fetch and compile what is the same until somebody changes it
NEVER_SAMPLED = {"neighbours"}  # download for minutes

# What a change below a folder may break, as beginnings of the paths of slow tests. The longest match counts.
TOUCHES: dict[str, tuple[str, ...]] = {
    "core/src/tritonpy/abi_": ("tests/shared_objects", "plugins/abi", "tests/docs/test_shared_objects"),
    "core/src/tritonpy/cache/": ("tests/cache", "tests/shared_objects/test_caches", "plugins/caches"),
    "core/src/tritonpy/cli/": ("tests/cli", "tests/lifecycle"),
    "core/src/tritonpy/config/": ("tests/configuration", "tests/lifecycle"),
    "core/src/tritonpy/devices/": ("tests/devices", "tests/gpu"),
    "core/src/tritonpy/frontends/": (
        "tests/protocol", "tests/clients", "tests/differential", "tests/fuzz", "core/tests",
    ),
    "core/src/tritonpy/ipc/": ("tests/python_backend", "tests/stress", "tests/shared_objects"),
    "core/src/tritonpy/metrics/": ("tests/observability", "tests/python_backend/test_metrics"),
    "core/src/tritonpy/model/": ("tests/stress", "tests/batching", "tests/python_backend"),
    "core/src/tritonpy/protos/": ("tests/protocol",),
    "core/src/tritonpy/lifecycle/": (
        "tests/lifecycle", "tests/protocol/test_repository", "tests/stress", "tests/devices",
    ),
    "core/src/tritonpy/repository/": ("tests/lifecycle", "tests/protocol/test_repository", "tests/stores"),
    "core/src/tritonpy/scheduler/": ("tests/batching", "tests/sequences", "tests/ensembles", "tests/stress"),
    "core/src/tritonpy/shared_memory/": ("tests/protocol/shared_memory", "tests/gpu"),
    "core/src/tritonpy/tracing/": ("tests/tracing",),
    "core/src/tritonpy/plugin": ("tests/plugins/test_stranger", "tests/protocol", "tests/lifecycle"),
    "core/src/tritonpy/workers/": ("tests/stress", "tests/batching", "tests/python_backend"),
    "core/src/tritonpy/": ("tests/protocol", "tests/lifecycle", "tests/stress"),
    "plugins/abi/": ("plugins/abi", "tests/shared_objects", "tests/plugins", "tests/docs/test_shared"),
    "plugins/backends/python/": ("tests/python_backend", "tests/environments", "tests/stress"),
    "plugins/backends/onnxruntime/": ("tests/devices", "tests/gpu"),
    "plugins/backends/pytorch/": (
        "plugins/backends/pytorch", "tests/gpu", "tests/docs/test_custom_operators",
    ),
    "plugins/backends/litert/": ("plugins/backends/litert", "tests/frameworks"),
    "plugins/backends/tensorflow/": ("plugins/backends/tensorflow", "tests/frameworks"),
    "plugins/batching/": ("tests/examples/test_batching_strategies", "tests/batching"),
    "plugins/caches/": ("plugins/caches", "tests/cache", "tests/docs/test_response_cache"),
    "plugins/cluster/": ("plugins/cluster",),
    "plugins/stores/": ("tests/stores", "plugins/stores"),
    "plugins/repo_agents/": ("tests/lifecycle/test_repo_agents",),
    "plugins/tools/analyze/": ("plugins/tools/analyze", "tests/tools/test_analyze"),
    "plugins/tools/bench/": ("plugins/tools/bench", "tests/clients/test_bench"),
    "sdk/src/tritonpy_sdk/include/": ("plugins/abi", "tests/plugins", "tests/shared_objects"),
    "sdk/src/tritonpy_sdk/template": ("tests/plugins/test_templates", "sdk/tests/test_new"),
    "core/pyproject.toml": ("tests/plugins",),
    "benchmarks/real_triton.py": ("tests/lifecycle", "tests/clients", "tests/protocol"),
    "deploy/": ("tests/deploy",),
    "docs/": ("tests/docs",),
    "examples/": ("tests/examples",),
    "examples/tritonpy-": ("tests/plugins/test_stranger", "sdk/tests/test_new"),
}  # fmt: skip


@dataclass
class Run:
    """What one run of pytest came to.

    Attributes:
        status: its exit status; None if it was ended because it took too long.
        marks: of each test that it was to run, where it told.
        failed: node ids, in the order of their failures.
        ended: node ids of all that have a result.
        unfinished: node ids of those that began and have none.
        unread: modules that could not be read.
        seconds: by node id.
        wall_s: from its begin to its end.
    """

    status: int | None
    marks: dict[str, set[str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    unfinished: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0

    @property
    def module_seconds(self) -> dict[str, float]:
        """How long the tests of each module took together."""
        by_module: dict[str, float] = defaultdict(float)
        for test, taken in self.seconds.items():
            by_module[_module(test)] += taken
        return by_module

    @classmethod
    def from_events(cls, status: int | None, lines: Iterable[str]) -> Run:
        """Put together what the `conftest.py` of the root wrote."""
        run = cls(status)
        open_: dict[str, None] = {}
        for line in lines:
            event = json.loads(line)
            if (test := event.get("collected")) is not None:
                run.marks[test] = set(event["marks"])
            elif (test := event.get("began")) is not None:
                open_[test] = None
            elif (test := event.get("ended")) is not None:
                run.ended.add(test)
                run.seconds[test] = run.seconds.get(test, 0.0) + event["s"]
                if event["outcome"] == "failed" and test not in run.failed:
                    run.failed.append(test)
                if event["when"] not in ("setup", "call"):
                    open_.pop(test, None)
            elif (module := event.get("unread")) is not None and module not in run.unread:
                run.unread.append(module)
        run.unfinished = list(open_)
        return run


@dataclass(frozen=True)
class Sample:
    """The slow tests that one run takes.

    Attributes:
        tests: node ids in the order in which they are to run.
        modules: how many modules those are of.
        seconds: what they took when they were measured, in all processes together.
    """

    tests: tuple[str, ...]
    modules: int
    seconds: float


def main(argv: list[str]) -> int:
    """Run what the command line says; returns the exit status."""
    own, extra = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = argparse.ArgumentParser(description="Run the project's tests.")
    parser.add_argument("kind", choices=("quick", "slow", "sample"))
    parser.add_argument(
        "--marks", default=" or ".join(SLOW), help="of the slow tests only those, as for pytest -m"
    )
    parser.add_argument("--seed", help="of the sample; without it the commit's name")
    parser.add_argument("--since", help="the commit before the change; without it where the branch left main")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, help="how long a sample begins modules")
    parser.add_argument(
        "--processes", type=int, help=f"that run tests beside each other; without it {PROCESSES}"
    )
    parser.add_argument("--record", action="store_true", help=f"write to {DURATIONS} how long modules took")
    options = parser.parse_args(own)
    with tempfile.TemporaryDirectory(prefix="test-run-") as folder:
        processes = options.processes or PROCESSES[options.kind]
        runner = Runner(Path(folder), extra, processes=processes, record=options.record)
        if options.kind == "quick":
            return runner.quick()
        found = runner.find(options.marks)
        if found.status != 0:
            print("there is no such test" if found.status == NO_TEST else "not all tests could be read")
            return found.status or 1
        if options.kind == "slow":
            return runner.slow(found.marks)
        seed = options.seed or _git("rev-parse", "--short=12", "HEAD") or "none"
        since = options.since or merge_base()
        return runner.sample(found.marks, seed, since, options.budget_s)


class Runner:
    """Runs pytest once, and again for what failed.

    Args:
        folder: for files that pytest and this program hand each other.
        extra: further arguments of pytest.
        processes: how many run tests beside each other.
        record: whether to write down how long modules took.
    """

    def __init__(self, folder: Path, extra: Sequence[str], *, processes: int, record: bool) -> None:
        self._folder = folder
        self._processes = processes
        self._extra = extra
        self._record = record
        self._durations: dict[str, dict[str, float]] = {"quick": {}, "slow": {}}
        if DURATIONS.exists():
            self._durations.update(json.loads(DURATIONS.read_text()))

    def quick(self) -> int:
        """Run all that is not slow."""
        longest = self._folder / "longest.json"
        longest.write_text(json.dumps(self._durations["quick"]))
        without = [f"--ignore={path}" for path in wholly_slow(Path())]
        return self._run("quick", f"--longest-first={longest}", *without, "-m", f"not ({' or '.join(SLOW)})")

    def find(self, marks: str) -> Run:
        """Ask pytest which tests have such marks, and once more for all to see if it cannot read them all."""
        asked = ("list", "--collect-only", "-qq", "-m", marks)
        found = self._pytest(*asked, is_quiet=True)
        return found if found.status in (0, NO_TEST) else self._pytest(*asked)

    def slow(self, marks: Mapping[str, set[str]]) -> int:
        """Run these tests, those of the longest module first."""
        seconds = self._durations["slow"]
        tests = sorted(marks, key=lambda test: -seconds.get(_module(test), 0.0))
        return self._run("slow", *self._planned(tests))

    def sample(self, marks: Mapping[str, set[str]], seed: str, since: str, budget_s: float) -> int:
        """Run some of these tests."""
        changed = changed_files(since)
        touched = touched_modules({_module(test) for test in marks}, changed)
        chosen = choose(marks, self._durations["slow"], touched, seed, self._processes * budget_s)
        notes = [
            f"slow tests, sampled with seed {seed}: {len(chosen.tests)} of {len(marks)}, in {chosen.modules} "
            f"modules, which took {chosen.seconds:.0f} s in all when they were measured",
            f"{len(changed)} files changed since {since or 'nothing'}, which touch {len(touched)} modules",
            f"the same again: python tests/run.py sample --seed {seed} --since {since or 'HEAD'}",
        ]
        print(*notes, sep="\n", flush=True)
        if not chosen.tests:
            return 0
        said = [f"--note={note}" for note in notes]
        return self._run("sample", f"--begin-within-s={budget_s}", *said, *self._planned(chosen.tests))

    def _planned(self, tests: Sequence[str]) -> list[str]:
        plan = self._folder / "plan"
        plan.write_text("\n".join(tests))
        return [f"--plan={plan}", *dict.fromkeys(map(_module, tests))]

    def _run(self, kind: str, *arguments: str) -> int:
        """Run pytest in some processes, and judge again what fails."""
        spread = [f"-n{self._processes}", "--dist=loadfile", "--no-loadscope-reorder"]
        first = self._pytest(kind, *spread, *arguments)
        if self._record and first.status in (0, 1):
            self._write_durations("quick" if kind == "quick" else "slow", first.module_seconds)
        return judge(first, self._again, kind)

    def _again(self, tests: Sequence[str], notes: Sequence[str]) -> Run:
        said = [f"--note={note}" for note in notes]
        return self._pytest("again", "-n0", "--again", *said, *self._planned(tests))

    def _pytest(self, kind: str, *arguments: str, is_quiet: bool = False) -> Run:
        """Run pytest to its end, or to the end of our patience."""
        results = self._folder / f"{kind}.jsonl"
        told = [f"--results={results}", "-rfExX"]  # what is skipped is told by reason, at the end
        command = [sys.executable, "-m", "pytest", *told, *self._extra, *arguments]
        environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
        began = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL if is_quiet else None)
        status: int | None
        try:
            status = process.wait(LIMITS_S[kind])
        except subprocess.TimeoutExpired:
            status = None
            print(
                f"\nafter {LIMITS_S[kind]} s the tests have not come to their end; they are ended", flush=True
            )
            _end(process)
        except KeyboardInterrupt:  # pytest has got it too
            _end(process)
            raise
        run = Run.from_events(status, results.read_text().splitlines() if results.exists() else ())
        run.wall_s = time.monotonic() - began
        return run

    def _write_durations(self, kind: str, by_module: Mapping[str, float]) -> None:
        """Replace what is recorded of the modules that ran; what takes no time is not worth a line."""
        recorded = {name: s for name, s in self._durations[kind].items() if Path(name).exists()}
        recorded.update((name, round(s, 1)) for name, s in by_module.items())
        least_s = RECORDED_S if kind == "quick" else 0.0
        self._durations[kind] = dict(sorted((name, s) for name, s in recorded.items() if s >= least_s))
        DURATIONS.write_text(json.dumps(self._durations, indent=1) + "\n")


def judge(first: Run, again: Callable[[Sequence[str], Sequence[str]], Run], kind: str) -> int:
    """The exit status of a run: what failed in it is judged by a second run, of it alone.

    Args:
        first: the run.
        again: runs tests, given as node ids, one after the other in a fresh process, and says some lines.
        kind: of the run, for the record.
    """
    if first.status is None:
        print("these had begun and had not ended:", *first.unfinished, sep="\n  ")
        return 1
    verdicts: dict[str, str] = {}
    status = first.status
    if status == 1 and first.failed and not first.unread and not first.unfinished:
        count = len({_module(test) for test in first.failed})
        if count > MOST_AGAIN:
            print(f"{count} modules failed: more than {MOST_AGAIN} is no chance; none is judged again")
        else:
            print(f"\n{len(first.failed)} failed and are judged again, each once, alone:", flush=True)
            notes = [_known(test) for test in first.failed]
            print(*notes, sep="\n", flush=True)
            second = again(first.failed, notes)
            status = 1 if second.status is None else second.status
            if not status and not second.ended.issuperset(first.failed):
                print("not all of them ran the second time")
                status = 1
            failed = set(second.failed) | (set(first.failed) - second.ended)
            verdicts = {test: "failed" if test in failed else "passed" for test in first.failed}
    _keep(kind, verdicts, first)
    return status


def choose(
    marks: Mapping[str, set[str]],
    durations: Mapping[str, float],
    touched: Iterable[str],
    seed: str,
    budget_s: float,
) -> Sample:
    """Choose the tests of a sample.

    First come modules that a change touches, in an order made from the seed, up to a share of the budget;
    then the others, and the rest of the first, as long as they fit. Of a test with very many cases it takes
    some.

    Args:
        marks: by node id, of all slow tests.
        durations: seconds by module.
        touched: modules.
        seed: the same one gives the same sample.
        budget_s: for all processes together.
    """
    chance = random.Random(seed)
    touched = set(touched)
    by_module: dict[str, list[str]] = defaultdict(list)
    for test, its in marks.items():
        if not NEVER_SAMPLED & its and (not ONLY_TOUCHED & its or _module(test) in touched):
            by_module[_module(test)].append(test)
    names = sorted(by_module)
    chance.shuffle(names)
    first = [name for name in names if name in touched]
    rest = [name for name in names if name not in touched]
    left_s, taken, costs = budget_s, {}, {}
    shares = [(first, TOUCHED_SHARE), (rest, 1.0), (first, 1.0)]
    for modules, share in shares:
        for name in modules:
            tests = _some(by_module[name], chance) if name not in taken else []
            whole_s = durations.get(name, TEST_S * len(by_module[name]))
            cost_s = MODULE_S + whole_s * len(tests) / len(by_module[name])
            if tests and budget_s - left_s + cost_s <= share * budget_s:
                taken[name], costs[name] = tests, cost_s
                left_s -= cost_s
    ordered = sorted(taken, key=lambda name: -costs[name])
    return Sample(tuple(test for name in ordered for test in taken[name]), len(taken), budget_s - left_s)


def _some(tests: Sequence[str], chance: random.Random) -> list[str]:
    """Of each test that has more than `TABLE_SIZE` cases only that many, in their order."""
    cases: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        cases[test.partition("[")[0]].append(test)
    kept = {
        test
        for table in cases.values()
        for test in (table if len(table) <= TABLE_SIZE else chance.sample(table, TABLE_SIZE))
    }
    return [test for test in tests if test in kept]


def touched_modules(modules: Iterable[str], changed: Iterable[str]) -> set[str]:
    """The modules of slow tests that a change of these files may break."""
    beginnings: set[str] = set()
    for path in changed:
        if "tests/" in path and not Path(path).name.startswith("test_"):
            beginnings.add(f"{Path(path).parent}/")
        matches = [folder for folder in TOUCHES if path.startswith(folder)]
        if matches:
            beginnings.update(TOUCHES[max(matches, key=len)])
    everything = {"tests/", "core/tests/"}  # what all tests share says nothing of one
    return {name for name in modules if name in changed or any(map(name.startswith, beginnings - everything))}


def merge_base() -> str:
    """The commit from which the change went out; on main itself one before its last commits of a day."""
    head = _git("rev-parse", "HEAD")
    for main_ in ("origin/main", "main"):
        base = _git("merge-base", "HEAD", main_)
        if base and base != head:
            return base[:12]
    day_ago = int(_git("log", "-1", "--format=%ct") or time.time()) - 24 * 3600
    last = _git("rev-list", f"--max-count={LAST_COMMITS}", f"--since={day_ago}", "HEAD").splitlines()
    return _git("rev-parse", "--short=12", f"{last[-1]}^") if last else ""


def changed_files(since: str) -> list[str]:
    """The files that differ from that commit, in the working tree too."""
    if not since:
        return []
    return sorted({*_git("diff", "--name-only", since).splitlines()} - {""})


def wholly_slow(root: Path) -> list[str]:
    """The modules that say of all their tests at once that they are slow, in one line."""
    line = re.compile(rf"^pytestmark = (\[)?pytest\.mark\.({'|'.join(SLOW)})\b", re.MULTILINE)
    found = (path for folder in FOLDERS for path in (root / folder).rglob("test_*.py"))
    return sorted(str(path) for path in found if line.search(path.read_text()))


def _known(test: str) -> str:
    """A test's name, with how often it was judged again in the last runs."""
    lines = HISTORY.read_text().splitlines()[-LAST_RUNS:] if HISTORY.exists() else []
    times = sum(test in json.loads(line)["again"] for line in lines)
    return f"{test} (also in {times} of the last {len(lines)} runs: mend it)" if times else test


def _keep(kind: str, verdicts: Mapping[str, str], run: Run) -> None:
    """Add a run to the record."""
    HISTORY.parent.mkdir(exist_ok=True)
    commit = _git("rev-parse", "--short=12", "HEAD")
    entry = {"at": round(time.time()), "commit": commit, "kind": kind, "again": verdicts}
    entry["wall_s"] = round(run.wall_s, 1)
    entry["modules_s"] = {name: round(s, 1) for name, s in run.module_seconds.items() if s >= KEPT_S}
    with HISTORY.open("a") as file:
        print(json.dumps(entry), file=file)


def _git(*arguments: str) -> str:
    """What git prints; nothing where there is no git, or no such commit."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let it end as after Ctrl-C, so that servers are stopped; then end it."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _module(test: str) -> str:
    return test.partition("::")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
