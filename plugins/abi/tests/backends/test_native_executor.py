"""The executor of an instance in C: whatever goes wrong on the way, each request is answered once."""

from __future__ import annotations

import gc
import os
import select
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.plugin import Executed, InferRequest, InferResponse, ModelInstance, Tensor, TritonError
from tritonpy_abi.backends import open_backend
from tritonpy_abi.backends.answers import Answers
from tritonpy_abi.backends.native_executor import NativeExecutor
from tritonpy_abi.strategies.request_blocks import RequestBlocks
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import BackendDriver, DrivenModel

from ..conftest import Compiled

INPUT = {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
OUTPUT = {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
BATCHING = {"max_batch_size": 8, "input": [INPUT], "output": [OUTPUT]}
STATE = {"input_name": "S", "output_name": "T", "data_type": "TYPE_INT32", "dims": [1]}
MODELS: dict[str, dict[str, Any]] = {
    "copies": BATCHING,
    "streams": {**BATCHING, "max_batch_size": 0, "model_transaction_policy": {"decoupled": True}},
    "remembers": {**BATCHING, "sequence_batching": {"state": [STATE]}},
    "again": {**BATCHING, "sequence_batching": {"iterative_sequence": True}},
}


@pytest.fixture
def driver(library: Path, compiled: Compiled, tmp_path: Path) -> BackendDriver:
    repository = ModelRepository(tmp_path)
    for name, config in MODELS.items():
        repository.model(name, {"backend": "SharedBackend", **config})
    return BackendDriver(open_backend(compiled("backends/copying.c", "-pthread")), tmp_path)


@pytest.fixture
def copies(driver: BackendDriver) -> Iterator[DrivenModel]:
    with driver.load("copies") as model:
        yield model


class Running:
    """An instance's executor on a thread of its own, fed and read by the test.

    Attributes:
        answers: what each request got, by its id.
    """

    def __init__(self, instance: ModelInstance) -> None:
        assert isinstance(instance.executor, NativeExecutor)
        self.executor = instance.executor
        self.answers: dict[str, list[Any]] = {}
        self._descriptor = self.executor.fileno()
        self._thread = threading.Thread(target=self.executor.run)
        self._batches = 0

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert final
        self._note(request.id, response)

    def _note(self, id: str, response: InferResponse | None) -> None:
        assert response is not None
        seen = response.error.message if response.error is not None else response.outputs[0].numpy().tolist()
        self.answers.setdefault(id, []).append(seen)

    def begin(self) -> None:
        self._thread.start()

    def submit(self, *requests: InferRequest) -> int:
        for request in requests:
            request.ticket.outbox = self
        self._batches += 1
        self.executor.submit(self._batches, requests)
        return self._batches

    def take(self, ids: Sequence[str] = ()) -> Executed | None:
        """The execution that is over next; answers to these ids come without one."""
        while not ids or not all(id in self.answers for id in ids):
            assert select.select([self._descriptor], [], [], 60)[0], "nothing happens"
            executed = self.executor.take()
            if executed:
                (only,) = executed
                return only
        return None

    def answer(self, *requests: InferRequest) -> Executed:
        """Execute a batch, and note what its requests are answered."""
        number = self.submit(*requests)
        executed = self.take()
        assert executed is not None
        assert executed.batch == number
        outcome = executed.outcome
        if isinstance(outcome, TritonError):
            outcome = [InferResponse(error=outcome) for _ in requests]
        for request, response in zip(requests, outcome or (), strict=False):
            request.ticket.outbox = None
            self._note(request.id, response)
        return executed

    def end(self) -> None:
        self.executor.stop()
        if self._thread.ident is not None:
            self._thread.join(60)
            assert not self._thread.is_alive()


@pytest.fixture
def running(copies: DrivenModel) -> Iterator[Running]:
    (instance,) = copies.instances
    found = Running(instance)
    found.begin()
    yield found
    found.end()
    copies.close()
    found.executor.close()
    found.executor.close()  # which does no harm


def request(id: str, *numbers: int, do: str = "", **attributes: Any) -> InferRequest:
    tensor = Tensor.from_numpy("INPUT0", np.array([numbers], np.int32))
    parameters = {"do": do} if do else None
    return InferRequest("copies", {"INPUT0": tensor}, id=id, parameters=parameters, **attributes)


def test_a_batch_is_answered_in_its_order(running: Running) -> None:
    executed = running.answer(request("a", 1, 2), request("b", *range(70_000)), request("c"))

    assert running.answers == {"a": [[[1, 2]]], "b": [[[*range(70_000)]]], "c": [[[]]]}
    start, compute_start, compute_end, end = executed.times
    assert start <= compute_start < compute_end == compute_start + 1
    assert start <= end


def test_errors_and_parameters_are_those_of_their_requests(running: Running) -> None:
    running.answer(request("a", 1, do="error"), request("b", 2), request("c", 3, do="shorten"))
    described = running.answer(request("d", 4, do="describe"))

    assert running.answers["a"] == ["the request was told to fail"]
    assert running.answers["b"] == [[[2]]]
    (fault,) = running.answers["c"]
    assert "has a buffer of 3 bytes, expected 4" in fault
    assert isinstance(described.outcome, list)
    assert described.outcome[0].parameters["instance"] == "copies_0"


def test_an_error_of_the_execution_is_that_of_the_batch(running: Running) -> None:
    running.answer(request("a", 1), request("b", 2, do="refuse"))
    running.answer(request("c", 3))

    assert running.answers == {
        "a": ["the batch was told to fail"],
        "b": ["the batch was told to fail"],
        "c": [[[3]]],
    }


def test_threads_of_the_backend_answer_when_they_like(running: Running) -> None:
    running.answer(request("a", 1, do="later"), request("b", 2), request("c", 3, do="later"))
    running.take(ids="abc")

    assert running.answers == {"a": [[[1]]], "b": [[[2]]], "c": [[[3]]]}


def test_a_request_that_is_forgotten_is_answered_when_it_is_garbage(running: Running) -> None:
    executed = running.answer(request("a", 1, do="forget"))
    assert executed.outcome is None
    gc.collect()

    (answer,) = running.answers["a"]
    assert "dropped the request without a final response" in answer


def test_many_batches_wait_at_once_and_come_back_in_their_order(running: Running) -> None:
    expected = [running.submit(request(str(number), number)) for number in range(200)]
    seen: list[int] = []
    while len(seen) < len(expected):
        assert select.select([running._descriptor], [], [], 60)[0]
        for executed in running.executor.take():
            seen.append(executed.batch)
            assert isinstance(executed.outcome, list)
            assert executed.outcome[0].outputs[0].numpy().tolist() == [[executed.batch - 1]]

    assert seen == expected


def test_what_was_taken_back_is_not_executed_and_nothing_is_kept_of_it(copies: DrivenModel) -> None:
    (instance,) = copies.instances
    running = Running(instance)
    first, second = request("a", 1), request("b", 2)
    seen = weakref.ref(second)
    kept, back = running.submit(first), running.submit(second)

    assert running.executor.withdraw(back)
    assert not running.executor.withdraw(back)
    second.ticket.outbox = None
    del second
    assert seen() is None
    running.begin()
    executed = running.take()
    assert executed is not None
    assert executed.batch == kept
    assert not running.executor.withdraw(kept)
    running.end()
    assert running.executor.take() == []
    copies.close()
    running.executor.close()


class Fault(Exception):
    pass


def fail(*_: object, **__: object) -> Any:
    raise Fault("no more")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (RequestBlocks, "fill"),
        (InferRequest, "cancel_flag"),
        (Answers, "ask"),
        (Answers, "_describe_trace"),
    ],
)
def test_a_batch_that_cannot_be_submitted_leaves_nothing(
    running: Running, monkeypatch: pytest.MonkeyPatch, place: type, name: str
) -> None:
    calls: list[int] = []
    real = getattr(place, name)

    def fail_second(*arguments: Any, **more: Any) -> Any:
        calls.append(1)
        return fail() if len(calls) % 2 == 0 or name == "ask" else real(*arguments, **more)

    first, second = request("a", 1), request("b", 2)
    seen = weakref.ref(first)
    if name == "_describe_trace":
        for each in (first, second):
            each.ticket.trace = Trace()  # type: ignore[assignment]
    with monkeypatch.context() as patch:
        patch.setattr(place, name, fail_second)
        with pytest.raises(Fault):
            running.submit(first, second)
    first.ticket.outbox = second.ticket.outbox = None
    del first, second
    gc.collect()
    running.answer(request("c", 3))

    assert seen() is None
    assert running.answers == {"c": [[[3]]]}


