"""The batches that the strategy xyz forms, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.plugin import TritonError
from tritonpy_sdk.testing import compile_shared_object, open_strategy


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("xyz")
    return compile_shared_object(Path(__file__).with_name("strategy.c"), directory / "xyz.so")


def test_a_batch_holds_at_most_four_requests(library: Path) -> None:
    with open_strategy(library, {"MAX_BATCH_REQUESTS": "4"}) as strategy:
        assert strategy.batches(list(range(1, 11))) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_a_limit_that_is_no_number_is_refused(library: Path) -> None:
    limit = {"MAX_BATCH_REQUESTS": "many"}
    with pytest.raises(TritonError, match="got 'many'"), open_strategy(library, limit):
        pass
