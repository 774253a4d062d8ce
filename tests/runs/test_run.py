"""How the project's tests are run: what is chosen, and that chance is told from fault."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from .. import run
from ..run import Run, Sample, choose, judge, touched_modules, wholly_slow

ROOT = Path(__file__).parents[2]
PARITY = {"parity"}
BARE = ("-p", "xdist.plugin")  # of all plugins


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own, as the current directory."""
    shutil.copy(ROOT / "conftest.py", tmp_path)
    marks = "".join(f"  {mark}\n" for mark in run.SLOW)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = -ra --strict-markers\nmarkers =\n{marks}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


def run_tests(*arguments: str) -> subprocess.CompletedProcess[str]:
    few = () if "--processes" in arguments else ("--processes", "1")  # each takes its time to start
    command = [sys.executable, str(ROOT / "tests" / "run.py"), *arguments, *few, "--", *BARE]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


ONCE = """
from pathlib import Path
import os

def is_first(name):
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def test_by_chance():
    assert not is_first("chance")

def test_fine():
    pass
"""
CRASH = ONCE.replace('assert not is_first("chance")', 'is_first("crash") and os._exit(1)')


def test_what_fails_once_and_what_a_dying_process_was_at_is_judged_again(project: Path) -> None:
    (project / "test_chance.py").write_text(ONCE)
    (project / "test_crash.py").write_text(CRASH)

    done = run_tests("quick", "--processes", "2")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 failed and are judged again, each once, alone:" in done.stdout
    assert "judged again, alone: 2 of 2 passed the second time" in done.stdout
    *_, first, second, _memory, last = filter(None, done.stdout.splitlines())
    assert {first, second} == {"test_chance.py::test_by_chance", "test_crash.py::test_by_chance"}
    assert "2 passed" in last  # pytest's own
    [kept] = run.HISTORY.read_text().splitlines()
    assert json.loads(kept)["again"] == {
        "test_chance.py::test_by_chance": "passed",
        "test_crash.py::test_by_chance": "passed",
    }
    assert json.loads(kept)["wall_s"] > 0
    assert json.loads(kept)["modules_s"] == {}  # they take no time


def test_what_fails_twice_fails_the_run(project: Path) -> None:
    (project / "test_fault.py").write_text(ONCE.replace("not is_first", "is_first"))
    (project / "chance").touch()

    done = run_tests("quick")

    assert done.returncode == 1
    assert "judged again, alone: 0 of 1 passed the second time" in done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]


def test_a_module_that_cannot_be_read_fails_the_run(project: Path) -> None:
    (project / "test_unread.py").write_text("import nothing_of_that_name\n")
    (project / "test_fine.py").write_text("def test_fine(): pass\n")

    done = run_tests("quick")

    assert done.returncode not in (0, 5)
    assert "nothing_of_that_name" in done.stdout
    assert "judged again" not in done.stdout


@pytest.mark.parametrize("kind", ["slow", "sample"])
def test_a_module_of_slow_tests_that_cannot_be_read_does_too(project: Path, kind: str) -> None:
    (project / "test_unread.py").write_text("import nothing_of_that_name\n")
    (project / "test_a.py").write_text(SLOW)

    done = run_tests(kind)

    assert done.returncode not in (0, 5)
    assert "nothing_of_that_name" in done.stdout
    assert "1 passed" not in done.stdout


SLOW = """
import pytest

@pytest.mark.stress
def test_slow():
    pass

def test_quick():
    assert False
"""


def test_a_sample_runs_slow_tests_and_says_how_to_run_them_again(project: Path) -> None:
    (project / "test_a.py").write_text(SLOW)
    (project / "test_b.py").write_text(SLOW)

    done = run_tests("sample", "--seed", "here")

    assert done.returncode == 0, done.stdout
    assert "slow tests, sampled with seed here: 2 of 2, in 2 modules" in done.stdout
    assert "python tests/run.py sample --seed here --since" in done.stdout
    assert "2 passed" in done.stdout.splitlines()[-1]


