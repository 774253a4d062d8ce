"""However clients behave: what is held for them is given back, and every request is counted once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.model.model import LoadedModel
from tritonpy.plugin import InferRequest, InferResponse, InvalidArg, hookimpl
from tritonpy.request import ResponseSink
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import local_options

TENSOR = {"data_type": "TYPE_FP32", "dims": [-1]}
ECHO = {"input": [{"name": "INPUT0", **TENSOR}], "output": [{"name": "OUTPUT0", **TENSOR}]}
SLOW = {"execute_delay_ms": {"string_value": "15"}}
REPEAT = {
    "backend": "repeat",
    "model_transaction_policy": {"decoupled": True},
    "input": [
        {"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]},
        {"name": "DELAY", "data_type": "TYPE_UINT32", "dims": [-1]},
        {"name": "WAIT", "data_type": "TYPE_UINT32", "dims": [1]},
    ],
    "output": [
        {"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]},
        {"name": "IDX", "data_type": "TYPE_UINT32", "dims": [1]},
    ],
}
LIMIT = 200_000
ENDS = {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "INTERNAL"}


@hookimpl
def model_instance_execute(instance: Any, requests: Sequence[InferRequest]) -> list[InferResponse] | None:
    """Give up a third of the requests in each way: an error, an exception, no answer at all."""
    kind = requests[0].input("INPUT0").byte_size // 4 % 3
    if kind == 0:
        return [InferResponse(error=InvalidArg("no"))]
    if kind == 1:
        raise ValueError("boom")
    return None


class Load:
    """Clients of all tempers.

    Attributes:
        ends: how their calls ended.
        told: what well-behaved streams were sent by the model `told`; refusals for lack of room are left out.
    """

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._random = random.Random(4)
        self.ends: Counter[str] = Counter()
        self.told: list[Any] = []

    def run(self) -> None:
        """Ask until calls have ended in all ways: how many do in which depends on how busy the machine is."""
        for _ in range(5):
            self._ask_all()
            if set(self.ends) >= ENDS:
                return

    def _ask_all(self) -> None:
        kinds = [self._unary] * 200 + [self._stream] * 40 + [self._listen] * 20
        self._random.shuffle(kinds)
        with ThreadPoolExecutor(24) as clients:
            for ended in [clients.submit(kind) for kind in kinds]:
                ended.result()

    def _unary(self) -> None:
        chance = self._random
        request = numbers(
            chance.choice(["echo", "slow", "gives_up", "nope", "streams"]), chance.choice([1, 2, 3, 30_000])
        )
        call = self._stub.ModelInfer.future(request, timeout=chance.choice([0.01, 0.05, 30]))
        if chance.random() < 0.3:
            time.sleep(chance.random() * 0.03)
            call.cancel()
        self.ends[call.code().name] += 1

    def _stream(self) -> None:
        chance = self._random
        kinds = [numbers("echo", 2), numbers("slow", 30_000), numbers("gives_up", 2), repeats([1] * 20)]
        requests = [chance.choice(kinds) for _ in range(chance.randrange(6))]
        call = self._stub.ModelStreamInfer(paced(requests), timeout=chance.choice([0.05, 30]))
        if chance.random() < 0.3:
            time.sleep(chance.random() * 0.1)
            call.cancel()
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass  # see its code
        self.ends[call.code().name] += 1

    def _listen(self) -> None:
        requests = [repeats([0] * self._random.randrange(4), "told") for _ in range(3)]
        answers = self._stub.ModelStreamInfer(paced(requests), timeout=30)
        self.told.extend(answer for answer in answers if not answer.error_message)


def paced(requests: Sequence[Any]) -> Iterator[Any]:
    for request in requests:
        yield request
        time.sleep(0.003)


def numbers(model: str, count: int) -> Any:
    message = service_pb2.ModelInferRequest(model_name=model)
    message.inputs.add(name="INPUT0", datatype="FP32", shape=[count])
    message.raw_input_contents.append(bytes(4 * count))
    return message


def repeats(delays_ms: Sequence[int], model: str = "streams") -> Any:
    message = service_pb2.ModelInferRequest(model_name=model)
    wanted = (("IN", delays_ms, "INT32"), ("DELAY", delays_ms, "UINT32"), ("WAIT", [0], "UINT32"))
    for name, values, datatype in wanted:
        message.inputs.add(name=name, datatype=datatype, shape=[len(values)])
        message.raw_input_contents.append(np.array(values, datatype.lower()).tobytes())
    return message


def test_nothing_is_held_and_all_is_counted_once_when_clients_of_all_tempers_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = ModelRepository(tmp_path)
    repository.model("echo", {"backend": "identity", **ECHO})
    repository.model("slow", {"backend": "identity", "parameters": SLOW, **ECHO})
    repository.model("gives_up", {"backend": "gives_up", **ECHO})
    repository.model("streams", REPEAT)
    repository.model("told", REPEAT)
    options = local_options(tmp_path, max_inflight_byte_size=LIMIT)
    accepted: Counter[str] = Counter()
    infer = LoadedModel.infer

    def counted(model: LoadedModel, request: InferRequest, sink: ResponseSink) -> None:
        infer(model, request, sink)
        accepted[model.name] += 1

    monkeypatch.setattr(LoadedModel, "infer", counted)
    backend = SimpleNamespace(model_instance_execute=model_instance_execute)

    with Server(options, plugins={"backends": {"gives_up": backend}}) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            load = Load(channel)
            load.run()
        models = {model.name: model for model in server.runtime.registry.all_models()}
        until(lambda: not any(model.inflight_count for model in models.values()))

        until(lambda: server.runtime.admission.held == 0)
        assert set(load.ends) >= ENDS
        for name, model in models.items():
            stats = model.stats
            assert accepted[name] > 0
            assert (stats.success_count + stats.fail_count, stats.pending_count) == (accepted[name], 0), name
            assert sum(stats.failures.values()) == stats.fail_count
            assert sum(batch.count for batch in stats.batch_stats.values()) == stats.execution_count
        sent = models["told"].stats.response_stats.values()
        assert sum(response.success_count for response in sent) == len(load.told)
        # After each last response, a final flag that comes alone.
        assert sum(response.empty_response_count for response in sent) == accepted["told"]
