"""The response cache over HTTP and gRPC, on our server and on a real one: same answers, counts and metrics.

Where the real server gives an answer that belongs to another request, each test says what it does.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

BYTE_SIZE = 65536
DEADLINE_S = 20

# Answers what it is given, and how often it has executed; -1 is answered with an error, -2 raises one.
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

FIRST = 0

class TritonPythonModel:
    def initialize(self, args):
        self.count = FIRST

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        self.count += 1
        first = x.flat[0] if x.size else 0
        if first == -2:
            raise ValueError("no minus two")
        if first == -1:
            return pb_utils.InferenceResponse([], pb_utils.TritonError("no minus one"))
        count = np.full((len(x), 1), self.count, np.int64)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x), pb_utils.Tensor("COUNT", count)])
"""
CONFIG: dict[str, Any] = {
    "backend": "python",
    "max_batch_size": 4,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [
        {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]},
        {"name": "COUNT", "data_type": "TYPE_INT64", "dims": [1]},
    ],
    "instance_group": [{"kind": "KIND_CPU", "count": 1}],
    "response_cache": {"enable": True},
}
ENSEMBLE: dict[str, Any] = {
    "platform": "ensemble",
    "max_batch_size": 4,
    "input": CONFIG["input"],
    "output": CONFIG["output"],
    "ensemble_scheduling": {
        "step": [
            {
                "model_name": "uncached",
                "model_version": -1,
                "input_map": {"X": "X"},
                "output_map": {"Y": "Y", "COUNT": "COUNT"},
            }
        ]
    },
    "response_cache": {"enable": True},
}
ROW = np.ones((1, 4), np.float32)

_numbers = count(1)


class Place:
    """A server with a cache, and a client for each protocol.

    Attributes:
        kind: `ours` or `real`.
    """

    def __init__(self, kind: str, models: ModelRepository, ports: tuple[int, int, int]) -> None:
        self.kind = kind
        self._models = models
        self._metrics = ports[2]
        self._http = ports[0]
        self.clients: dict[str, Any] = {  # Any: the two have much in common, and no type
            "http": httpclient.InferenceServerClient(f"127.0.0.1:{ports[0]}"),
            "grpc": grpcclient.InferenceServerClient(f"127.0.0.1:{ports[1]}"),
        }

    def ask(
        self, x: npt.NDArray[np.float32], protocol: str = "http", *, model: str = "counting", **wishes: Any
    ) -> dict[str, list[Any]]:
        """The outputs of a request."""
        module = {"http": httpclient, "grpc": grpcclient}[protocol]
        tensor = module.InferInput("X", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x)
        if "outputs" in wishes:
            wishes["outputs"] = [module.InferRequestedOutput(name) for name in wishes["outputs"]]
        result = self.clients[protocol].infer(model, [tensor], **wishes)
        answer = {name: result.as_numpy(name) for name in ("Y", "COUNT")}
        return {name: array.tolist() for name, array in answer.items() if array is not None}

    def executed(self, *requests: Callable[[], object], model: str = "counting") -> int:
        """How many of these requests were executed."""
        before = self.statistics(model)["execution_count"]
        for request in requests:
            request()
        return int(self.statistics(model)["execution_count"]) - int(before)

    def statistics(self, model: str = "counting") -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._http}/v2/models/{model}/stats"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            found: dict[str, Any] = json.load(answer)["model_stats"][0]
        return found

    def counts(self, model: str = "counting") -> dict[str, int]:
        """What the statistics count, without times."""
        found = self.statistics(model)
        phases = {name: phase["count"] for name, phase in found["inference_stats"].items()}
        return phases | {name: found[name] for name in ("inference_count", "execution_count")}

    def metrics(self) -> dict[str, float]:
        """The lines of the metrics page that speak of a cache."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=DEADLINE_S) as page:
            text = page.read().decode()
        return {
            name: float(value) for name, value in re.findall(r"^(nv_cache\S+) (\S+)$", text, re.MULTILINE)
        }

    def rewrite(self, first: int, model: str = "counting") -> None:
        """Change the model's source and load it anew."""
        self._models.python(model, MODEL.replace("FIRST = 0", f"FIRST = {first}"))
        self.clients["http"].load_model(model)

    def new(self, *shape: int) -> npt.NDArray[np.float32]:
        """Numbers that no request had before."""
        return np.full(shape, next(_numbers), np.float32)