class Trace:
    id, parent_id, context = 1, 0, None


def test_a_batch_that_the_library_does_not_take_is_forgotten(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = request("a", 1)
    with monkeypatch.context() as patch:
        patch.setattr(running.executor, "_lib", type("Lib", (), {"TRITONPY_ExecutorSubmit": fail}))
        with pytest.raises(Fault):
            running.submit(given)
    assert running.executor._batches == {}
    running.answer(given)

    assert running.answers == {"a": [[[1]]]}


@pytest.mark.parametrize(
    "name", ["_packed_response", "_read_kind", "_own", "_response", "_answer", "_release"]
)
def test_a_response_that_cannot_be_handed_on_costs_its_own_batch(
    running: Running, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given = [request("a", *range(10_000)), request("b", 1)]
    with monkeypatch.context() as patch:
        patch.setattr(
            Answers, "_log_failure", lambda self: None
        )  # pytest keeps what is logged, and its frames
        patch.setattr(Answers, name, fail)
        executed = running.answer(*given)
    del given
    gc.collect()
    running.answer(request("c", *range(10_000)))

    if name != "_release":  # of which a client sees nothing
        assert [len(running.answers[id]) for id in "ab"] == [1, 1], executed
        assert any(text in str(running.answers["a"]) for text in ("cannot be handed on", "dropped"))
    assert running.answers["c"] == [[[*range(10_000)]]]


def test_what_is_still_sent_when_it_is_closed_is_dropped(copies: DrivenModel) -> None:
    (instance,) = copies.instances
    running = Running(instance)
    running.begin()
    held = request("a", 1, do="later")
    running.submit(held)
    running.end()
    running.executor.close()
    copies.close()  # which waits for the backend's threads

    held.ticket.outbox = None
    assert running.answers in ({}, {"a": [[[1]]]})


def test_it_costs_a_worker_no_descriptor(copies: DrivenModel) -> None:
    (instance,) = copies.instances
    before = len(os.listdir("/proc/self/fd"))
    assert isinstance(instance.executor, NativeExecutor)
    copies.execute([request("a", 1)])
    instance.executor.stop()

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["streams", "remembers", "again"])
def test_models_that_may_wait_for_clients_or_have_states_are_executed_by_the_hook(
    driver: BackendDriver, name: str
) -> None:
    with driver.load(name) as model:
        assert [instance.executor for instance in model.instances] == [None]
