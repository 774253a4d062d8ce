"""Models of an ensemble that come and go while it answers: no request is lost, none is answered by a mix."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from .conftest import Start
from .models import step, write_ensemble, write_model

RELOADS = 6
CLIENTS = 4

# Waits in the middle of an execution until it is let go.
GATED = """
import os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        open({began!r}, "w").close()
        while not os.path.exists({gate!r}):
            time.sleep(0.002)
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())]) for request in requests]
"""


def chain(models: ModelRepository) -> None:
    for name in "abc":
        write_model(models, name)
    steps = [
        step("a", {"X": "IN"}, {"Y": "T"}),
        step("b", {"X": "T"}, {"Y": "U"}),
        step("c", {"X": "U"}, {"Y": "OUT"}),
    ]
    write_ensemble(models, "inner", steps)
    write_ensemble(models, "outer", [step("inner", {"IN": "IN"}, {"OUT": "OUT"})])


def test_no_request_is_lost_while_models_are_reloaded(start_ours: Start, tmp_path: Path) -> None:
    models = ModelRepository(tmp_path)
    chain(models)
    side = start_ours(tmp_path, mode="explicit")
    side.load("outer")
    is_over = threading.Event()

    def ask() -> list[int]:
        seen: list[int] = side.out("outer", 0)  # once at least, however late this thread is
        while not is_over.is_set():
            seen += side.out("outer", 0)
        return seen

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(ask) for _ in range(CLIENTS)]
        try:
            for number in range(2, 2 + RELOADS):
                name = "abc"[number % 3]
                write_model(models, name, number=10**number)
                assert side.load(name) == (200, "")
                assert side.out("outer", 0)[0] % 10 ** (number + 1) >= 10**number  # it is used at once
        finally:
            is_over.set()
        answers = [client.result() for client in clients]

    assert all(answers)
    assert side.statistics("outer")["inference_stats"]["fail"]["count"] == 0
    # Three models answered each request, as they stood at one moment between two reloads.
    numbers = {"a": 1, "b": 1, "c": 1}
    possible = {3}
    for number in range(2, 2 + RELOADS):
        numbers["abc"[number % 3]] = 10**number
        possible.add(sum(numbers.values()))
    assert {answer for seen in answers for answer in seen} <= possible


def test_a_request_goes_on_with_the_models_it_began_with(start_ours: Start, tmp_path: Path) -> None:
    gate, began = tmp_path / "gate", tmp_path / "began"
    models = ModelRepository(tmp_path / "models")
    chain(models)
    write_model(models, "a", GATED.format(gate=str(gate), began=str(began)))
    side = start_ours(models.path, mode="explicit")
    side.load("outer")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(side.out, "outer", 0)
        until(lambda: began.exists() or answer.done())
        assert not answer.done()

        side.unload("c")
        write_model(models, "b", number=50)
        side.load("b")
        assert side.refusal("outer", 0)[0] == 404
        gate.touch()

        assert answer.result() == [2]  # of the old `b` and of `c`, which is closed only now
    assert side.states("c", "outer") == {
        "c": ("UNAVAILABLE", "unloaded"),
        "outer": ("UNAVAILABLE", "unloaded"),
    }


def test_a_server_that_stops_lets_ensembles_finish_before_their_models_go(
    start_ours: Start, tmp_path: Path
) -> None:
    gate, began = tmp_path / "gate", tmp_path / "began"
    models = ModelRepository(tmp_path / "models")
    chain(models)
    write_model(models, "a", GATED.format(gate=str(gate), began=str(began)))
    with ThreadPoolExecutor(2) as pool:
        side = start_ours(models.path)
        answer = pool.submit(side.out, "outer", 0)
        until(lambda: began.exists() or answer.done())
        assert not answer.done()
        stopped = pool.submit(side.stop)

        until(lambda: stopped.done() or not side_is_open(side.http_port))
        assert not stopped.done()
        gate.touch()

        assert answer.result() == [2]
        stopped.result()


def side_is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