def test_no_module_is_begun_when_the_time_is_up(project: Path) -> None:
    (project / "test_a.py").write_text(SLOW)
    command = [sys.executable, "-m", "pytest", *BARE, "-m", "stress", "--begin-within-s=-1", "-n1"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stdout
    assert "1 tests were not begun: the time was up" in done.stdout


def _judged(first: Run, *second: Run) -> tuple[int, list[list[str]]]:
    asked: list[list[str]] = []

    def again(tests: Sequence[str], notes: Sequence[str]) -> Run:
        asked.append(list(tests))
        return second[len(asked) - 1]

    return judge(first, again, "quick"), asked


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("alone")
class TestJudge:
    def test_a_good_run_is_not_judged_again(self) -> None:
        assert _judged(Run(0, ended={"a"})) == (0, [])

    def test_the_second_run_decides(self) -> None:
        first = Run(1, failed=["a"], ended={"a", "b"})

        assert _judged(first, Run(0, ended={"a"})) == (0, [["a"]])
        assert _judged(first, Run(1, failed=["a"], ended={"a"})) == (1, [["a"]])

    def test_all_that_a_server_of_one_module_made_fail_is_judged_again(self) -> None:
        tests = [f"test_a.py::test_it[{n}]" for n in range(2 * run.MOST_AGAIN)]

        assert _judged(Run(1, failed=tests, ended=set(tests)), Run(0, ended=set(tests))) == (0, [tests])

    def test_a_test_that_does_not_come_to_its_end_the_second_time_has_failed(self) -> None:
        first = Run(1, failed=["a", "b"], ended={"a", "b"})

        assert _judged(first, Run(None, ended={"a"}))[0] == 1
        assert _judged(first, Run(0, ended={"a"}))[0] == 1

    @pytest.mark.parametrize(
        "first",
        [
            pytest.param(Run(3), id="an error of pytest's own"),
            pytest.param(Run(2, unread=["a"]), id="unread"),
            pytest.param(Run(1, failed=["a"], unread=["b"]), id="unread beside a failure"),
            pytest.param(Run(1), id="failed and does not say why"),
            pytest.param(Run(1, failed=["a"], unfinished=["b"]), id="unfinished"),
            pytest.param(Run(None, failed=["a"]), id="ended by us"),
            pytest.param(Run(5), id="no test"),
            pytest.param(Run(1, failed=[str(n) for n in range(run.MOST_AGAIN + 1)]), id="too many"),
        ],
    )
    def test_what_is_no_failure_of_few_tests_is_not_judged_again(self, first: Run) -> None:
        status, asked = _judged(first)

        assert status != 0
        assert asked == []

    def test_a_test_that_needed_it_before_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        first = Run(1, failed=["a"], ended={"a"})
        for _ in range(3):
            _judged(first, Run(0, ended={"a"}))

        assert "a (also in 2 of the last 2 runs: mend it)" in capsys.readouterr().out


RECORDED = {"steady": 4.0, "also": 3.0, "third": 5.0, "slower": 6.0, "gone": 8.0}
NEW = "new takes 3.0 s, recorded are 0.0 s"


def root_conftest() -> Any:  # Any: a module
    spec = importlib.util.spec_from_file_location("root_conftest", ROOT / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    return conftest


@pytest.mark.parametrize(
    ("taken", "named"),
    [
        (RECORDED | {"slower": 12.0, "steady": 5.9}, ["slower takes 12.0 s, recorded are 6.0 s"]),
        (RECORDED | {"new": 3.0, "small": 1.9}, [NEW]),
        ({name: 3 * s for name, s in RECORDED.items()}, []),  # a slower machine
        ({name: 3 * s for name, s in (RECORDED | {"new": 3.0}).items()}, [NEW]),
    ],
)
def test_modules_that_take_longer_than_is_recorded_are_named(
    taken: dict[str, float], named: list[str]
) -> None:
    conftest = root_conftest()

    assert conftest.slower_modules(taken, RECORDED) == named
    assert conftest.slower_modules(taken, {}) == []


def test_what_is_skipped_is_told_by_reason(project: Path) -> None:
    skips = "import pytest\n@pytest.mark.parametrize('n', range(3))\ndef test(n): pytest.skip('no moon')\n"
    alone = "import pytest\n@pytest.mark.skipif(True, reason='alone')\ndef test_alone(): pass\n"
    (project / "test_a.py").write_text(skips)
    (project / "test_b.py").write_text(skips + alone)

    done = run_tests("quick")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped 6 of 2 modules: no moon\nskipped 1 of test_b.py: alone\n" in done.stdout
    assert "SKIPPED" not in done.stdout


def test_events_are_put_together() -> None:
    events = [
        {"began": "a"},
        {"ended": "a", "when": "setup", "outcome": "passed", "s": 1},
        {"ended": "a", "when": "call", "outcome": "passed", "s": 2},
        {"ended": "a", "when": "teardown", "outcome": "failed", "s": 3},
        {"began": "b"},
        {"ended": "b", "when": "???", "outcome": "failed", "s": 0},  # its process died
        {"began": "c"},
    ]

    found = Run.from_events(1, map(json.dumps, events))

    assert found.failed == ["a", "b"]
    assert found.unfinished == ["c"]
    assert found.seconds["a"] == 6


MARKS = {f"tests/{name}/test_{name}.py::test_it[{n}]": PARITY for name in "abcdef" for n in range(10)}
SECONDS = {f"tests/{name}/test_{name}.py": 9.0 for name in "abcdef"}


class TestChoose:
    def choose(self, *touched: str, seed: str = "1", budget_s: float = 31.0) -> Sample:
        return choose(MARKS, SECONDS, touched, seed, budget_s)

    def test_a_sample_fits_its_budget(self) -> None:
        sample = self.choose()

        assert (sample.modules, len(sample.tests), sample.seconds) == (3, 30, 30.0)

    def test_the_same_seed_gives_the_same_sample_and_another_one_another(self) -> None:
        assert self.choose() == self.choose()
        assert len({self.choose(seed=str(seed)).tests for seed in range(10)}) > 1

    def test_all_is_run_where_there_is_time(self) -> None:
        assert set(self.choose(budget_s=1000).tests) == set(MARKS)

    def test_what_a_change_touches_is_always_in_it(self) -> None:
        for seed in range(10):
            assert any("/a/" in test for test in self.choose("tests/a/test_a.py", seed=str(seed)).tests)

    def test_what_a_change_touches_leaves_room_for_others(self) -> None:
        touched = {f"tests/{name}/test_{name}.py" for name in "abc"}

        assert any(test[6] in "def" for test in self.choose(*touched).tests)

    def test_of_very_many_cases_it_takes_some(self) -> None:
        table = {f"tests/a.py::test_table[{n}]": PARITY for n in range(5 * run.TABLE_SIZE)}

        sample = choose({**table, "tests/a.py::test_other": PARITY}, {"tests/a.py": 1000.0}, [], "1", 900)

        assert len(sample.tests) == run.TABLE_SIZE + 1
        assert list(sample.tests) == sorted(sample.tests, key=[*table, "tests/a.py::test_other"].index)
        assert 150 < sample.seconds < 250

    def test_what_compiles_is_for_changes_of_what_it_compiles(self) -> None:
        marks = {"tests/w/test_w.py::test_wheel": {"toolchain"}}

        assert choose(marks, {}, [], "1", 100).tests == ()
        assert choose(marks, {}, ["tests/w/test_w.py"], "1", 100).tests == tuple(marks)

    def test_what_downloads_for_minutes_is_in_none(self) -> None:
        marks = {"tests/n/test_n.py::test_neighbour": {"neighbours"}}

        assert choose(marks, {}, ["tests/n/test_n.py"], "1", 100).tests == ()


MODULES = (
    "tests/cache/test_response_cache.py",
    "tests/protocol/test_routes.py",
    "tests/protocol/shared_memory/test_answers.py",
    "plugins/abi/tests/test_sanitizers.py",
)


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("tests/protocol/test_routes.py", {1}),
        ("tests/protocol/conftest.py", {1, 2}),
        ("core/src/tritonpy/cache/local.py", {0}),
        ("core/src/tritonpy/frontends/http/router.py", {1, 2}),
        ("core/src/tritonpy/shared_memory/regions.py", {2}),
        ("plugins/abi/src/tritonpy_abi/csrc/server.cc", {3}),
        ("sdk/src/tritonpy_sdk/include/tritonserver.h", {3}),
        ("tests/conftest.py", set()),
        ("README.md", set()),
    ],
)
def test_a_change_touches_the_tests_of_its_folder(changed: str, touched: set[int]) -> None:
    assert touched_modules(MODULES, [changed]) == {MODULES[number] for number in touched}


