"""Clients that do not read what a decoupled model sends them: who waits, who does not, and what it costs."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess, until

from ..counting import at_rest
from .slow_clients import (
    CALLER,
    IN_TURN,
    LIMITS,
    MEBIBYTE,
    SLOW_S,
    THREADS,
    TOO_SLOW,
    EventStream,
    Served,
    Stream,
    connections,
    descriptors,
    highest_memory,
    memory,
)

REPEATS = 1500


def decoupled_config(folder: Path) -> dict[str, Any]:
    return {
        "backend": "python",
        "max_batch_size": 2,
        "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [2]}],
        "output": [{"name": "OUT", "data_type": "TYPE_UINT8", "dims": [-1]}],
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "parameters": {"folder": {"string_value": str(folder)}},
        "model_transaction_policy": {"decoupled": True},
        "dynamic_batching": {"max_queue_delay_microseconds": 10_000_000},
    }


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("slow")
    models = ModelRepository(folder / "models")
    decoupled = decoupled_config(folder)
    caller = {key: decoupled[key] for key in ("backend", "input", "parameters", "instance_group")}
    output = [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [2]}]
    models.python("threads", THREADS, decoupled)
    models.python("threads_of_events", THREADS, decoupled)
    models.python("alone", THREADS, {**decoupled, "dynamic_batching": {}})
    models.python("in_turn", IN_TURN, decoupled)
    for name in ("caller", "idle_caller"):
        models.python(name, CALLER, {**caller, "max_batch_size": 2, "output": output})
    for name, parameters in (
        ("threaded", {}),
        ("isolated", {"TRITONPY_ISOLATION": {"string_value": "process"}}),
    ):
        numbers = [("IN", "TYPE_INT32", -1), ("DELAY", "TYPE_UINT32", -1), ("WAIT", "TYPE_UINT32", 1)]
        outputs = [("OUT", "TYPE_INT32", 1), ("IDX", "TYPE_UINT32", 1)]
        models.model(
            name,
            {
                "backend": "repeat",
                "max_batch_size": 0,
                "input": [{"name": key, "data_type": kind, "dims": [dim]} for key, kind, dim in numbers],
                "output": [{"name": key, "data_type": kind, "dims": [dim]} for key, kind, dim in outputs],
                "parameters": parameters,
                "model_transaction_policy": {"decoupled": True},
            },
        )
    with ServerProcess("--model-repository", models.path, *LIMITS) as server:
        yield Served(server, folder)


@pytest.fixture(scope="module")
def never_read(served: Served) -> Iterator[dict[str, Stream]]:
    """Streams whose time to be read runs out while other tests run."""
    streams = {model: ask_repeat(served, model) for model in ("threaded", "isolated")}
    streams["caller"] = Stream(served, "idle_caller", "idle", 100)
    yield streams
    for stream in streams.values():
        stream.close()


def ask_repeat(served: Served, model: str) -> Stream:
    # Its id makes each response so large that the system's buffers do not hold all of them.
    message = service_pb2.ModelInferRequest(model_name=model, id="x" * 10_000)
    for name, kind, values in (
        ("IN", "INT32", np.arange(REPEATS)),
        ("DELAY", "UINT32", np.zeros(REPEATS)),
        ("WAIT", "UINT32", np.zeros(1)),
    ):
        message.inputs.add(name=name, datatype=kind, shape=[len(values)])
        message.raw_input_contents.append(values.astype(kind.lower()).tobytes())
    return Stream(served, model, "", 0, message=message)


@pytest.mark.usefixtures("never_read")
def test_a_batch_mate_of_a_client_that_does_not_read_never_notices(served: Served) -> None:
    # As JSON the same bytes are three times as many, and take longer than others should wait for.
    cases = [(Stream, "threads", MEBIBYTE), (EventStream, "threads_of_events", 1 << 18)]
    count = 300
    slow = [kind(served, model, f"slow-{model}", count, size) for kind, model, size in cases]
    mates = [Stream(served, model, f"mate-{model}", count, size) for _, model, size in cases]

    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(mate.read) for mate in mates]

    assert [answer.result() for answer in answers] == [count, count]
    for _, model, size in cases:
        sent_meanwhile = served.sent(f"slow-{model}")
        until(lambda model=model: served.journal(f"slow-{model}")[-2:] == ["cancelled", "end"], model)

        assert served.executions(model) == 1  # they were one batch
        # It waits; how far it came is what the server, sockets and a window hold.
        assert sent_meanwhile < count
        assert sent_meanwhile * size < 40 * MEBIBYTE
        until(lambda model=model: served.counted(model) == {"success": 1, "CANCELED": 1}, model)
    over_grpc, events = slow
    with pytest.raises(grpc.RpcError) as ended:
        over_grpc.read()
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    assert TOO_SLOW in ended.value.details()
    events.read()
    assert isinstance(events, EventStream)
    assert TOO_SLOW.encode() in events.last
    for each in (*slow, *mates):
        each.close()


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Served]:
    """A server that soon gives up who does not read: here nobody is to be read in time."""
    models = ModelRepository(tmp_path / "models")
    models.python("alone", THREADS, {**decoupled_config(tmp_path), "dynamic_batching": {}})
    with ServerProcess("--model-repository", models.path, *LIMITS, "--slow-client-timeout=0.3") as server:
        yield Served(server, tmp_path)


def test_memory_stays_bounded_whatever_is_offered(hasty: Served) -> None:
    before = [memory(pid) for pid in hasty.processes]
    opened: list[list[int]] = []
    for attempt in range(6):
        slow = [Stream(hasty, "alone", f"bounded-{attempt}-{index}", 200) for index in range(2)]
        for index in range(2):
            id = f"bounded-{attempt}-{index}"
            until(lambda id=id: hasty.journal(id)[-1:] == ["end"], lambda id=id: hasty.journal(id))
        for stream in slow:
            stream.close()
        until(lambda: connections(hasty.processes[0]) == 0)
        opened.append(at_rest(lambda: [descriptors(pid) for pid in hasty.processes]))
        # Shared memory that was needed once is kept open; how much is, depends on how fast each of them was.
        if attempt and all(now <= most for now, most in zip(*opened[-1:-3:-1], strict=True)):
            break
    else:
        pytest.fail(f"every time more files are open: {opened}")

    grown = [highest_memory(pid) - was for pid, was in zip(hasty.processes, before, strict=True)]
    assert max(grown) < 100 * MEBIBYTE, grown  # 800 MiB were on offer


def test_a_client_that_reads_slowly_gets_everything(served: Served) -> None:
    stream = Stream(served, "alone", "steady", 60)
    until(lambda: served.sent("steady") >= 8)
    numbers = []
    for message in stream.call:
        numbers.append(message.infer_response.raw_output_contents[0][0])
        time.sleep(SLOW_S / 50)  # all of it takes longer than --slow-client-timeout
    stream.close()

    assert numbers == list(range(60))
    assert served.journal("steady")[-2:] == ["60", "end"]


def test_a_sender_that_waits_lets_other_requests_of_its_worker_through(served: Served) -> None:
    slow = Stream(served, "alone", "waits", 100)
    until(lambda: served.sent("waits") >= 8)

    others = [Stream(served, "alone", f"other-{index}", 3, 1000) for index in range(5)]
    answers = []
    for stream in others:
        answers.append(stream.read())
        next(slow.call)  # slow, but not too slow
    is_waiting = served.journal("waits")[-1:] != ["end"]

    assert answers == [3] * 5
    assert is_waiting
    for stream in (slow, *others):
        stream.close()
    until(lambda: served.journal("waits")[-1:] == ["end"])


def test_a_model_that_answers_its_batch_on_one_thread_waits_for_nobody(served: Served) -> None:
    slow = Stream(served, "in_turn", "stalled", 100)
    mate = Stream(served, "in_turn", "turn-mate", 100)
    answers = mate.read()

    assert answers == 100
    assert "cancelled" in served.journal("stalled")
    with pytest.raises(grpc.RpcError, match=r"responses of \d+ bytes wait for"):
        slow.read()
    until(
        lambda: served.counted("in_turn") == {"success": 1, "CANCELED": 1}, lambda: served.counted("in_turn")
    )
    slow.close()
    mate.close()


def test_a_caller_that_does_not_read_its_iterator_holds_the_called_model_back(served: Served) -> None:
    asked = Stream(served, "caller", "reads", 40)
    until(lambda: served.sent("reads-call") >= 8)
    time.sleep(0.3)
    sent = served.sent("reads-call")
    (served.folder / "reads-read").touch()

    assert asked.read() == 1
    assert sent < 40
    assert json.loads((served.folder / "reads-got").read_text()) == [40, ""]
    asked.close()


def test_a_caller_that_never_reads_its_iterator_loses_the_call(
    served: Served, never_read: dict[str, Stream]
) -> None:
    until(lambda: served.journal("idle-call")[-2:] == ["cancelled", "end"])
    (served.folder / "idle-read").touch()

    assert never_read["caller"].read() == 1
    count, error = json.loads((served.folder / "idle-got").read_text())
    assert count < 40
    assert TOO_SLOW in error


@pytest.mark.parametrize("model", ["threaded", "isolated"])
def test_plugins_wait_for_their_clients_on_threads_and_in_processes(
    served: Served, never_read: dict[str, Stream], model: str
) -> None:
    until(lambda: served.counted(model) == {"CANCELED": 1}, f"{model} gave up")
    with pytest.raises(grpc.RpcError, match="--slow-client-timeout"):
        never_read[model].read()
    reads = ask_repeat(served, model)
    numbers = [
        np.frombuffer(answer.infer_response.raw_output_contents[0], np.int32)[0] for answer in reads.call
    ]
    reads.close()

    assert numbers == list(range(REPEATS))
    until(lambda: served.counted(model) == {"CANCELED": 1, "success": 1}, f"{model} counted")


def test_a_worker_that_dies_in_the_middle_of_a_stream_ends_it_with_an_error(served: Served) -> None:
    before = served.counted("alone")
    stream = Stream(served, "alone", "dies", 100)
    until(lambda: served.sent("dies") >= 8)
    os.kill(int((served.folder / "pid-alone").read_text()), signal.SIGKILL)

    messages = list(stream.call)
    stream.close()

    assert messages[-1].error_message.startswith("Stub process 'alone_0_0' is not healthy")
    assert messages[-1].infer_response.parameters["triton_final_response"].bool_param
    until(lambda: served.counted("alone").get("BACKEND", 0) == before.get("BACKEND", 0) + 1)
    again = Stream(served, "alone", "lives", 3, 1000)
    assert again.read() == 3
    again.close()


def test_a_stream_that_is_cancelled_takes_its_request_out_of_the_queue(served: Served) -> None:
    busy = Stream(served, "caller", "busy", 1)
    until(lambda: served.sent("busy-call") == 1)  # it is executed
    before = served.counted("caller").get("CANCELED", 0)
    waiting = Stream(served, "caller", "waiting", 1)
    until(lambda: served.pending("caller") == 1)
    waiting.call.cancel()
    until(lambda: served.counted("caller").get("CANCELED", 0) == before + 1)
    (served.folder / "busy-read").touch()

    assert busy.read() == 1
    assert not (served.folder / "waiting-got").exists()
    for stream in (busy, waiting):
        stream.close()
