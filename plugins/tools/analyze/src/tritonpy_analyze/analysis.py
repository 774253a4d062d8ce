"""An analysis: trials in the order that a search wants, until it has seen enough or somebody says stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from tritonpy.errors import TritonError

from tritonpy_analyze.checkpoint import Checkpoint, choice_json, choice_of
from tritonpy_analyze.goal import WORST, Goal, Score
from tritonpy_analyze.measurement import Window, together, window_of
from tritonpy_analyze.searches import Search
from tritonpy_analyze.space import LOAD_SETTINGS, Choice, Point, Space, Value
from tritonpy_analyze.stopping import Looks, Verdict
from tritonpy_analyze.trial import Launcher, NothingAnswered, Target

JsonObject = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Trial:
    """One point that was tried.

    Attributes:
        choice: its values.
        windows: what was measured.
        score: of all windows together.
        verdict: why it ended before its last window; None if it did not.
        error: why it could not be measured; "" otherwise.
        is_now: the configuration was left as it is; the choice says what it has.
    """

    choice: Choice
    windows: tuple[Window, ...]
    score: Score
    verdict: Verdict | None = None
    error: str = ""
    is_now: bool = False

    @property
    def window(self) -> Window:
        """All windows as one."""
        return together(self.windows)

    @property
    def is_within(self) -> bool:
        """True if it was measured and keeps all constraints."""
        return self.score.within == 0 and not self.error

    def json(self) -> JsonObject:
        """In a form that `trial_of` reads."""
        verdict = self.verdict
        return {
            "choice": choice_json(self.choice),
            "windows": [window.json() for window in self.windows],
            "verdict": None if verdict is None else [verdict.is_hopeless, verdict.confidence, verdict.reason],
            "error": self.error,
            "is_now": self.is_now,
        }


def trial_of(found: JsonObject, goal: Goal) -> Trial:
    """Read what `Trial.json` has made, and judge it by a goal."""
    windows = tuple(map(window_of, found["windows"]))
    score = goal.score(together(windows)) if windows and not found["error"] else WORST
    verdict = Verdict(*found["verdict"]) if found["verdict"] else None
    choice = choice_of(found["choice"])
    return Trial(choice, windows, score, verdict, found["error"], bool(found.get("is_now")))


@dataclass(slots=True)
class Analysis:
    """What came of it.

    Attributes:
        goal: by which trials are judged.
        space: that was searched.
        trials: all of them, in order.
        was_interrupted: somebody said stop.
        resumed_count: how many of the trials were in the checkpoint.
    """

    goal: Goal
    space: Space
    trials: list[Trial] = field(default_factory=list)
    was_interrupted: bool = False
    resumed_count: int = 0

    @property
    def point_count(self) -> int:
        """How many of the trials are points of the space."""
        space = self.space
        sought = (trial.choice for trial in self.trials if not trial.is_now)
        return sum(space.choice(space.point(choice)) == choice for choice in sought)

    @property
    def ranked(self) -> list[Trial]:
        """The trials, the best first; those of the same score in the order in which they were made."""
        return sorted(self.trials, key=lambda trial: trial.score, reverse=True)

    @property
    def best(self) -> Trial | None:
        """The best one that was measured; None of none."""
        measured = [trial for trial in self.ranked if not trial.error and trial.score != WORST]
        return measured[0] if measured else None


class Analyzer:
    """Makes trials.

    Args:
        space: where to search.
        goal: what for.
        launcher: sets configurations up.
        looks: how many windows a trial has.
        window_s: seconds of each.
        warm_up_s: load before the first, which is not counted.
        checkpoint: keeps the trials, and may have some.
        on_trial: is told of each trial, with the number of trials so far.
        on_point: is told what is tried now.
    """

    def __init__(
        self,
        space: Space,
        goal: Goal,
        launcher: Launcher,
        *,
        looks: Looks | None = None,
        window_s: float = 1.0,
        warm_up_s: float = 0.0,
        checkpoint: Checkpoint | None = None,
        on_trial: Callable[[Trial, int], None] = lambda trial, count: None,
        on_point: Callable[[Choice], None] = lambda choice: None,
    ) -> None:
        self._goal = goal
        self._launcher = launcher
        self._looks = looks or Looks()
        self._window_s = window_s
        self._warm_up_s = warm_up_s
        self._checkpoint = checkpoint
        self._on_trial = on_trial
        self._on_point = on_point
        self._open = _Open(launcher)
        self.analysis = Analysis(goal, space)
        self._known: dict[Point, Trial] = {}
        self._elsewhere: dict[str, Trial] = {}  # by its choice, what is no point of the space
        for found in checkpoint.trials if checkpoint is not None else ():
            trial = trial_of(found, goal)
            is_hopeless = trial.verdict is not None and trial.verdict.is_hopeless
            if is_hopeless and found.get("goal") != repr(goal):
                continue  # for another goal, and for this one it may be the best: it is tried anew
            point = space.point(trial.choice)
            if space.choice(point) == trial.choice and not trial.is_now:
                self._known.setdefault(point, trial)
            else:
                self._elsewhere[repr(sorted(trial.choice.items()))] = trial

    def run(self, search: Search) -> Analysis:
        """Try what the search asks for. An interrupt (Ctrl-C) ends it, and what was measured stays.

        A trial that is in the checkpoint is not made again; one that was under way is not counted.

        Raises:
            TritonError: nothing can be measured at all; a configuration that cannot be served is a bad trial.
        """
        analysis, resumed = self.analysis, set(self._known)
        tried: dict[Point, Trial] = {}
        try:
            point = next(search)
            while True:
                if point not in tried:
                    tried[point] = self._known.get(point) or self._try(point)
                    analysis.trials.append(tried[point])
                    analysis.resumed_count += point in resumed
                    self._on_trial(tried[point], len(analysis.trials))
                point = search.send(tried[point].score)
        except StopIteration:
            pass
        except KeyboardInterrupt:
            analysis.was_interrupted = True
        finally:
            self._open.close()
        return analysis

    def try_now(self, choice: Choice) -> Trial:
        """Try the configurations as they are, under the load of a choice; not anew what was tried before.

        Args:
            choice: of the load, and what the configurations have; it need not be a point of the space.

        Raises:
            KeyboardInterrupt: somebody said stop; nothing is kept of it.
        """
        try:
            tried = self._elsewhere.get(repr(sorted(choice.items()))) or self._measure(choice, is_now=True)
        finally:
            self._open.close()
        self.analysis.trials.append(tried)
        return tried

    def _try(self, point: Point) -> Trial:
        return self._measure(self.analysis.space.choice(point))

    def _measure(self, choice: Choice, *, is_now: bool = False) -> Trial:
        self._on_point(choice)
        load = {name: value for name, value in choice.items() if name in LOAD_SETTINGS}
        settings = {name: value for name, value in choice.items() if name not in LOAD_SETTINGS and not is_now}
        windows: list[Window] = []
        verdict, error = None, ""
        try:
            target = self._open.target(settings)
            if self._warm_up_s:
                with suppress(NothingAnswered):  # what takes longer than that is what a window tells
                    target.measure(load, self._warm_up_s)
            best = self._best_windows()
            while len(windows) < self._looks.most and verdict is None:
                windows.append(target.measure(load, self._window_s))
                verdict = self._looks.verdict(self._goal, windows, best)
        except TritonError as failure:
            error = failure.message
            self._open.close()
        score = self._goal.score(together(windows)) if windows and not error else WORST
        trial = Trial(choice, tuple(windows), score, verdict, error, is_now)
        if self._checkpoint is not None:
            self._checkpoint.add({**trial.json(), "goal": repr(self._goal)})
        return trial

    def _best_windows(self) -> Sequence[Window]:
        best = self.analysis.best
        return best.windows if best is not None and best.is_within else ()


class _Open:
    """The configuration that is ready now; it stays for trials that differ in their load only."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._settings: dict[str, Value] | None = None
        self._stack = ExitStack()
        self._target: Target | None = None

    def target(self, settings: dict[str, Value]) -> Target:
        if self._target is None or settings != self._settings:
            self.close()
            self._target = self._stack.enter_context(self._launcher.open(settings))
            self._settings = settings
        return self._target

    def close(self) -> None:
        self._target = None
        self._stack.close()


def frontier(trials: Iterable[Trial], latency: str = "latency_p99") -> list[Trial]:
    """Those trials that no other beats in both throughput and latency, the quickest answers first."""
    measured = [trial for trial in trials if not trial.error and trial.windows and trial.window.rows]
    found: list[Trial] = []
    most = -math.inf
    for trial in sorted(measured, key=lambda each: (each.window.metric(latency), -each.score.value)):
        throughput = trial.window.metric("throughput")
        if throughput > most:
            found.append(trial)
            most = throughput
    return found
