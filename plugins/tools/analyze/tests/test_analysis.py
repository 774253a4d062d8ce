"""An analysis keeps what it has measured, goes on from there, and lives with configurations that fail."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy_analyze import searches
from tritonpy_analyze.analysis import Analysis, Analyzer, Trial, frontier, trial_of
from tritonpy_analyze.cases import cases
from tritonpy_analyze.checkpoint import Checkpoint
from tritonpy_analyze.goal import WORST, Constraint, Goal, parse_constraint
from tritonpy_analyze.histogram import Histogram
from tritonpy_analyze.measurement import Window
from tritonpy_analyze.ranking import note
from tritonpy_analyze.report import html_report
from tritonpy_analyze.simulated import SimulatedModel, SimulatedServer
from tritonpy_analyze.space import Choice, Dimension, Space, Value
from tritonpy_analyze.stopping import Looks
from tritonpy_analyze.trial import NothingAnswered

SPACE = Space([Dimension("m.instances", (1, 2, 3)), Dimension("concurrency", (1, 2))])
SUBJECT = {"models": ["m"]}
BOUNDS = ("failed", "unanswered")


class FakeServer:
    """Serves `instances × 100 + concurrency` a second; satisfies `Launcher` and `Target`."""

    def __init__(self, *, fails_at: int = 0, interrupted_after: int = 1 << 30) -> None:
        self.opened: list[Value] = []
        self.closed = 0
        self.measured: list[tuple[Value, Value]] = []
        self._fails_at = fails_at
        self._interrupted_after = interrupted_after

    @contextmanager
    def open(self, choice: Choice) -> Iterator[FakeServer]:
        if choice["m.instances"] == self._fails_at:
            raise InvalidArg("no room for so many instances")
        self.opened.append(choice["m.instances"])
        try:
            yield self
        finally:
            self.closed += 1

    def measure(self, load: Mapping[str, Value], seconds: float) -> Window:
        if len(self.measured) == self._interrupted_after:
            raise KeyboardInterrupt
        self.measured.append((self.opened[-1], load["concurrency"]))
        rate = int(str(self.opened[-1])) * 100 + int(str(load["concurrency"]))
        return Window(1.0, rate, latency=Histogram.of([1000.0 * rate]), batch_sizes={1: rate})


def analyzer(server: FakeServer, checkpoint: Checkpoint | None = None) -> Analyzer:
    return Analyzer(SPACE, Goal(), server, looks=Looks(1, 1), checkpoint=checkpoint)


@pytest.mark.parametrize(("least_s", "error"), [(1.0, ""), (1.5, "measure longer (--window)")])
def test_a_warm_up_without_an_answer_is_no_error_and_a_window_is(least_s: float, error: str) -> None:
    class Slow(FakeServer):
        def measure(self, load: Mapping[str, Value], seconds: float) -> Window:
            if seconds < least_s:
                raise NothingAnswered("measure longer (--window)")
            return super().measure(load, seconds)

    trying = Analyzer(SPACE, Goal(), Slow(), looks=Looks(1, 1), window_s=1.0, warm_up_s=0.5)

    assert {trial.error for trial in trying.run(searches.brute(SPACE)).trials} == {error}


def test_requests_that_fail_or_a_rate_that_is_not_kept_cost_the_place_unless_a_bound_allows_them() -> None:
    latency = Histogram.of([1000.0] * 90)
    clean = Window(1.0, 90, latency=latency)
    fails, late = replace(clean, rows=900, failed=10), replace(clean, rows=900, due=100, unanswered=10)

    assert Goal().score(fails).within == Goal().score(late).within == -0.1
    assert Goal().score(clean) > Goal().score(fails)
    allowed = Goal(constraints=tuple(parse_constraint(f"{name}=10%", is_least=False) for name in BOUNDS))
    assert allowed.score(fails).within == allowed.score(late).within == 0
    assert allowed.score(fails) > allowed.score(clean)
    assert str(Goal()) == "throughput"
    assert "failed ≤ 10.00%" in str(allowed)

    trials = [Trial({}, (window,), Goal().score(window)) for window in (fails, late)]
    notes = [note(Analysis(Goal(), SPACE), trial) for trial in trials]
    assert notes == ["misses failed, 10 failed", "misses unanswered, answers 90% of its rate"]


def test_points_that_differ_in_their_load_share_a_server_and_all_servers_end() -> None:
    server = FakeServer()

    analysis = analyzer(server).run(searches.brute(SPACE))

    assert server.opened == [1, 2, 3]
    assert server.closed == 3
    assert analysis.best is not None
    assert analysis.best.choice == {"m.instances": 3, "concurrency": 2}


def test_a_configuration_that_cannot_be_served_is_the_worst_and_says_why() -> None:
    analysis = analyzer(FakeServer(fails_at=2)).run(searches.brute(SPACE))

    failed = [trial for trial in analysis.trials if trial.error]
    assert [trial.error for trial in failed] == ["no room for so many instances"] * 2
    assert [trial.score for trial in analysis.ranked[-2:]] == [WORST, WORST]
    assert analysis.best is not None


def test_an_interrupt_keeps_what_was_measured_and_the_next_run_goes_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / "new/checkpoint.jsonl"
    interrupted = FakeServer(interrupted_after=3)
    checkpoint = Checkpoint(path, SUBJECT)

    analysis = analyzer(interrupted, checkpoint).run(searches.brute(SPACE))
    checkpoint.close()

    assert (analysis.was_interrupted, len(analysis.trials)) == (True, 3)
    assert interrupted.closed == len(interrupted.opened) == 2

    server, checkpoint = FakeServer(), Checkpoint(path, SUBJECT)
    resumed = analyzer(server, checkpoint).run(searches.brute(SPACE))
    checkpoint.close()

    assert len(resumed.trials) == SPACE.size
    assert resumed.resumed_count == 3
    assert server.measured == [(2, 2), (3, 1), (3, 2)]
    assert len(path.read_text().splitlines()) == 1 + SPACE.size


def test_a_line_that_was_cut_off_is_tried_again_and_the_file_is_whole_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.jsonl"
    checkpoint = Checkpoint(path, SUBJECT)
    analyzer(FakeServer(), checkpoint).run(searches.brute(SPACE))
    checkpoint.close()
    path.write_bytes(path.read_bytes()[:-20])

    server, checkpoint = FakeServer(), Checkpoint(path, SUBJECT)
    analyzer(server, checkpoint).run(searches.brute(SPACE))
    checkpoint.close()

    assert server.measured == [(3, 2)]
    assert [json.loads(line)["error"] for line in path.read_text().splitlines()[1:]] == [""] * SPACE.size


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"form":1,"models":["other"]}\n', "of another search: models differ"),
        ("name: net\n", "expected a JSON object on each line"),
        ("[1]\n", "expected a JSON object on each line"),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_alone(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "checkpoint.jsonl"
    path.write_text(content)

    with pytest.raises(InvalidArg, match=message):
        Checkpoint(path, SUBJECT)

    assert path.read_text() == content


def test_a_trial_is_the_same_after_it_was_written_and_read() -> None:
    case = cases()[0]
    analyzer = Analyzer(case.space, case.goal, case.server, looks=Looks(1, 2))
    [trial] = analyzer.run(point for point in [(0, 2, 1, 3)]).trials  # type: ignore[arg-type]

    read = trial_of(json.loads(json.dumps(trial.json()).replace("NaN", "null")), case.goal)

    assert read.choice == trial.choice
    assert read.score == trial.score
    assert str(read.windows) == str(trial.windows)


def test_hopeless_points_have_fewer_windows_than_the_best() -> None:
    server = SimulatedServer((SimulatedModel("m", 1000, 10),), cores=8)
    space = Space([Dimension("m.max_batch_size", (32, 1)), Dimension("concurrency", (64,))])

    analysis = Analyzer(space, Goal(), server, looks=Looks(2, 6, precision=0)).run(searches.brute(space))

    best, other = analysis.trials
    assert (len(best.windows), len(other.windows)) == (6, 2)
    assert other.verdict is not None
    assert other.verdict.is_hopeless


def test_what_is_hopeless_for_one_goal_is_tried_anew_for_another(tmp_path: Path) -> None:
    server = SimulatedServer((SimulatedModel("m", 1000, 10),), cores=8)
    space = Space([Dimension("m.max_batch_size", (32, 1)), Dimension("concurrency", (64,))])
    resumed = []

    for goal in (Goal(), Goal(), Goal({"memory": 1.0}), Goal({"memory": 1.0})):
        checkpoint = Checkpoint(tmp_path / "checkpoint.jsonl", SUBJECT)
        trying = Analyzer(space, goal, server, looks=Looks(2, 6, precision=0), checkpoint=checkpoint)
        resumed.append(trying.run(searches.brute(space)).resumed_count)
        checkpoint.close()

    assert resumed == [0, 2, 1, 2]


def test_the_frontier_has_what_nothing_beats_in_both() -> None:
    analysis = analyzer(FakeServer()).run(searches.brute(SPACE))

    assert [trial.choice["m.instances"] for trial in frontier(analysis.trials)] == [1, 1, 2, 2, 3]
    assert len(frontier(analysis.trials[:1] * 3)) == 1


def test_constraints_come_before_the_objective() -> None:
    goal = Goal({"throughput": 1.0}, (Constraint("latency_p99", 150_000),))

    analysis = Analyzer(SPACE, goal, FakeServer(), looks=Looks(1, 1)).run(searches.brute(SPACE))

    assert analysis.best is not None
    assert analysis.best.choice == {"m.instances": 1, "concurrency": 2}
    assert [trial.is_within for trial in analysis.ranked] == [True] * 2 + [False] * 4
    assert analysis.ranked[2].choice == {"m.instances": 2, "concurrency": 1}  # misses it by the least


def test_a_constraint_on_what_nobody_measured_is_refused() -> None:
    goal = Goal({"throughput": 1.0}, (Constraint("gpu_memory", 100),))

    with pytest.raises(InvalidArg, match="gpu_memory ≤ 100 MiB: nothing was measured of it"):
        goal.score(Window(1.0, 5, latency=Histogram.of([1.0])))


def test_the_report_needs_no_network_and_shows_every_trial() -> None:
    analysis = analyzer(FakeServer(fails_at=2)).run(searches.brute(SPACE))

    page = html_report(analysis, ["<m>"], {"m": "max_batch_size: 8 # <b>\n"})

    assert page.count("<circle") == 4
    assert page.count("<svg") == page.count("</svg>") == 2  # nobody measured memory
    assert "&lt;m&gt;" in page
    assert "# &lt;b&gt;" in page
    assert not any(text in page for text in ("<script", "http:", "https:", "@import", "url("))
    assert not math.isnan(analysis.trials[0].score.value)
