"""Each configuration, read and checked without a server, against what the real server made of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tritonpy.plugin_manager import PluginManager

from .alone import judge
from .asking import Verdict, lay_out
from .cases import BROKEN, CASES, FATAL, GOOD, STRICT
from .comparison import Difference, differing, read_recorded
from .differences import DIFFERENCES, ONLY_IN_A_SERVER

RECORDED = read_recorded()
# Of these a worker finds out that executes them, or a repository agent.
NEEDS_A_SERVER = re.compile("warmup_(?!of_any_size|without_data).*|missing_agent|agent_without_name")


@pytest.fixture(scope="module")
def backends() -> PluginManager:
    return PluginManager("backends")


def explanations(case: str, real: Verdict, ours: Verdict) -> list[Difference]:
    found = differing(real, ours, ours_is_alone=True)
    return [difference for difference in DIFFERENCES if difference.explains(case, real, ours, found)]


def alone(folder: Path, name: str, backends: PluginManager, *, is_strict: bool = False) -> Verdict:
    lay_out(folder, name, (CASES | FATAL)[name])
    return judge(folder / name, backends, is_strict=is_strict)


def test_there_are_enough_cases_and_each_was_given_to_the_real_server() -> None:
    assert len(BROKEN) >= 60
    assert len(GOOD) >= 40
    assert list(RECORDED["usual"]) == list(CASES), "run `python -m tests.configuration.record`"
    assert list(RECORDED["strict"]) == list(STRICT), "run `python -m tests.configuration.record`"


@pytest.mark.parametrize("name", [name for name in CASES if not NEEDS_A_SERVER.fullmatch(name)])
def test_a_configuration_is_taken_or_refused_as_by_the_real_server(
    name: str, tmp_path: Path, backends: PluginManager
) -> None:
    real = RECORDED["usual"][name]

    ours = alone(tmp_path, name, backends)

    assert not differing(real, ours, ours_is_alone=True) or explanations(name, real, ours), (real, ours)


@pytest.mark.parametrize("name", STRICT)
def test_without_auto_complete_it_is_taken_or_refused_as_by_the_real_server(
    name: str, tmp_path: Path, backends: PluginManager
) -> None:
    real = RECORDED["strict"][name]

    ours = alone(tmp_path, name, backends, is_strict=True)

    assert not differing(real, ours, ours_is_alone=True) or explanations(name, real, ours), (real, ours)


@pytest.mark.parametrize(
    "difference",
    [difference for difference in DIFFERENCES if difference.name not in ONLY_IN_A_SERVER],
    ids=lambda difference: difference.name,
)
def test_a_difference_that_is_listed_is_met(
    difference: Difference, tmp_path: Path, backends: PluginManager
) -> None:
    met = []
    for name in filter(re.compile(difference.cases).fullmatch, BROKEN | GOOD):
        real = RECORDED["usual"][name]
        if re.fullmatch(difference.real, f"{real.stage} {real.reason}", re.DOTALL):
            ours = alone(tmp_path, name, backends)
            found = differing(real, ours, ours_is_alone=True)
            met += [name] if found and difference in explanations(name, real, ours) else []

    assert met


def test_broken_ones_are_refused_by_the_real_server_and_good_ones_are_not() -> None:
    refused = {name for name, verdict in RECORDED["usual"].items() if verdict.stage}

    assert BROKEN.keys() - refused == {"slot_utilization_nan", "input_of_type_77"}  # see the differences
    assert refused & GOOD.keys() == {"empty_metrics", "histogram"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "batch_output_without_target",
            "Invalid argument: batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects at least 1 target "
            "name, got 0 for batch_output_without_target",
        ),
        ("no_agents", ""),
    ],
)
def test_what_ends_the_real_server_has_an_answer(
    name: str, reason: str, tmp_path: Path, backends: PluginManager
) -> None:
    assert alone(tmp_path, name, backends).reason == reason
