"""What a strategy in C allows holds in our server whatever happens to the requests that wait.

The limit is 48 bytes, and most requests have 16. A request that begins with -1 keeps its instance busy until
the test opens the gate, so that what waits behind it is decided upon at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from .conftest import Compiled
from .noting import BUILDS, Asked, Place, built, configuration

SIZE = 16
LIMIT = 48
TOGETHER = LIMIT // SIZE
COLUMNS = SIZE // 4
BUSY = -1

LONG = {"max_queue_delay_microseconds": 60_000_000}
LEVELS = {"priority_levels": 2, "default_priority_level": 2}
OWN_TIMEOUT = {
    "default_queue_policy": {"default_timeout_microseconds": 60_000_000, "allow_timeout_override": True}
}
EXPIRES = {"timeout": 800_000}  # mostly longer than it takes to send some others

# What each model has beside the limit: its `dynamic_batching`, and the rest of its configuration.
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "large": ({}, {}),
    "large_ones": ({}, {}),
    "levels": (LEVELS, {}),
    "overtaken": ({**LEVELS, **LONG}, {}),
    "delayed": (LONG, {}),
    "given_up": (LONG, {}),
    "given_up_alone": (LONG, {}),
    "expires": (OWN_TIMEOUT, {}),
    "expires_inside": ({**OWN_TIMEOUT, **LONG}, {}),
    "two": ({}, {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}),
    "in_order": ({"preserve_ordering": True}, {"instance_group": [{"kind": "KIND_CPU", "count": 2}]}),
    "decoupled": ({}, {"model_transaction_policy": {"decoupled": True}}),
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, compiled: Compiled) -> Iterator[Asked]:
    place = Place(tmp_path_factory.mktemp("ours"))
    limit = {"MAX_BATCH_VOLUME_BYTES": str(LIMIT)}
    for index, (name, (batching, config)) in enumerate(MODELS.items()):
        strategy = built(compiled, "volume", BUILDS[index % 2])
        place.add(name, configuration(batching, **config), strategy, on_threads=True, **limit)
    place.add("worker", configuration(), built(compiled, "volume", "alone"), **limit)
    fault = "ModelBatchIncludeRequest error"
    for name, batching in (("fails", {}), ("fails_in_order", {"preserve_ordering": True})):
        place.add(
            name, configuration(batching), compiled("strategies/faulty.cc"), on_threads=True, FAULT=fault
        )
    with place.served() as server:
        yield server


def busy(server: Asked, model: str, count: int = 1) -> list[Future[str]]:
    """Keep so many instances busy until there is a gate."""
    answers = []
    for number in range(count):
        answers.append(server.send("http", model, COLUMNS, first=BUSY))
        server.until(lambda number=number: len(server.batches(model)) == number + 1)
    return answers


def behind(
    server: Asked, model: str, columns: list[int], parameters: list[dict[str, Any]] | None = None
) -> tuple[list[str], list[list[int]]]:
    """Let requests wait behind one that is executed, and open the gate: answers, and batches of those."""
    first = busy(server, model)
    answers = []
    for number, count in enumerate(columns):
        answers.append(server.send("grpc", model, count, **(parameters[number] if parameters else {})))
        server.until(lambda number=number: server.pending(model) == number + 1)
    server.open_gate(model)
    results = [answer.result() for answer in answers]
    assert [answer.result() for answer in first] == [""]
    return results, server.batches(model)[1:]


@pytest.mark.parametrize("model", ["plain", "worker"])
def test_the_limit_holds_while_the_instance_is_busy_and_there_is_no_delay(ours: Asked, model: str) -> None:
    answers, batches = behind(ours, model, [COLUMNS] * 20)

    assert answers == [""] * 20
    assert [len(batch) for batch in batches] == [TOGETHER] * 6 + [2]


@pytest.mark.parity
def test_a_real_tritonserver_breaks_the_limit_while_the_instance_is_busy(
    tmp_path: Path, compiled: Compiled, real_triton: Callable[..., dict[str, int]]
) -> None:
    place = Place(tmp_path)
    limit = {"MAX_BATCH_VOLUME_BYTES": str(LIMIT)}
    place.add("plain", configuration(), built(compiled, "volume", "alone"), **limit)

    with place.served(real_triton) as server:
        answers, batches = behind(server, "plain", [COLUMNS] * 20)

    assert answers == [""] * 20
    assert max(map(len, batches)) > 4 * TOGETHER


def test_a_request_larger_than_the_limit_runs_alone_and_the_others_go_on(
    ours: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    answers, batches = behind(ours, "large", [4, 100, 4, 4, 25, 4, 4, 4, 4])

    assert answers == [""] * 9
    assert batches == [[16], [400], [16, 16], [100], [16, 16, 16], [16]]
    warnings = [each for each in caplog.messages if "even for an empty batch" in each]
    assert len(warnings) == 1
    assert "batching strategy" in warnings[0]
    assert "volume.so' refuses a request of model 'large'" in warnings[0]


def test_nothing_but_large_requests_run_one_by_one(ours: Asked) -> None:
    answers, batches = behind(ours, "large_ones", [13] * 6)

    assert answers == [""] * 6
    assert batches == [[52]] * 6


def test_a_request_that_the_strategy_fails_on_is_answered_and_no_other(ours: Asked) -> None:
    ids = [{"id": id} for id in ("a", "bad1", "b", "c", "bad2")]

    answers, batches = behind(ours, "fails", [4, 4, 4, 5, 4], ids)

    refused = "StatusCode.UNAVAILABLE: ModelBatchIncludeRequest had no wish to"
    assert answers == ["", refused, "", "", refused]
    assert batches == [[16], [16, 20]]


def test_levels_are_obeyed_within_the_limit(ours: Asked) -> None:
    levels = [{"priority": level} for level in (2, 2, 2, 1, 2, 1)]

    answers, batches = behind(ours, "levels", [3, 3, 3, 4, 3, 4], levels)

    assert answers == [""] * 6
    assert batches == [[16, 16, 12], [12, 12, 12]]


def test_a_batch_that_is_overtaken_is_formed_anew(ours: Asked) -> None:
    sent = [ours.send("http", "overtaken", 4), ours.send("http", "overtaken", 4)]
    ours.until(lambda: ours.pending("overtaken") == 2)

    sent.append(ours.send("http", "overtaken", 3, priority=1))  # leaves room for both
    ours.until(lambda: ours.pending("overtaken") == 3)
    sent.append(ours.send("http", "overtaken", 2, priority=1))  # for one only

    ours.until(lambda: ours.batches("overtaken") == [[12, 8, 16]])
    send_off(ours, "overtaken")
    assert [answer.result() for answer in sent] == [""] * 4
    assert ours.batches("overtaken")[:2] == [[12, 8, 16], [16]]


def send_off(server: Asked, model: str) -> None:
    """Send a request that fits into no batch, so that what waits goes before it."""
    server.send("http", model, LIMIT).result()


def given_up(server: Asked, model: str) -> None:
    """Send a request that joins the batch, and cancel it."""
    client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}")
    tensor = tritonclient.grpc.InferInput("X", [1, COLUMNS], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, COLUMNS), np.float32))
    errors: list[Any] = []
    pending = server.pending(model)
    call = client.async_infer(model, [tensor], callback=lambda result, error: errors.append(error))
    server.until(lambda: server.pending(model) == pending + 1)
    call.cancel()
    server.until(lambda: server.pending(model) == pending and bool(errors))
    client.close()


def check_first_batch(server: Asked, model: str, sent: list[Future[str]]) -> None:
    """The last of four did not fit: the others leave long before their delay is over, and it does not."""
    *first, last = sent
    assert [answer.result() for answer in first] == [""] * TOGETHER
    assert server.batches(model) == [[SIZE] * TOGETHER]
    assert not last.done()
    send_off(server, model)
    assert last.result() == ""


def test_the_room_of_a_request_that_is_given_up_is_free_again(ours: Asked) -> None:
    model = "given_up"
    sent = [ours.send("http", model, COLUMNS)]
    ours.until(lambda: ours.pending(model) == 1)
    given_up(ours, model)

    sent += ours.send_in_order("http", model, [COLUMNS] * 3, behind=sent)

    check_first_batch(ours, model, sent)


def test_a_batch_whose_only_request_is_given_up_is_no_batch(ours: Asked) -> None:
    given_up(ours, "given_up_alone")

    sent = ours.send_in_order("http", "given_up_alone", [COLUMNS] * 4)

    check_first_batch(ours, "given_up_alone", sent)


def test_requests_expire_while_the_instance_is_busy(ours: Asked) -> None:
    first = busy(ours, "expires")
    late = ours.send("http", "expires", COLUMNS, **EXPIRES)
    ours.until(lambda: ours.pending("expires") == 1 or late.done())
    sent = ours.send_in_order("http", "expires", [COLUMNS] * 4, behind=[late])

    assert late.result() == "503: Request timeout expired"
    ours.open_gate("expires")
    assert [answer.result() for answer in [*first, *sent]] == [""] * 5
    assert ours.batches("expires")[1:] == [[SIZE] * 3, [SIZE]]


def test_the_room_of_a_request_that_expires_is_free_again(ours: Asked) -> None:
    late = ours.send("http", "expires_inside", COLUMNS, **EXPIRES)
    assert late.result() == "503: Request timeout expired"

    sent = ours.send_in_order("http", "expires_inside", [COLUMNS] * 4)

    check_first_batch(ours, "expires_inside", sent)


def test_two_instances_share_what_waits_within_the_limit(ours: Asked) -> None:
    first = busy(ours, "two", 2)
    sent = ours.send_in_order("grpc", "two", [COLUMNS] * 10)
    ours.until(lambda: ours.pending("two") == 10)

    ours.open_gate("two")

    assert [answer.result() for answer in [*first, *sent]] == [""] * 12
    batches = ours.batches("two")[2:]
    assert sum(map(len, batches)) == 10
    assert max(map(len, batches)) == TOGETHER


def streamed(server: Asked, model: str, ids: list[str]) -> list[str]:
    """Send requests through one stream, and give the answers as they come: ids, or errors."""
    answers: list[str] = []

    def note(result: Any, error: Any) -> None:
        answers.append(error.message() if error else result.get_response().id)

    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        client.start_stream(note)
        for id in ids:
            tensor = tritonclient.grpc.InferInput("X", [1, COLUMNS], "FP32")
            tensor.set_data_from_numpy(np.ones((1, COLUMNS), np.float32))
            client.async_stream_infer(model, [tensor], request_id=id)
        server.until(lambda: len(answers) == len(ids))
    return answers


def test_answers_keep_their_order_within_the_limit(ours: Asked) -> None:
    ids = [str(number) for number in range(20)]

    assert streamed(ours, "in_order", ids) == ids
    assert max(map(len, ours.batches("in_order"))) <= TOGETHER


def test_an_error_of_the_strategy_keeps_its_place_among_the_answers(ours: Asked) -> None:
    ids = [f"bad{number}" if number % 3 == 1 else str(number) for number in range(12)]

    answers = streamed(ours, "fails_in_order", ids)

    expected = ["ModelBatchIncludeRequest had no wish to" if "bad" in id else id for id in ids]
    assert answers == expected


def test_a_decoupled_model_has_batches_within_the_limit(ours: Asked) -> None:
    ids = [str(number) for number in range(12)]

    assert sorted(streamed(ours, "decoupled", ids)) == sorted(ids)
    assert max(map(len, ours.batches("decoupled"))) <= TOGETHER


def test_the_limit_holds_while_instances_wait_for_a_resource(tmp_path: Path, compiled: Compiled) -> None:
    place = Place(tmp_path)
    group = {"kind": "KIND_CPU", "count": 2, "rate_limiter": {"resources": [{"name": "R", "count": 1}]}}
    config = configuration(instance_group=[group])
    strategy = built(compiled, "volume", "needs_the_server")
    for name in ("one", "other"):
        place.add(name, config, strategy, on_threads=True, MAX_BATCH_VOLUME_BYTES=str(LIMIT))
    resources = (("R", 1, None),)

    with place.served(rate_limit="execution_count", rate_limit_resources=resources) as server:
        first = busy(server, "one")  # has the resource, of which there is one
        sent = [*server.send_in_order("http", "one", [COLUMNS] * 8)]
        sent += server.send_in_order("http", "other", [COLUMNS] * 8)
        server.until(lambda: server.pending("one") == server.pending("other") == 8)
        server.open_gate("one")

        assert [answer.result() for answer in [*first, *sent]] == [""] * 17
        for name, batches in (("one", server.batches("one")[1:]), ("other", server.batches("other"))):
            assert [len(batch) for batch in batches] == [3, 3, 2], name


def test_a_refusal_sends_the_batch_before_its_delay_is_over(ours: Asked) -> None:
    sent = ours.send_in_order("grpc", "delayed", [COLUMNS] * 4)

    check_first_batch(ours, "delayed", sent)


@pytest.mark.parity
@pytest.mark.parametrize("server", ["ours", "real"])
def test_a_request_each_40_ms_with_a_delay_of_three_seconds(
    tmp_path: Path, compiled: Compiled, request: pytest.FixtureRequest, server: str
) -> None:
    place = Place(tmp_path)
    batching = {"max_queue_delay_microseconds": 3_000_000}  # no machine is so busy
    place.add("m", configuration(batching), built(compiled, "volume", "alone"), MAX_BATCH_VOLUME_BYTES="96")
    real = request.getfixturevalue("real_triton") if server == "real" else None

    with place.served(real) as asked:
        answers = []
        for number in range(12):
            answers.append(asked.send("http", "m", COLUMNS))
            if number < 11:
                time.sleep(0.04)
        assert [answer.result() for answer in answers] == [""] * 12
        assert asked.batches("m") == [[SIZE] * 6] * 2
