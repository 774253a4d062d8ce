"""Each configuration, loaded by the real server and by ours over both protocols."""

from __future__ import annotations

import pytest

from .asking import Verdict
from .cases import CASES, FATAL, STRICT
from .comparison import Difference, differing, read_recorded
from .differences import DIFFERENCES
from .record import STRICT_OPTION, real_verdicts, verdicts

Verdicts = dict[str, dict[str, Verdict]]

# The real server takes its models one after the other, within the first test.
pytestmark = [pytest.mark.parity, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    folder = tmp_path_factory.mktemp("ours")
    return {
        "usual": verdicts(folder / "usual", CASES | FATAL, is_real=False, at_once=4),
        "strict": verdicts(folder / "strict", STRICT, STRICT_OPTION, is_real=False, at_once=4),
    }


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    return real_verdicts(tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize("kind", ["usual", "strict"])
def test_the_real_server_still_says_what_is_recorded(real: Verdicts, kind: str) -> None:
    recorded = read_recorded()[kind]
    different = {
        name: (recorded.get(name), verdict)
        for name, verdict in real[kind].items()
        if name not in recorded or differing(recorded[name], verdict)
    }

    assert not different, "run `python -m tests.configuration.record`"


@pytest.mark.parametrize(
    ("kind", "name"), [("usual", name) for name in CASES] + [("strict", name) for name in STRICT]
)
def test_our_server_takes_or_refuses_it_as_the_real_one_does(ours: Verdicts, kind: str, name: str) -> None:
    theirs, mine = read_recorded()[kind][name], ours[kind][name]
    found = differing(theirs, mine)

    assert not found or any(difference.explains(name, theirs, mine, found) for difference in DIFFERENCES), (
        found,
        theirs,
        mine,
    )
    assert mine.grpc_reason == mine.reason  # over both protocols the same


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_every_listed_difference_still_occurs(ours: Verdicts, difference: Difference) -> None:
    recorded = read_recorded()["usual"]
    explained = set()
    for name, theirs in recorded.items():
        found = differing(theirs, ours["usual"][name])
        if found:
            explained |= {
                listed.name
                for listed in DIFFERENCES
                if listed.explains(name, theirs, ours["usual"][name], found)
            }

    assert difference.name in explained  # type: ignore[attr-defined]


def test_what_the_real_server_does_not_survive_ours_answers(ours: Verdicts) -> None:
    assert {name: ours["usual"][name].http for name in FATAL} == {
        "missing_model_file": 400,
        "batch_output_without_target": 400,
        "no_agents": 200,
        "warmup_larger_than_a_batch": 400,
    }
