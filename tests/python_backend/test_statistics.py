"""What is counted for which request, as the statistics extension tells it over both protocols."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from tritonclient.grpc import service_pb2

EXECUTED = ("compute_input", "compute_infer", "compute_output", "queue")
numbers = itertools.count()


@pytest.fixture
def id() -> str:
    return f"counted-{next(numbers)}"


def counts(found: dict[str, Any]) -> dict[str, Any]:
    return {
        **{phase: leaf["count"] for phase, leaf in found["inference_stats"].items()},
        "inferences": found["inference_count"],
        "executions": found["execution_count"],
        "batches": {each["batch_size"]: each["compute_infer"]["count"] for each in found["batch_stats"]},
    }


def counted(server, model: str, act: Callable[[], Any], **expected: Any) -> None:
    """Do something and wait until exactly this has been counted for it; `executed` names four phases."""
    for phase in EXECUTED if "executed" in expected else ():
        expected[phase] = expected["executed"]
    expected.pop("executed", None)
    before = counts(server.settled_statistics(model))

    act()

    def change() -> dict[str, Any]:
        after = counts(server.statistics(model))
        found = {
            key: value - before[key]
            for key, value in after.items()
            if key != "batches" and value != before[key]
        }
        batches = {
            size: count - before["batches"].get(size, 0)
            for size, count in after["batches"].items()
            if count != before["batches"].get(size, 0)
        }
        return {**found, "batches": batches} if batches else found

    try:
        server.wait_for(lambda: change() == expected)
    except AssertionError:
        assert change() == expected


def failing(*hows: str) -> str:
    """The model whose requests go together, if there are several."""
    return "fails" if len(hows) == 1 else "fails_in_pairs"


def fails(server, *hows: str) -> list[int]:
    """The statuses of requests that go together."""
    with ThreadPoolExecutor(len(hows)) as pool:
        return list(pool.map(lambda how: server.infer(failing(*hows), {"HOW": [[how]]}).status, hows))


def steps(*taken: list[object]) -> dict[str, list[str]]:
    return {"STEPS": [json.dumps(taken)]}


@pytest.mark.parametrize(
    ("hows", "expected"),
    [
        (["fine"], {"success": 1, "executed": 1, "inferences": 1, "executions": 1, "batches": {1: 1}}),
        (
            ["fine", "fine"],
            {"success": 2, "executed": 2, "inferences": 2, "executions": 1, "batches": {2: 1}},
        ),
        (["NOT_FOUND"], {"success": 1, "executed": 1, "inferences": 1, "executions": 1, "batches": {1: 1}}),
        (
            ["NOT_FOUND", "fine"],
            {"success": 2, "executed": 2, "inferences": 2, "executions": 1, "batches": {2: 1}},
        ),
        (
            ["by_sender", "fine"],
            {"success": 2, "executed": 2, "inferences": 2, "executions": 1, "batches": {2: 1}},
        ),
        (["value_error"], {"fail": 1, "executions": 1, "batches": {1: 1}}),
        (["value_error", "fine"], {"fail": 2, "executions": 1, "batches": {2: 1}}),
        (["nothing"], {"fail": 1, "executions": 1, "batches": {1: 1}}),
    ],
    ids=[
        "one",
        "a batch",
        "an error",
        "an error in a batch",
        "by sender",
        "raises",
        "all raise",
        "no result",
    ],
)
def test_a_batch_is_counted_as_what_became_of_it(server, hows, expected):
    counted(server, failing(*hows), lambda: fails(server, *hows), **expected)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("fine", {"success": 1, "executed": 1, "inferences": 3, "executions": 1, "batches": {3: 1}}),
        ("value_error", {"fail": 1, "executions": 1, "batches": {3: 1}}),
    ],
)
def test_inferences_are_rows_and_only_those_of_requests_that_succeed(server, how, expected):
    counted(server, "fails", lambda: server.infer("fails", {"HOW": [[how]] * 3}), **expected)


@pytest.mark.ours("2.51 dies of it")
def test_what_a_batch_answered_before_it_failed_has_succeeded(server):
    counted(
        server,
        "fails_in_pairs",
        lambda: fails(server, "sends_and_raises", "fine"),
        success=1,
        fail=1,
        executed=1,
        inferences=1,
        executions=1,
        batches={2: 1},
    )


def test_a_request_that_does_not_fit_the_model_is_not_counted(server):
    counted(server, "fails", lambda: server.infer("fails", {"NOPE": [["fine"]]}))


@pytest.mark.parametrize(
    "taken",
    [
        [["final"]],
        [["value", 1], ["value", 2], ["last_value", 3]],
        [["later"], ["value", 1], ["pause", 0.05], ["final"]],
        [["value", 1], ["error", "boom"], ["last_error", "again"]],
    ],
    ids=["no response", "three", "after execute", "errors"],
)
def test_a_stream_counts_once_however_many_responses_it_has(server, taken):
    counted(
        server,
        "sends",
        lambda: server.stream("sends", steps(*taken)),
        success=1,
        executed=1,
        inferences=1,
        executions=1,
        batches={1: 1},
    )


def test_a_decoupled_model_that_raises_has_failed(server):
    counted(
        server,
        "sends",
        lambda: server.stream("sends", steps(["raise"])),
        fail=1,
        executions=1,
        batches={1: 1},
    )


def test_a_request_that_is_cancelled_while_it_runs_has_succeeded(server, id):
    def act() -> None:
        message = server.message("sends_once", steps(["wait"], ["last_value", 1]), id=id)
        call = server.stub.ModelInfer.future(message, timeout=30)
        server.wait_for_log(f"waits with {id}")
        call.cancel()

    counted(server, "sends_once", act, success=1, executed=1, inferences=1, executions=1, batches={1: 1})


def test_a_request_that_is_cancelled_while_it_waits_has_failed_and_never_runs(server):
    def act() -> None:
        message = server.message("patient", {"IN": [[1]]})
        call = server.stub.ModelInfer.future(message, timeout=30)
        server.wait_for(lambda: server.metric("nv_inference_pending_request_count", "patient") == 1)
        call.cancel()

    before = server.metric("nv_inference_request_failure", "patient", reason="CANCELED")
    counted(server, "patient", act, fail=1)
    assert server.metric("nv_inference_request_failure", "patient", reason="CANCELED") == before + 1


METRICS = {
    "nv_inference_request_success": lambda stats: stats["inference_stats"]["success"]["count"],
    "nv_inference_request_failure": lambda stats: stats["inference_stats"]["fail"]["count"],
    "nv_inference_count": lambda stats: stats["inference_count"],
    "nv_inference_exec_count": lambda stats: stats["execution_count"],
}


@pytest.mark.parametrize("model", ["fails", "sends", "sends_once"])
def test_metrics_count_what_statistics_count(server, model):
    server.infer(model, {"HOW": [["value_error"]]} if model == "fails" else steps(["last_value", 1]))

    def told() -> bool:
        stats = server.statistics(model)
        return all(server.metric(family, model) == wanted(stats) for family, wanted in METRICS.items())

    server.wait_for(told, "metrics and statistics differ")


def test_both_protocols_tell_the_same(server):
    fails(server, "fine")
    fails(server, "value_error")
    server.settled_statistics("fails")
    over_grpc = server.stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name="fails"))
    over_http = server.statistics("fails")

    [told] = over_grpc.model_stats
    assert json_format.ParseDict(over_http, service_pb2.ModelStatistics()) == told
    assert list(over_http) == [
        "name",
        "version",
        "last_inference",
        "inference_count",
        "execution_count",
        "inference_stats",
        "response_stats",
        "batch_stats",
        "memory_usage",
    ]
    assert over_http["memory_usage"] == []


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("nope", "", "requested model 'nope' is not available"),
        ("nope", "1", "requested model 'nope' is not available"),
        ("fails", "7", "requested model version is not available for model 'fails'"),
        ("raises_on_import", "", "requested model 'raises_on_import' is not available"),
        ("raises_on_import", "1", "requested model 'raises_on_import' is not available"),
    ],
)
def test_statistics_of_what_is_not_there_are_refused(server, name, version, text):
    path = f"/v2/models/{name}/versions/{version}/stats" if version else f"/v2/models/{name}/stats"
    status, body = server.request("GET", path)
    with pytest.raises(grpc.RpcError) as refused:
        server.stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name=name, version=version))

    assert (status, json.loads(body)) == (400, {"error": text})
    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, text)


def test_every_loaded_version_has_statistics(server):
    _, everything = server.request("GET", "/v2/models/stats")
    _, one = server.request("GET", "/v2/models/mirror/stats")

    named = [(each["name"], each["version"]) for each in json.loads(everything)["model_stats"]]
    assert named == sorted(named)
    assert {("mirror", "1"), ("mirror", "3")} < set(named)
    assert [each["version"] for each in json.loads(one)["model_stats"]] == ["1", "3"]


@pytest.mark.ours("2.51 tells nothing of the responses of Python models")
class TestResponses:
    def change(self, server, act: Callable[[], Any], wanted: dict[str, dict[str, int]]) -> dict[str, Any]:
        """Counts and nanoseconds that were added, by index and phase; waits until the counts are `wanted`."""
        before = server.statistics("sends")["response_stats"]
        act()

        def added() -> dict[str, dict[str, tuple[int, int]]]:
            after = server.statistics("sends")["response_stats"]
            found: dict[str, dict[str, tuple[int, int]]] = {}
            for index, phases in after.items():
                for phase, leaf in phases.items():
                    old = before.get(index, {}).get(phase, {"count": 0, "ns": 0})
                    if leaf["count"] != old["count"]:
                        change = leaf["count"] - old["count"], leaf["ns"] - old["ns"]
                        found.setdefault(index, {})[phase] = change
            return found

        def as_wanted() -> bool:
            return {i: {p: n for p, (n, _) in each.items()} for i, each in added().items()} == wanted

        server.wait_for(as_wanted, f"not counted as {wanted}")
        return added()

    GOOD = {"compute_infer": 1, "compute_output": 1, "success": 1}  # noqa: RUF012
    EMPTY = {"compute_infer": 1, "empty_response": 1}  # noqa: RUF012
    BAD = {"compute_infer": 1, "compute_output": 1, "fail": 1}  # noqa: RUF012

    def test_each_response_is_counted_at_its_place(self, server):
        self.change(
            server,
            lambda: server.stream("sends", steps(["value", 1], ["error", "boom"], ["empty"], ["final"])),
            {"0": self.GOOD, "1": self.BAD, "2": self.EMPTY, "3": self.EMPTY},
        )

    def test_the_last_response_may_be_the_final_one(self, server):
        self.change(
            server,
            lambda: server.stream("sends", steps(["value", 1], ["last_value", 2])),
            {"0": self.GOOD, "1": self.GOOD},
        )

    @pytest.mark.parametrize("first", [[], [["later"]]], ids=["in execute", "on a thread"])
    def test_the_time_between_two_responses_belongs_to_the_second(self, server, first):
        pauses = (["pause", 0.1], ["value", 1], ["pause", 0.3], ["value", 2], ["pause", 0.2], ["final"])
        began = time.monotonic()
        found = self.change(
            server,
            lambda: server.stream("sends", steps(*first, *pauses)),
            {"0": self.GOOD, "1": self.GOOD, "2": self.EMPTY},
        )
        took_s = time.monotonic() - began

        seconds = [found[index]["compute_infer"][1] / 1e9 for index in ("0", "1", "2")]
        # A busy machine may make any of them longer, but no time belongs to two responses.
        assert all(time_s >= pause_s for time_s, pause_s in zip(seconds, (0.1, 0.3, 0.2), strict=True))
        assert sum(seconds) <= took_s
        for index in ("0", "1"):
            infer, output, both = (found[index][phase][1] for phase in self.GOOD)
            assert both == infer + output
            assert 0 < output < took_s * 1e9

    def test_an_exception_is_a_failed_response(self, server):
        self.change(server, lambda: server.stream("sends", steps(["raise"])), {"0": self.BAD})

    def test_the_end_of_a_cancelled_stream_is_counted_as_that(self, server, id):
        message = steps(["later"], ["value", 1], ["wait"], ["final"])

        def cancelled() -> None:
            call = server.stub.ModelStreamInfer(iter([server.message("sends", message, id=id)]), timeout=30)
            next(call)
            server.wait_for_log(f"waits with {id}")
            call.cancel()

        self.change(server, cancelled, {"0": self.GOOD, "1": {"cancel": 1}})

    def test_models_with_one_response_have_none(self, server):
        server.infer("sends_once", steps(["last_value", 1]))

        assert server.statistics("sends_once")["response_stats"] == {}

    def test_they_travel_over_grpc_too(self, server):
        server.stream("sends", steps(["last_value", 1]))
        assert "0" in server.settled_statistics("sends")["response_stats"]

        over_grpc = server.stub.ModelStatistics(service_pb2.ModelStatisticsRequest(name="sends"))

        [told] = over_grpc.model_stats
        assert json_format.ParseDict(server.statistics("sends"), service_pb2.ModelStatistics()) == told
