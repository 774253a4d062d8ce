"""Loads on a real server: what was sent is what the server counts, and what fails is told."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path

import pytest
from tritonpy_bench import (
    BenchError,
    Concurrency,
    Inputs,
    Load,
    PeriodicConcurrency,
    Rate,
    Schedule,
    Stability,
    Window,
    measure,
    measurement_json,
)
from tritonpy_bench.load import Endpoint, Protocol, SequenceShape
from tritonpy_bench.paces import Pace
from tritonpy_bench.report_text import text_report

SHORT = Stability(window_s=0.5, windows=2, most_windows=2, warmup_s=0)
COUNTED = Stability(request_count=24)
PROTOCOLS = pytest.mark.parametrize("protocol", ["http", "grpc"])


@PROTOCOLS
@pytest.mark.parametrize(
    ("model", "batch_size", "shapes"), [("echo", 3, {}), ("texts", 2, {"INPUT0": (3,)}), ("single", 1, {})]
)
def test_a_number_of_requests_is_answered_and_counted_by_the_server_too(
    urls: dict[str, str], protocol: Protocol, model: str, batch_size: int, shapes: dict[str, tuple[int, ...]]
) -> None:
    load = Load(
        model=model,
        url=urls[protocol],
        protocol=protocol,
        pace=Concurrency(4),
        batch_size=batch_size,
        inputs=Inputs(shapes=shapes),
    )

    measured = measure(load, COUNTED)

    assert (measured.total.sent_count, measured.latency_ns.count, measured.error_count) == (24, 24, 0)
    [side] = measured.server
    assert (side.model, side.success_count, side.inference_count) == (model, 24, 24 * batch_size)
    assert sum(side.batch_sizes.values()) == side.execution_count
    assert sum(size * count for size, count in side.batch_sizes.items()) == side.inference_count
    assert 0 < side.durations_us["queue"] < side.durations_us["request"]
    assert json.loads(json.dumps(measurement_json(measured)))["latency_us"]["count"] == 24


@PROTOCOLS
def test_windows_are_measured_until_there_are_enough(urls: dict[str, str], protocol: Protocol) -> None:
    seen: list[Window] = []
    load = Load(model="echo", url=urls[protocol], protocol=protocol, pace=Concurrency(2))

    measured = measure(load, SHORT, on_window=seen.append)

    assert seen == measured.windows
    assert len(seen) == 2
    assert measured.latency_ns.count == sum(window.request_count for window in seen) > 0
    assert measured.total.duration_s == pytest.approx(sum(window.duration_s for window in seen))
    assert measured.infer_per_s == measured.requests_per_s > 0
    assert measured.client_busy > 0


def test_who_sees_a_window_can_end_the_load(urls: dict[str, str]) -> None:
    load = Load(model="echo", url=urls["http"])

    measured = measure(load, Stability(window_s=1, windows=3, most_windows=50), on_window=lambda window: True)

    assert (len(measured.windows), measured.is_stable) == (1, False)


def test_why_batches_closed_is_told_over_grpc_if_http_is_known(urls: dict[str, str]) -> None:
    load = Load(model="echo", url=urls["grpc"], protocol="grpc", http_url=urls["http"])

    [side] = measure(load, COUNTED).server
    [without] = measure(Load(model="echo", url=urls["grpc"], protocol="grpc"), COUNTED).server

    assert sum(side.closed.values()) == side.execution_count
    assert without.closed == {}


@PROTOCOLS
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "absent"}, "unknown model: 'absent'"),
        ({"batch_size": 9}, "batch size 9: model 'echo' takes at most 8"),
        (
            {"model": "single", "batch_size": 2},
            "batch size 2: model 'single' takes 1, since the model has no",
        ),
        ({"model": "texts"}, r"input 'INPUT0' has a shape of any size, \[-1\]: say one with --shape INPUT0:"),
        ({"inputs": Inputs(shapes={"X": (1,)})}, "shape of input 'X': model 'echo' has the inputs INPUT0"),
        ({"inputs": Inputs(shapes={"INPUT0": (3,)})}, r"'INPUT0': got shape \[3\], expected \[16\]"),
        ({"url": "127.0.0.1:1"}, "no server answers at .*127.0.0.1:1"),
        ({"url": "ftp://127.0.0.1"}, "url 'ftp://127.0.0.1': expected something like localhost:800"),
        ({"url": "127.0.0.1:none"}, "url '127.0.0.1:none': Port could not be cast"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused(
    urls: dict[str, str], protocol: Protocol, change: dict[str, object], words: str
) -> None:
    given: dict[str, object] = {"model": "echo", "url": urls[protocol], "protocol": protocol, **change}

    with pytest.raises(BenchError, match=words):
        measure(Load(**given), COUNTED)  # type: ignore[arg-type]


@PROTOCOLS
def test_requests_that_all_fail_give_no_measurement_but_their_errors(
    urls: dict[str, str], protocol: Protocol
) -> None:
    load = Load(model="echo", url=urls[protocol], protocol=protocol, parameters={"sequence_start": "x"})

    with pytest.raises(
        BenchError, match=r"none of the requests to model 'echo' succeeded; \d+ times: .*sequence_start"
    ):
        measure(load, Stability(request_count=3))


@PROTOCOLS
@pytest.mark.parametrize(
    "pace",
    [Rate(200), Rate(200, "poisson"), Schedule([0.0, 0.01, 0.02]), PeriodicConcurrency(1, 3, 1, 8)],
    ids=str,
)
def test_each_pace_is_answered_and_counted_by_the_server_too(
    urls: dict[str, str], protocol: Protocol, pace: Pace
) -> None:
    load = Load(model="echo", url=urls[protocol], protocol=protocol, pace=pace)
    ends = isinstance(pace, Schedule | PeriodicConcurrency)

    measured = measure(load, Stability() if ends else COUNTED)

    assert measured.error_count == 0
    assert measured.server[0].success_count == measured.latency_ns.count == measured.total.sent_count
    assert measured.latency_ns.count >= (3 if isinstance(pace, Schedule) else 24)
    assert bool(measured.total.service_ns.count) == isinstance(pace, Rate | Schedule)


def test_there_are_no_more_processes_than_requests(urls: dict[str, str]) -> None:
    load = Load(model="echo", url=urls["http"], pace=Concurrency(3))

    total = measure(load, Stability(request_count=2), processes=3).total

    assert (total.client_count, total.sent_count, total.request_count) == (2, 2, 2)


@PROTOCOLS
def test_several_processes_share_a_load(urls: dict[str, str], protocol: Protocol) -> None:
    load = Load(model="echo", url=urls[protocol], protocol=protocol, pace=Concurrency(3))

    measured = measure(load, COUNTED, processes=2)

    assert measured.total.client_count == 2
    assert measured.latency_ns.count == measured.total.sent_count == measured.server[0].success_count == 24


def test_what_a_process_cannot_do_is_told_in_its_words(urls: dict[str, str]) -> None:
    load = Load(model="echo", url=urls["http"], pace=Concurrency(4), parameters={"sequence_start": "x"})

    with pytest.raises(BenchError, match="none of the requests to model 'echo' succeeded"):
        measure(load, COUNTED, processes=2)


@pytest.mark.parametrize(("protocol", "endpoint"), [("grpc", "stream"), ("http", "generate_stream")])
def test_responses_of_a_decoupled_model_are_counted(
    urls: dict[str, str], tmp_path: Path, protocol: Protocol, endpoint: Endpoint
) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"IN": [4]}]}))
    load = Load(
        model="square",
        url=urls[protocol],
        protocol=protocol,
        endpoint=endpoint,
        pace=Concurrency(2),
        inputs=Inputs(data),
    )

    measured = measure(load, COUNTED)

    total = measured.total
    assert (total.request_count, total.error_count, total.response_count) == (24, 0, 96)
    assert (total.first_ns.count, total.between_ns.count) == (24, 72)
    assert total.first_ns.greatest <= total.latency_ns.greatest
    assert total.responses_per_s == pytest.approx(4 * total.requests_per_s)
    assert "responses/s; first after mean" in text_report([measured])


@pytest.mark.parametrize(
    ("model", "protocol", "endpoint"),
    [("echo", "grpc", "stream"), ("echo", "http", "generate"), ("texts", "http", "generate_stream")],
)
def test_models_with_one_response_are_asked_by_every_endpoint(
    urls: dict[str, str], model: str, protocol: Protocol, endpoint: Endpoint
) -> None:
    load = Load(
        model=model,
        url=urls[protocol],
        protocol=protocol,
        endpoint=endpoint,
        pace=Concurrency(2),
        inputs=Inputs(shapes={"INPUT0": (1,)} if model == "texts" else {}),
    )

    total = measure(load, COUNTED).total

    assert (total.request_count, total.response_count, total.errors) == (24, 24, {})


@pytest.mark.parametrize(("protocol", "endpoint"), [("grpc", "stream"), ("grpc", "infer"), ("http", "infer")])
def test_errors_are_those_of_their_requests_and_others_are_answered(
    urls: dict[str, str], tmp_path: Path, protocol: Protocol, endpoint: Endpoint
) -> None:
    steps = [{"INPUT0": [1.0, 2.0]}, {"INPUT0": [1.0, 2.0], "parameters": {"sequence_start": "x"}}]
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": steps}))
    load = Load(model="single", url=urls[protocol], protocol=protocol, endpoint=endpoint, inputs=Inputs(data))

    total = measure(load, Stability(request_count=8)).total

    assert (total.request_count, total.error_count) == (4, 4)
    assert all("sequence_start" in text for text in total.errors)


@PROTOCOLS
@pytest.mark.parametrize("pace", [Concurrency(3), Rate(300)], ids=str)
def test_sequences_begin_go_on_and_end(urls: dict[str, str], protocol: Protocol, pace: Pace) -> None:
    load = Load(
        model="counted",
        url=urls[protocol],
        protocol=protocol,
        pace=pace,
        sequences=SequenceShape(length=4, variation=0.5, count=3),
    )

    measured = measure(load, COUNTED)

    assert measured.total.errors == {}  # a request without its flags would be refused
    assert 24 <= measured.latency_ns.count == measured.total.sent_count == measured.server[0].success_count


def test_correlation_ids_must_be_enough(urls: dict[str, str]) -> None:
    shape = SequenceShape(id_count=2)

    with pytest.raises(BenchError, match="2 correlation ids are too few for 3 sequences at a time"):
        measure(Load(model="counted", url=urls["http"], pace=Concurrency(3), sequences=shape), COUNTED)


@PROTOCOLS
@pytest.mark.parametrize("model", ["echo", "counted"])
def test_tensors_in_shared_memory(urls: dict[str, str], protocol: Protocol, model: str) -> None:
    load = Load(
        model=model,
        url=urls[protocol],
        protocol=protocol,
        pace=Concurrency(2),
        batch_size=2 if model == "echo" else 1,
        shared_memory="system",
        output_byte_size=128,
    )
    before = {*os.listdir("/dev/shm")}

    measured = measure(load, COUNTED)

    assert measured.total.errors == {}
    assert measured.latency_ns.count >= 24
    assert not [name for name in {*os.listdir("/dev/shm")} - before if f"bench_{os.getpid()}_" in name]
    regions = urllib.request.urlopen(f"http://{urls['http']}/v2/systemsharedmemory/status").read()
    assert json.loads(regions) == []


def test_the_steps_of_an_ensemble_are_told_of_too(urls: dict[str, str]) -> None:
    measured = measure(Load(model="chain", url=urls["http"]), COUNTED)

    assert [(side.model, side.success_count) for side in measured.server] == [("chain", 24), ("single", 24)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "square"}, "'square' is decoupled.*--streaming.*generate_stream"),
        ({"endpoint": "stream"}, "endpoint 'stream' is one of grpc, not of http"),
        ({"model": "counted", "endpoint": "generate"}, "has neither sequences nor shared memory"),
    ],
    ids=str,
)
def test_endpoints_that_do_not_fit_are_refused(
    urls: dict[str, str], change: dict[str, object], words: str
) -> None:
    given: dict[str, object] = {"model": "echo", "url": urls["http"], **change}

    with pytest.raises(BenchError, match=words):
        measure(Load(**given), COUNTED)  # type: ignore[arg-type]
