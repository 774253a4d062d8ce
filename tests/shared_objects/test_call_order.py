"""The order in which the five functions of a strategy are called, here and in a real tritonserver.

A strategy in C writes down its calls. Both servers promise the same to it: one initialisation at the
beginning and one end, requests in the order of the queue up to the first that is refused, that one first in
the next batch, and each batch begun and ended once. Ours begins a batch when there is something to ask; the
real server also begins many that stay empty, asks again for what it has asked before, and does not end the
last one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..servers import OURS_AND_REAL
from .conftest import Compiled
from .noting import Asked, Place, built, configuration

RealTriton = Callable[..., dict[str, int]]
Record = Callable[..., list[str]]


@pytest.fixture
def record(tmp_path: Path, compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Serve a model whose strategy has room for three requests, send some, and give the lines it wrote."""

    def record(
        send: Callable[[Asked], Any],
        config: dict[str, Any],
        real_triton: RealTriton | None = None,
        *,
        held_until: int = 0,
    ) -> list[str]:
        if held_until:
            monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", str(held_until))
        monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "0")  # nobody asks here about the trial in a child
        place = Place(tmp_path)
        journal = tmp_path / "m/calls"
        place.add("m", config, built(compiled, "recorder", "alone"), JOURNAL=str(journal), ROOM="3")
        with place.served(real_triton) as server:
            send(server)
            if real_triton is not None:
                real_triton.end(server.ports)  # type: ignore[attr-defined]
                server.until(lambda: "batcher finalize" in journal.read_text())
        return journal.read_text().splitlines()

    return record


def four(server: Asked) -> None:
    answers = []
    for number in range(4):
        answers.append(server.send("http", "m", 4, id=f"r{number}"))
        if number < 3:
            server.until(lambda number=number: server.pending("m") == number + 1)
    assert [answer.result() for answer in answers] == [""] * 4


def one(server: Asked) -> None:
    columns = 4
    assert server.send("http", "m", columns, id="r0").result() == ""


def nothing(server: Asked) -> None:
    assert server.batches("m") == []


def included(calls: list[str]) -> list[str]:
    """The answers to requests; those of a batch that was begun anew are replaced by the new ones."""
    batches: dict[str, list[str]] = {}
    for call in calls:
        number, _, rest = call.partition(" include ")
        if rest:
            batches.setdefault(number, []).append(rest)
    last = list(batches.values())
    return [
        answer
        for batch, after in zip(last, [*last[1:], []], strict=True)
        for answer in batch
        if batch != after
    ]


def test_a_batch_begins_with_its_first_request_and_ends_when_it_leaves(record: Record) -> None:
    assert record(four, configuration(), held_until=4) == [
        "batcher initialize",
        "1 initialize",
        "1 include r0 yes",
        "1 include r1 yes",
        "1 include r2 yes",
        "1 include r3 no",
        "1 finalize",
        "2 initialize",
        "2 include r3 yes",
        "2 finalize",
        "batcher finalize",
    ]


@pytest.mark.parity
def test_a_real_tritonserver_begins_more_batches_and_gets_the_same_answers(
    record: Record, real_triton: RealTriton
) -> None:
    calls = record(four, configuration(), real_triton, held_until=4)

    assert calls[:4] == ["batcher initialize", "1 initialize", "1 finalize", "2 initialize"]
    assert included(calls) == ["r0 yes", "r1 yes", "r2 yes", "r3 no", "r3 yes"]
    begun = [call for call in calls if call.endswith("initialize") and call[0].isdigit()]
    ended = [call for call in calls if call.endswith("finalize") and call[0].isdigit()]
    assert len(begun) == len(ended) + 1  # the last one is never ended
    assert calls[-1] == "batcher finalize"


def test_a_model_that_nobody_asks_begins_no_batch(record: Record) -> None:
    assert record(nothing, configuration()) == ["batcher initialize", "batcher finalize"]


@pytest.mark.parity
def test_a_real_tritonserver_begins_a_batch_before_anybody_asks(
    record: Record, real_triton: RealTriton
) -> None:
    assert record(nothing, configuration(), real_triton) == [
        "batcher initialize",
        "1 initialize",
        "batcher finalize",
    ]


WITHOUT_DYNAMIC_BATCHING = {key: value for key, value in configuration().items() if key != "dynamic_batching"}


@pytest.mark.parametrize("server", OURS_AND_REAL)
def test_without_dynamic_batching_a_strategy_is_there_and_never_asked(
    record: Record, request: pytest.FixtureRequest, server: str
) -> None:
    real = request.getfixturevalue("real_triton") if server == "real" else None

    calls = record(one, WITHOUT_DYNAMIC_BATCHING, real)

    assert calls == ["batcher initialize", "batcher finalize"]


@pytest.mark.parametrize("server", OURS_AND_REAL)
def test_a_model_that_does_not_batch_is_asked_for_with_each_request(
    record: Record, request: pytest.FixtureRequest, server: str
) -> None:
    real = request.getfixturevalue("real_triton") if server == "real" else None
    dims = {"data_type": "TYPE_FP32", "dims": [-1, -1]}
    tensors = {"input": [{"name": "X", **dims}], "output": [{"name": "Y", **dims}]}

    calls = record(one, configuration(max_batch_size=0, **tensors), real)

    assert included(calls) == ["r0 yes"]


# The first waits for the second, however long that takes to come; together they do not wait.
FULL_WITH_TWO = configuration({"max_queue_delay_microseconds": 60_000_000}, max_batch_size=2)


def test_requests_that_wait_for_company_are_asked_for_once(record: Record) -> None:
    def two(server: Asked) -> None:
        answers = [server.send("http", "m", 4, id="r0")]
        server.until(lambda: server.pending("m") == 1)
        answers.append(server.send("http", "m", 4, id="r1"))
        assert [answer.result() for answer in answers] == ["", ""]

    calls = record(two, FULL_WITH_TWO)

    assert calls[1:-1] == ["1 initialize", "1 include r0 yes", "1 include r1 yes", "1 finalize"]


def test_a_batch_that_is_overtaken_ends_before_the_next_begins(record: Record) -> None:
    def overtaking(server: Asked) -> None:
        answers = [server.send("http", "m", 4, id="low")]
        server.until(lambda: server.pending("m") == 1)
        answers.append(server.send("http", "m", 4, id="high", priority=1))
        assert [answer.result() for answer in answers] == ["", ""]

    levels = {"priority_levels": 2, "default_priority_level": 2}
    batching = FULL_WITH_TWO["dynamic_batching"] | levels
    calls = record(overtaking, FULL_WITH_TWO | {"dynamic_batching": batching})

    assert calls[1:-1] == [
        "1 initialize",
        "1 include low yes",
        "1 finalize",
        "2 initialize",
        "2 include high yes",
        "2 include low yes",
        "2 finalize",
    ]
