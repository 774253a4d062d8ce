"""Strategies without a server: the batches they form, and what goes wrong in them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import Internal, InvalidArg, NotFound
from tritonpy.plugin import hookimpl
from tritonpy.request import InferRequest
from tritonpy.tensor import Tensor
from tritonpy_sdk.testing import WaitingRequest, open_strategy


class Pairs:
    """A strategy that allows two requests in a batch, and writes down what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @hookimpl
    def model_batcher_initialize(self, model: Any) -> str:
        self.calls.append(f"open {model.parameter('FOR')} {model.max_batch_size}")
        return "state"

    @hookimpl
    def model_batcher_finalize(self, batcher: Any) -> None:
        self.calls.append(f"close {batcher.state}")

    @hookimpl
    def model_batch_initialize(self, batcher: Any) -> list[InferRequest]:
        return []

    @hookimpl
    def model_batch_include_request(self, request: InferRequest, batch: Any) -> bool:
        if request.id == "bad":
            raise InvalidArg("not this one")
        batch.state.append(request)
        return len(batch.state) <= 2

    @hookimpl
    def model_batch_finalize(self, batch: Any) -> None:
        if any(request.id == "worse" for request in batch.state):
            raise ValueError("cannot let go")


def test_a_strategy_begins_for_a_model_and_ends_with_it() -> None:
    pairs = Pairs()
    with open_strategy(pairs, {"FOR": "tests"}, max_batch_size=7) as strategy:
        assert strategy.batches([1, 2, 3, 4, 5]) == [[1, 2], [3, 4], [5]]
        assert strategy.batches([6]) == [[6]]
        assert pairs.calls == ["open tests 7"]

    assert pairs.calls == ["open tests 7", "close state"]
    assert strategy.failed == []


def test_the_batcher_has_its_limits_beside_the_strategy() -> None:
    three = WaitingRequest((3, 1))
    with open_strategy(Pairs(), max_batch_size=4) as strategy:
        assert strategy.batches([three, three, WaitingRequest()]) == [[three], [three, WaitingRequest()]]
    with open_strategy("volume", {"MAX_BATCH_VOLUME_BYTES": "96"}, preferred_batch_sizes=[4]) as strategy:
        assert strategy.batches([16] * 12) == [[16] * 4] * 3


def test_a_request_may_have_bytes_of_its_own() -> None:
    tensor = Tensor("TEXT", "BYTES", (2, 1), b"\1\0\0\0a\1\0\0\0b")
    request = InferRequest("m", {"TEXT": tensor})
    with open_strategy("volume", {"MAX_BATCH_VOLUME_BYTES": "20"}) as strategy:
        assert strategy.batches([request, 11, 1]) == [[request], [11, 1]]

    assert request.batch_size == 2
    with pytest.raises(InvalidArg, match="got 'BYTES', expected one whose elements all have the same size"):
        WaitingRequest(datatype="BYTES")


def test_a_request_that_the_strategy_fails_is_in_no_batch() -> None:
    bad = WaitingRequest(id="bad")
    with open_strategy(Pairs()) as strategy:
        assert strategy.batches([1, bad, 2]) == [[1], [2]]

    [(request, error)] = strategy.failed
    assert request is bad
    assert isinstance(error, InvalidArg)
    assert str(error).endswith("not this one")


def test_what_a_server_only_logs_is_raised() -> None:
    worse = WaitingRequest(id="worse")
    with (
        pytest.raises(ExceptionGroup, match="the strategy failed") as raised,
        open_strategy(Pairs()) as opened,
    ):
        assert opened.batches([worse]) == [[worse]]

    [error] = raised.value.exceptions
    assert repr(error) == "ValueError('cannot let go')"


def test_a_strategy_in_a_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from tritonpy_batching_volume import *")

    with open_strategy(path, {"MAX_BATCH_VOLUME_BYTES": "2"}) as strategy:
        assert strategy.batches([1, 1, 1]) == [[1, 1], [1]]


def test_one_that_is_none_or_does_not_begin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Unable to find MAX_BATCH_VOLUME_BYTES"), open_strategy("volume"):
        pass
    with pytest.raises(InvalidArg, match="does not define all required"), open_strategy(SimpleNamespace()):
        pass
    with pytest.raises(NotFound, match="nothing-there"), open_strategy(tmp_path / "nothing-there.so"):
        pass
    (tmp_path / "bad.py").write_text("1/0")
    with pytest.raises(Internal, match="division by zero"), open_strategy(tmp_path / "bad.py"):
        pass