@pytest.fixture(scope="module", params=["ours", pytest.param("real", marks=pytest.mark.parity)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    models = ModelRepository(tmp_path_factory.mktemp(request.param) / "models")
    for name in ("counting", "fresh", "reloaded"):
        models.python(name, MODEL, CONFIG)
    models.python("uncached", MODEL, CONFIG | {"response_cache": {"enable": False}})
    models.model("pair", ENSEMBLE)
    models.python("ordered", MODEL, CONFIG | {"dynamic_batching": {"preserve_ordering": True}})
    with ExitStack() as stack:
        if request.param == "ours":
            address = "127.0.0.1"
            options = ServerOptions(
                (str(models.path),),
                cache_config=(("local", "size", str(BYTE_SIZE)),),
                allow_client_shm=True,
                model_control_mode="explicit",
                load_models=("*",),
                http_address=address,
                grpc_address=address,
                metrics_address=address,
                http_port=0,
                grpc_port=0,
                metrics_port=0,
            )
            server = stack.enter_context(Server(options))
            ports = (server.http_port, server.grpc_port, server.metrics_port)
        else:
            real = request.getfixturevalue("real_triton")(
                models.path,
                f"--cache-config=local,size={BYTE_SIZE}",
                "--model-control-mode=explicit",
                "--load-model=*",
                "--metrics-interval-ms=100",
            )
            ports = (real["http"], real["grpc"], real["metrics"])
        place = Place(request.param, models, ports)
        yield place
        for client in place.clients.values():
            client.close()


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_three_equal_requests_are_one_execution(place: Place) -> None:
    answers = [place.ask(ROW, model="fresh", request_id=str(number)) for number in range(3)]

    assert answers == [{"Y": ROW.tolist(), "COUNT": [[1]]}] * 3
    assert place.counts("fresh") == {
        "success": 3,
        "fail": 0,
        "queue": 3,
        "compute_input": 1,
        "compute_infer": 1,
        "compute_output": 1,
        "cache_hit": 2,
        "cache_miss": 1,
        "inference_count": 1,
        "execution_count": 1,
    }
    times = {name: phase["ns"] for name, phase in place.statistics("fresh")["inference_stats"].items()}
    assert 0 < times["cache_hit"] < times["success"]
    assert 0 < times["cache_miss"] < times["success"]


def test_both_protocols_find_what_the_other_has_left(place: Place) -> None:
    x = place.new(2, 3)

    assert place.ask(x, "http") == place.ask(x, "grpc")
    assert place.ask(x + 0.5, "grpc") == place.ask(x + 0.5, "http")


def test_a_hit_carries_its_own_request_id(place: Place, protocol: str) -> None:
    x = place.new(1, 2)
    place.ask(x, protocol, request_id="first")
    tensor = httpclient.InferInput("X", [1, 2], "FP32")
    tensor.set_data_from_numpy(x)

    answer = place.clients["http"].infer("counting", [tensor], request_id="second").get_response()

    assert answer["id"] == "second"


def test_how_a_request_travels_makes_no_difference(place: Place, protocol: str) -> None:
    x = place.new(1, 2)
    requests = (
        lambda: place.ask(x, protocol),
        lambda: place.ask(x, protocol, priority=1),
        lambda: place.ask(x, protocol, timeout=1_000_000),
        lambda: place.ask(x, protocol, request_id="other"),
    )

    assert place.executed(*requests) == 1


def test_another_shape_of_the_same_bytes_is_another_request(place: Place, protocol: str) -> None:
    x = place.new(1, 4)
    place.ask(x, protocol)

    other = place.ask(x.reshape(2, 2), protocol)

    # The real server answers with the shape of the first request.
    assert other["Y"] == (x.reshape(2, 2) if place.kind == "ours" else x).tolist()


def test_other_wanted_outputs_are_another_request(place: Place, protocol: str) -> None:
    x = place.new(1, 2)
    assert set(place.ask(x, protocol, outputs=["COUNT"])) == {"COUNT"}

    all_outputs = place.ask(x, protocol)

    # The real server leaves out what the first request did not want.
    assert set(all_outputs) == ({"Y", "COUNT"} if place.kind == "ours" else {"COUNT"})
    assert place.executed(lambda: place.ask(x, protocol, outputs=["COUNT"])) == 0


def test_other_parameters_are_another_request(place: Place, protocol: str) -> None:
    x = place.new(1, 2)
    requests = [lambda n=n: place.ask(x, protocol, parameters={"temperature": n}) for n in (1, 2, 1)]

    # The real server gives one answer for both.
    assert place.executed(*requests) == (2 if place.kind == "ours" else 1)


@pytest.mark.parametrize("bad", [-1, -2])
def test_an_error_is_not_kept(place: Place, protocol: str, bad: int) -> None:
    x = np.array([[bad, next(_numbers)]], np.float32)
    with pytest.raises(InferenceServerException, match="no minus"):
        place.ask(x, protocol)

    if place.kind == "ours":
        with pytest.raises(InferenceServerException, match="no minus"):
            place.ask(x, protocol)
    else:  # it answers that all went well, without outputs
        assert place.ask(x, protocol) == {}


def test_a_failed_execution_counts_as_a_miss(place: Place) -> None:
    before = place.counts()
    with pytest.raises(InferenceServerException):
        place.ask(np.array([[-2, next(_numbers)]], np.float32))

    after = place.counts()

    assert after["cache_miss"] - before["cache_miss"] == 1
    assert after["fail"] - before["fail"] == 1
    assert after["success"] == before["success"]


def test_a_reloaded_model_gives_no_answer_of_the_old_one(place: Place, protocol: str) -> None:
    x = place.new(1, 2)
    first = place.ask(x, protocol, model="reloaded")["COUNT"][0][0]
    place.rewrite(first + 100, "reloaded")

    again = place.ask(x, protocol, model="reloaded")["COUNT"][0][0]

    # The real server goes on with what the old files said.
    assert again == (first + 101 if place.kind == "ours" else first)


def test_a_response_larger_than_the_cache_is_executed_each_time(place: Place, protocol: str) -> None:
    x = place.new(1, BYTE_SIZE // 4)
    request = lambda: place.ask(x, protocol)  # noqa: E731

    assert place.executed(request, request) == 2


def test_what_was_not_used_for_longest_makes_room(place: Place) -> None:
    rows = [place.new(1, BYTE_SIZE // 4 // 4) for _ in range(4)]  # three of these fit
    requests = [lambda x=x: place.ask(x) for x in rows]

    assert place.executed(*requests[:3]) == 3
    assert place.executed(requests[0], requests[3]) == 1
    assert place.executed(requests[0], requests[2], requests[3]) == 0
    assert place.executed(requests[1]) == 1


def test_preserved_order_holds_nothing_up(place: Place) -> None:
    x, y = place.new(1, 2), place.new(1, 2)
    for _ in range(2):
        place.ask(x, "grpc", model="ordered")

    if place.kind == "ours":
        assert place.ask(y, "grpc", model="ordered")["Y"] == y.tolist()
    else:  # after a hit, the answer to a miss waits for the next hit
        with pytest.raises(InferenceServerException, match="Deadline"):
            place.ask(y, "grpc", model="ordered", client_timeout=1)
    requests = [lambda: place.ask(y, "grpc", model="ordered")] * 2
    assert place.executed(*requests, model="ordered") == 0


def test_inputs_in_shared_memory_are_equal_to_those_in_the_request(place: Place, protocol: str) -> None:
    x = place.new(1, 4)
    module = {"http": httpclient, "grpc": grpcclient}[protocol]
    client = place.clients[protocol]
    name = f"cached_{protocol}"
    handle = shm.create_shared_memory_region(name, f"/tritonpy_{name}_{os.getpid()}", x.nbytes)
    try:
        shm.set_shared_memory_region(handle, [x])
        client.register_system_shared_memory(name, f"/tritonpy_{name}_{os.getpid()}", x.nbytes)
        tensor = module.InferInput("X", [1, 4], "FP32")
        tensor.set_shared_memory(name, x.nbytes)

        assert (
            place.executed(
                lambda: place.ask(x, protocol),
                lambda: client.infer("counting", [tensor]),
                lambda: client.infer("counting", [tensor]),
            )
            == 1
        )
        shm.set_shared_memory_region(handle, [x + 0.25])
        answer = client.infer("counting", [tensor]).as_numpy("Y")
        assert answer.tolist() == (x + 0.25).tolist()
    finally:
        client.unregister_system_shared_memory(name)
        shm.destroy_shared_memory_region(handle)


def test_classes_are_made_of_what_is_kept(place: Place) -> None:
    x = np.array([[next(_numbers), 1000, 3]], np.float32)
    tensor = httpclient.InferInput("X", [1, 3], "FP32")
    tensor.set_data_from_numpy(x)

    def classes(count: int) -> list[str]:
        wanted = [httpclient.InferRequestedOutput("Y", class_count=count)]
        found = place.clients["http"].infer("counting", [tensor], outputs=wanted).as_numpy("Y")
        return [element.decode().rpartition(":")[2] for element in found.reshape(-1)]

    answers: list[list[str]] = []
    assert place.executed(lambda: answers.append(classes(1)), lambda: answers.append(classes(2))) == 1
    assert [answer[0] for answer in answers] == ["1", "1"]
    assert len(answers[1]) == 2


def test_an_ensemble_is_answered_without_its_models(place: Place, protocol: str) -> None:
    x = place.new(1, 3)
    before = place.counts("pair")
    requests = [lambda: place.ask(x, protocol, model="pair")] * 3

    assert place.executed(*requests, model="uncached") == 1

    after = place.counts("pair")
    counted = {name: after[name] - before[name] for name in after}
    assert counted == {
        "success": 3,
        "fail": 0,
        "queue": 3,
        "compute_input": 1,
        "compute_infer": 1,
        "compute_output": 1,
        "cache_hit": 2,
        "cache_miss": 1,
        "inference_count": 1,
        "execution_count": 1,
    }


def test_a_model_that_does_not_want_it_is_not_cached(place: Place) -> None:
    requests = [lambda: place.ask(ROW, model="uncached")] * 2

    assert place.executed(*requests, model="uncached") == 2
    counts = place.counts("uncached")
    assert (counts["cache_hit"], counts["cache_miss"]) == (0, 0)


def test_the_metrics_count_with_the_statistics(place: Place) -> None:
    x = place.new(1, 2)
    for _ in range(3):
        place.ask(x)
    until = time.monotonic() + DEADLINE_S
    labels = '{model="counting",version="1"}'
    while True:  # the real server copies the cache's numbers from time to time
        counts, metrics = place.counts(), place.metrics()
        lookups = metrics["nv_cache_num_hits"] + metrics["nv_cache_num_misses"]
        if (
            metrics["nv_cache_num_hits"] >= counts["cache_hit"] > 0
            and lookups == metrics["nv_cache_num_lookups"]
        ):
            break
        assert time.monotonic() < until, (counts, metrics)
        time.sleep(0.05)

    assert metrics[f"nv_cache_num_hits_per_model{labels}"] == counts["cache_hit"]
    assert metrics[f"nv_cache_num_misses_per_model{labels}"] == counts["cache_miss"]
    assert metrics[f"nv_cache_hit_duration_per_model{labels}"] > 0
    assert metrics[f"nv_cache_miss_duration_per_model{labels}"] > 0
    assert not any("uncached" in name for name in metrics)
    assert {name for name in metrics if "{" not in name} == {
        "nv_cache_util",
        "nv_cache_num_entries",
        "nv_cache_num_lookups",
        "nv_cache_num_hits",
        "nv_cache_num_misses",
        "nv_cache_num_evictions",
        "nv_cache_lookup_duration",
        "nv_cache_insertion_duration",
    }
    assert 0 < metrics["nv_cache_util"] <= 1
    assert metrics["nv_cache_num_entries"] > 0
