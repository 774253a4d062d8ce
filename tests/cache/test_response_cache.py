"""The response cache over HTTP and gRPC, on our server and on a real one: same answers, counts and metrics.

Where the real server gives an answer that belongs to another request, each test says what it does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import OURS_AND_REAL, serving
from .place import CONFIG, ENSEMBLE, MODEL, ONE_MISS_AND_TWO_HITS, ROW, Place

BYTE_SIZE = 65536


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    models = ModelRepository(tmp_path_factory.mktemp(request.param) / "models")
    for name in ("counting", "fresh", "reloaded"):
        models.python(name, MODEL, CONFIG)
    models.python("uncached", MODEL, CONFIG | {"response_cache": {"enable": False}})
    models.model("pair", ENSEMBLE)
    models.python("ordered", MODEL, CONFIG | {"dynamic_batching": {"preserve_ordering": True}})
    with serving(
        request.param,
        request,
        models.path,
        f"--cache-config=local,size={BYTE_SIZE}",
        "--model-control-mode=explicit",
        "--load-model=*",
        "--metrics-interval-ms=100",
        cache_config=(("local", "size", str(BYTE_SIZE)),),
        allow_client_shm=True,
        model_control_mode="explicit",
        load_models=("*",),
    ) as ports:
        place = Place(request.param, models, (ports["http"], ports["grpc"], ports["metrics"]))
        yield place
        for client in place.clients.values():
            client.close()


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_three_equal_requests_are_one_execution(place: Place) -> None:
    answers = [place.ask(ROW, model="fresh", request_id=str(number)) for number in range(3)]

    assert answers == [{"Y": ROW.tolist(), "COUNT": [[1]]}] * 3
    assert place.counts("fresh") == ONE_MISS_AND_TWO_HITS
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
    x = np.array([[bad, place.new().item()]], np.float32)
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
        place.ask(np.array([[-2, place.new().item()]], np.float32))

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
    x = np.array([[place.new().item(), 1000, 3]], np.float32)
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
    assert counted == ONE_MISS_AND_TWO_HITS


def test_a_model_that_does_not_want_it_is_not_cached(place: Place) -> None:
    requests = [lambda: place.ask(ROW, model="uncached")] * 2

    assert place.executed(*requests, model="uncached") == 2
    counts = place.counts("uncached")
    assert (counts["cache_hit"], counts["cache_miss"]) == (0, 0)


def test_the_metrics_count_with_the_statistics(place: Place) -> None:
    x = place.new(1, 2)
    for _ in range(3):
        place.ask(x)
    labels = '{model="counting",version="1"}'

    def are_whole() -> bool:  # the real server copies the cache's numbers from time to time
        counts, metrics = place.counts(), place.metrics()
        lookups = metrics["nv_cache_num_hits"] + metrics["nv_cache_num_misses"]
        has_hits = metrics["nv_cache_num_hits"] >= counts["cache_hit"] > 0
        return has_hits and lookups == metrics["nv_cache_num_lookups"]

    until(are_whole, lambda: (place.counts(), place.metrics()))
    counts, metrics = place.counts(), place.metrics()

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
