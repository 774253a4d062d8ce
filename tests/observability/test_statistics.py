"""What is counted when, by experiments that are the same on our server and on a real one.

Each experiment has a model of its own. A request with 0 is executed until the test opens the gate: what is
sent meanwhile waits, and goes together if the model batches.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..counting import comes_to
from .conftest import TENSORS, Counted

MODEL = """
import json
import pathlib
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = pathlib.Path(json.loads(args["model_config"])["parameters"]["folder"]["string_value"])
        self.name = args["model_name"]

    def execute(self, requests):
        responses = []
        for request in requests:
            numbers = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            if numbers[0][0] == 0:
                (self.folder / f"{self.name}.begun").touch()
                while not (self.folder / f"{self.name}.open").exists():
                    time.sleep(0.001)
            if numbers[0][0] == -1:
                raise ValueError("no")
            if numbers[0][0] == -2:
                responses.append(pb_utils.InferenceResponse(error=pb_utils.TritonError("not this one")))
            else:
                responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numbers)]))
        return responses
"""

BATCHED = {"dynamic_batching": {"default_queue_policy": {"max_queue_size": 100}}}
Counts = dict[str, Any]


class Experiment:
    """One model of one server, and what it has counted.

    Args:
        cancel_s: how long the server may take to see that a request which waits is given up.
    """

    def __init__(
        self, name: str, server: Counted, grpc_port: int, folder: Path, *, cancel_s: float = 20
    ) -> None:
        self.name, self.server, self._grpc_port, self._folder = name, server, grpc_port, folder
        self._cancel_s = cancel_s
        self.pool = ThreadPoolExecutor(10)
        self._held: list[Future[int]] = []

    def ask(self, *numbers: float) -> int:
        """The status."""
        return self.server.infer(self.name, *numbers)

    def hold(self) -> None:
        """Have the instance at a request until `open`."""
        self._held.append(self.pool.submit(self.ask, 0))
        until(lambda: (self._folder / f"{self.name}.begun").exists())

    def queue(self, *numbers: float) -> Future[int]:
        """Send a request, and return when it waits."""
        before = self.waiting
        answer = self.pool.submit(self.ask, *numbers)
        until(lambda: self.waiting == before + 1)
        return answer

    def open(self) -> None:
        (self._folder / f"{self.name}.open").touch()
        for held in self._held:
            assert held.result(20) == 200

    def cancel_a_queued_one(self) -> None:
        """Queue a request over gRPC, and give it up."""
        given = grpcclient.InferInput("IN", [1, 1], "FP32")
        given.set_data_from_numpy(np.ones((1, 1), np.float32))
        with grpcclient.InferenceServerClient(f"127.0.0.1:{self._grpc_port}") as client:
            call = client.async_infer(self.name, [given], callback=lambda result, error: None)
            until(lambda: self.waiting == 1)
            call.cancel()
            end = time.monotonic() + self._cancel_s
            while self.waiting and time.monotonic() < end:
                time.sleep(0.005)

    @property
    def waiting(self) -> int:
        line = rf'^nv_inference_pending_request_count{{model="{self.name}",version="1"}} (\d+)$'
        match = re.search(line, self.server.page(), re.MULTILINE)
        assert match is not None
        return int(match[1])

    def counts(self) -> Counts:
        """What is not 0."""
        [stats] = self.server.json(f"models/{self.name}/stats")["model_stats"]
        phases = {phase: int(leaf["count"]) for phase, leaf in stats["inference_stats"].items()}
        reasons = re.findall(
            rf'^nv_inference_request_failure{{model="{self.name}",reason="(\w+)",version="1"}} (\d+)$',
            self.server.page(),
            re.MULTILINE,
        )
        found = phases | {
            "inferences": stats["inference_count"],
            "executions": stats["execution_count"],
            "sizes": {batch["batch_size"]: batch["compute_infer"]["count"] for batch in stats["batch_stats"]},
            **{reason: int(count) for reason, count in reasons},
        }
        return {key: value for key, value in found.items() if value}


def done(count: int, rows: int, executions: int, sizes: dict[int, int], **more: Any) -> Counts:
    """What so many successful requests count."""
    phases = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    return dict.fromkeys(phases, count) | {
        "inferences": rows,
        "executions": executions,
        "sizes": sizes,
        **more,
    }


def rows(asked: Experiment) -> None:
    assert asked.ask(1, 2, 3) == 200
    assert asked.ask(1) == 200


def raises(asked: Experiment) -> None:
    assert asked.ask(-1) == 500


def error_in_a_response(asked: Experiment) -> None:
    assert asked.ask(-2) == 500


def batch_with_an_error(asked: Experiment) -> None:
    asked.hold()
    answers = [asked.queue(number) for number in (1, -2, 3)]
    asked.open()
    assert [answer.result(20) for answer in answers] == [200, 500, 200]


def batch_that_raises(asked: Experiment) -> None:
    asked.hold()
    answers = [asked.queue(number) for number in (1, -1, 3)]
    asked.open()
    assert [answer.result(20) for answer in answers] == [500, 500, 500]


def full_queue(asked: Experiment) -> None:
    asked.hold()
    waiting = asked.queue(1)
    assert asked.ask(1) == 503
    asked.open()
    assert waiting.result(20) == 200


def expired(asked: Experiment) -> None:
    asked.hold()
    waiting = asked.pool.submit(asked.ask, 1)
    assert waiting.result(20) == 503
    asked.open()


def unfit(asked: Experiment) -> None:
    assert asked.ask(*range(9)) == 400  # more rows than max_batch_size
    assert asked.ask(1) == 200


def cancelled_in_the_queue(asked: Experiment) -> None:
    asked.hold()
    asked.cancel_a_queued_one()
    asked.open()
    until(lambda: asked.waiting == 0)


def cached(asked: Experiment) -> None:
    assert [asked.ask(1, 2) for _ in range(3)] == [200] * 3


def ensemble(asked: Experiment) -> None:
    assert [asked.ask(1, 2) for _ in range(3)] == [200] * 3


def failing_ensemble(asked: Experiment) -> None:
    assert asked.ask(-1) == 500


def chain(step: str) -> Counts:
    tensors = {"input_map": {"IN": "IN"}, "output_map": {"OUT": "OUT"}}
    return {
        "platform": "ensemble",
        "max_batch_size": 8,
        "input": TENSORS["input"],
        "output": TENSORS["output"],
        "ensemble_scheduling": {"step": [{"model_name": step, "model_version": -1, **tensors}]},
    }


def policy(**settings: int) -> Counts:
    return {"dynamic_batching": {"default_queue_policy": settings}}


# what is done, the model's configuration, what is counted, and what the real server counts otherwise
EXPERIMENTS: dict[str, tuple[Callable[[Experiment], None], Counts, Counts, Counts]] = {
    "rows": (rows, {}, done(2, 4, 2, {1: 1, 3: 1}), {}),
    "raises": (raises, {}, {"fail": 1, "executions": 1, "sizes": {1: 1}, "BACKEND": 1}, {}),
    "error": (error_in_a_response, {}, done(1, 1, 1, {1: 1}), {}),
    "batch_error": (batch_with_an_error, BATCHED, done(4, 4, 2, {1: 1, 3: 1}), {}),
    "batch_raises": (batch_that_raises, BATCHED, done(1, 1, 2, {1: 1, 3: 1}, fail=3, BACKEND=3), {}),
    "full": (full_queue, policy(max_queue_size=1), done(2, 2, 2, {1: 2}), {}),
    "expired": (
        expired,
        policy(default_timeout_microseconds=1_000_000),  # the first one must not wait as long
        done(1, 1, 1, {1: 1}, fail=1, REJECTED=1),
        {},
    ),
    "unfit": (unfit, {}, done(1, 1, 1, {1: 1}), {}),
    "cancelled": (cancelled_in_the_queue, BATCHED, done(1, 1, 1, {1: 1}, fail=1, CANCELED=1), {}),
    "cached": (
        cached,
        {"response_cache": {"enable": True}},
        done(1, 2, 1, {2: 1}, success=3, queue=3, cache_hit=2, cache_miss=1),
        {},
    ),
    "ensemble": (ensemble, chain("plain_step"), done(3, 6, 3, {2: 3}), {}),
    # Each failed request of an ensemble is counted twice there.
    "failing": (failing_ensemble, chain("failing_step"), {"fail": 1, "OTHER": 1}, {"fail": 2, "OTHER": 2}),
}


def write_models(folder: Path) -> Path:
    models = ModelRepository(folder / "models")
    said = {"parameters": {"folder": {"string_value": str(folder)}}}
    for name, (_, config, _, _) in EXPERIMENTS.items():
        if "ensemble_scheduling" in config:
            models.model(name, config)
        else:
            models.python(name, MODEL, {**TENSORS, **config, **said})
    for name in ("plain_step", "failing_step"):
        models.python(name, MODEL, {**TENSORS, **said})
    return models.path


CACHE = (("local", "size", "1000000"),)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Experiment]]:
    folder = tmp_path_factory.mktemp("ours")
    ports = dict.fromkeys(("http_port", "grpc_port", "metrics_port"), 0)
    hosts = dict.fromkeys(("http_address", "grpc_address", "metrics_address"), "127.0.0.1")
    options = ServerOptions((str(write_models(folder)),), cache_config=CACHE, **ports, **hosts)  # type: ignore[arg-type]
    with Server(options) as server, ExitStack() as stack:

        def begin(name: str) -> Experiment:
            counted = Counted(server.http_port, server.metrics_port)
            made = Experiment(name, counted, server.grpc_port, folder)
            stack.callback(made.pool.shutdown)
            return made

        yield begin


@pytest.fixture(scope="module")
def theirs(
    real_triton: Callable[..., dict[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Experiment]]:
    folder = tmp_path_factory.mktemp("theirs")
    ports = real_triton(write_models(folder), "--cache-config=local,size=1000000")
    with ExitStack() as stack:

        def begin(name: str) -> Experiment:
            asked = Counted(ports["http"], ports["metrics"])
            # This one may look at its queue only when the instance is idle.
            made = Experiment(name, asked, ports["grpc"], folder, cancel_s=3)
            stack.callback(made.pool.shutdown)
            return made

        yield begin


def check(asked: Experiment, expected: Counts) -> None:
    EXPERIMENTS[asked.name][0](asked)
    assert comes_to(asked.counts, expected) == expected


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_ours_counts_so(name: str, ours: Callable[[str], Experiment]) -> None:
    check(ours(name), EXPERIMENTS[name][2])


@pytest.mark.parity
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_real_server_counts_so_too(name: str, theirs: Callable[[str], Experiment]) -> None:
    _, _, expected, otherwise = EXPERIMENTS[name]
    check(theirs(name), expected | otherwise)


def test_the_time_of_a_request_is_more_than_that_of_its_phases(ours: Callable[[str], Experiment]) -> None:
    asked = ours("unfit")
    assert asked.ask(5) == 200
    until(lambda: asked.counts().get("success", 0) > 0)

    [stats] = asked.server.json("models/unfit/stats")["model_stats"]
    taken = {phase: leaf["ns"] for phase, leaf in stats["inference_stats"].items()}
    phases = sum(taken[phase] for phase in ("queue", "compute_input", "compute_infer", "compute_output"))
    assert 0 < phases <= taken["success"]
    assert abs(time.time() * 1000 - stats["last_inference"]) < 60_000
