"""Shared objects keep to the rules of all batching strategies, and the kit names those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy_sdk.testing import PluginFault, StrategyConformance, WaitingRequest, compile_shared_object
from tritonpy_sdk.testing.rules import rules_of

from ..conftest import Compiled

EXAMPLES = Path(__file__).parents[4] / "examples"
CHECKS = [name for name, _ in rules_of(StrategyConformance)]


def suite(path: Path, *, has_memory: bool = False, **parameters: str) -> StrategyConformance:
    class Suite(StrategyConformance, strategy=path, parameters=parameters, has_memory=has_memory):
        def make_requests(self) -> list[WaitingRequest]:
            sizes = [*range(1, 12), 80]
            return [WaitingRequest((1, size), "UINT8", input_name="TOKENS") for size in sizes]

    return Suite()


@pytest.fixture(scope="module")
def rows(compiled: Compiled, tmp_path_factory: pytest.TempPathFactory) -> dict[str, StrategyConformance]:
    """Strategies that are right, by name."""
    compiled("strategies/volume.c")  # skips where there is no compiler
    folder = tmp_path_factory.mktemp("examples")
    volume = compile_shared_object(EXAMPLES / "batching_strategy_c/volume.c", folder / "volume.so")
    tokens = compile_shared_object(EXAMPLES / "batching_strategy_cpp/tokens.cc", folder / "tokens.so")
    return {
        "volume": suite(volume, MAX_BATCH_VOLUME_BYTES="21"),
        "tokens": suite(tokens, has_memory=True),
    }


@pytest.mark.parametrize("name", ["volume", "tokens"])
def test_a_right_shared_object_passes(rows: dict[str, StrategyConformance], name: str, library: Path) -> None:
    skipped = []
    for check in CHECKS:
        try:
            getattr(rows[name], check)()
        except pytest.skip.Exception:
            skipped.append(check)

    assert len(skipped) < len(CHECKS) / 2


@pytest.mark.parametrize(
    ("fault", "check", "did"),
    [
        ("ModelBatchIncludeRequest sleep", "answers_come_at_once", "µs to begin a batch"),
        ("ModelBatchIncludeRequest refuses large ones", "an_empty_batch_takes_any_request", "refused"),
        ("ModelBatchIncludeRequest error for large ones", "every_request_leaves", "a large one had no wish"),
        ("ModelBatchFinalize prints", "nothing_is_printed", "a line on standard output"),
        ("ModelBatcherFinalize error", "it_begins_and_ends_with_its_model", "had no wish to"),
    ],
)
def test_a_wrong_shared_object_is_named(
    fault: str, check: str, did: str, compiled: Compiled, library: Path
) -> None:
    wrong = suite(compiled("strategies/faulty.cc"), FAULT=fault)

    with pytest.raises(PluginFault) as caught:
        getattr(wrong, f"test_{check}")()

    assert did in caught.value.did