def test_a_change_begins_where_its_branch_left_main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@t")
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def commit(name: str) -> str:
        (tmp_path / name).touch()
        git("add", name)
        git("commit", "-qm", name)
        return git("rev-parse", "HEAD")[:12]

    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    first, second = commit("a"), commit("b")

    assert run.merge_base() == ""  # all is of one day
    monkeypatch.setattr(run, "LAST_COMMITS", 1)
    assert run.merge_base() == first
    git("checkout", "-qb", "topic")
    commit("c")
    assert run.merge_base() == second
    assert run.changed_files(second) == ["c"]
    assert run.changed_files("") == []


def test_whatever_may_be_touched_is_there() -> None:
    for folder, tests in run.TOUCHES.items():
        assert list(ROOT.glob(f"{folder}*")) or (ROOT / folder).exists(), folder
        for test in tests:
            assert list(ROOT.glob(f"{test}*")), test


def test_modules_that_are_wholly_slow_say_so_in_one_line(tmp_path: Path) -> None:
    tests = tmp_path / "tests" / "a"
    tests.mkdir(parents=True)
    (tests / "test_a.py").write_text("pytestmark = pytest.mark.stress\n")
    (tests / "test_b.py").write_text("pytestmark = [pytest.mark.parity, pytest.mark.timeout(180)]\n")
    (tests / "test_c.py").write_text("pytestmark = pytest.mark.skipif(True, reason='stress')\n")

    assert wholly_slow(tmp_path) == [str(tests / "test_a.py"), str(tests / "test_b.py")]


def test_the_record_names_modules_that_there_are() -> None:
    recorded: dict[str, dict[str, float]] = json.loads((ROOT / run.DURATIONS).read_text())

    assert set(recorded) == {"quick", "slow"}
    assert [name for kind in recorded.values() for name in kind if not (ROOT / name).exists()] == []
