"""What responses hold: counted tokens, and outputs that are compared with `validation_data`."""

from __future__ import annotations

import csv
import json
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from tritonpy.protos import messages
from tritonpy_bench import BenchError, Concurrency, Inputs, Load, Stability, measure, measurement_json
from tritonpy_bench.answers import Expected, Output, Outputs, Reader, called
from tritonpy_bench.elements import packed
from tritonpy_bench.load import Endpoint, Protocol, SequenceShape
from tritonpy_bench.report_csv import csv_report
from tritonpy_bench.report_text import text_report
from tritonpy_bench.sources import Repeated
from tritonpy_bench.tally import Tally
from tritonpy_bench.target import TensorFacts
from tritonpy_bench.timed_call import TimedCall

COUNTED = Stability(request_count=8)
FACTS = {"OUT": TensorFacts("OUT", "INT32", (-1,)), "TEXT": TensorFacts("TEXT", "BYTES", (-1,))}
ONE_TWO = np.array([1, 2], "<i4").tobytes()
# By endpoint, with the protocol: how a request without and one with several responses are asked.
WAYS: list[tuple[Protocol, Endpoint]] = [
    ("http", "infer"),
    ("http", "generate"),
    ("http", "generate_stream"),
    ("grpc", "infer"),
    ("grpc", "stream"),
]


@pytest.mark.parametrize(("protocol", "endpoint"), WAYS)
def test_elements_of_an_output_are_tokens(
    urls: dict[str, str], protocol: Protocol, endpoint: Endpoint
) -> None:
    load = Load(model="echo", url=urls[protocol], protocol=protocol, endpoint=endpoint, tokens="OUTPUT0")

    measured = measure(load, COUNTED)

    total = measured.total
    assert (total.errors, total.request_count, total.token_count) == ({}, 8, 8 * 16)
    assert total.tokens_per_s == pytest.approx(16 * total.requests_per_s)
    assert measurement_json(measured)["tokens"]["per_request"] == 16
    assert "tokens/s, 16.0 a request" in text_report([measured])
    [row] = csv.DictReader(csv_report([measured]).splitlines())
    assert float(row["Tokens/Second"]) == pytest.approx(total.tokens_per_s, rel=1e-3)


@pytest.mark.parametrize(("protocol", "endpoint"), [("grpc", "stream"), ("http", "generate_stream")])
def test_tokens_of_a_decoupled_model_follow_each_other(
    urls: dict[str, str], tmp_path: Path, protocol: Protocol, endpoint: Endpoint
) -> None:
    inputs = data(tmp_path, {"data": [{"IN": [4]}]})
    load = Load(model="square", url=urls[protocol], protocol=protocol, endpoint=endpoint, inputs=inputs)

    counted = measure(Load(**{**fields(load), "tokens": "OUT"}), COUNTED)
    uncounted = measure(load, COUNTED)

    assert (counted.total.token_count, counted.total.token_gap_ns.count) == (32, 24)
    assert "; one after the other mean " in text_report([counted])
    assert measurement_json(uncounted)["tokens"] is None
    assert "tokens" not in text_report([uncounted])


def fields(load: Load) -> dict[str, object]:
    return {name: getattr(load, name) for name in Load.__slots__}


def test_tokens_of_one_response_share_the_time_since_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(1_000_000, 3_000)
    monkeypatch.setattr("tritonpy_bench.timed_call.time.perf_counter_ns", clock.__next__)
    tally = Tally(clock=lambda: 0, cpu_clock=lambda: 0, tokens="OUT")
    call = TimedCall(Repeated([b""], 0), tally, lambda call, error: None)
    call.begin()

    for elements in (5, 3, 0, 1):
        call.read({"OUT": Output(elements, lambda: None)})
        call.responded()

    window = tally.take()
    assert window.token_count == 9
    assert window.token_gap_ns.count == 4  # of the second and the fourth response
    assert (window.token_gap_ns.least, window.token_gap_ns.greatest) == (1_000, 3_000)


@pytest.mark.parametrize(("protocol", "endpoint"), WAYS)
def test_a_request_whose_answer_cannot_be_read_has_failed(
    urls: dict[str, str], protocol: Protocol, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reads(call: TimedCall, outputs: Outputs) -> str | None:
        raise IndexError("no such element")

    monkeypatch.setattr(TimedCall, "read", reads)
    load = Load(model="echo", url=urls[protocol], protocol=protocol, endpoint=endpoint, tokens="OUTPUT0")

    with pytest.raises(BenchError, match=r"8 times: .*cannot be read: IndexError\('no such element'\)"):
        measure(load, COUNTED)


@pytest.mark.parametrize(("protocol", "endpoint"), WAYS)
def test_times_of_answers_are_of_before_they_are_read(
    urls: dict[str, str], protocol: Protocol, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_ns: list[int] = []
    came_ns: list[int] = []
    read, responded, answered = TimedCall.read, TimedCall.responded, TimedCall.answered

    def reads(call: TimedCall, outputs: Outputs) -> str | None:
        read_ns.append(time.perf_counter_ns())
        return read(call, outputs)

    def responds(call: TimedCall, came: int = 0) -> None:
        came_ns.append(came)
        responded(call, came)

    def answers(call: TimedCall, error: str | None, came: int = 0) -> None:
        came_ns.append(came)
        answered(call, error, came)

    monkeypatch.setattr(TimedCall, "read", reads)
    monkeypatch.setattr(TimedCall, "responded", responds)
    monkeypatch.setattr(TimedCall, "answered", answers)
    load = Load(model="echo", url=urls[protocol], protocol=protocol, endpoint=endpoint, tokens="OUTPUT0")

    measure(load, Stability(request_count=1))

    assert 0 < came_ns[0] < read_ns[0]
    assert len(came_ns) == (2 if "stream" in endpoint else 1)


def test_what_is_counted_must_be_an_output(urls: dict[str, str]) -> None:
    with pytest.raises(BenchError, match="tokens 'X': model 'echo' has the outputs OUTPUT0"):
        measure(Load(model="echo", url=urls["http"], tokens="X"), COUNTED)


def data(folder: Path, document: object) -> Inputs:
    path = folder / "data.json"
    path.write_text(json.dumps(document))
    return Inputs(path)


@pytest.mark.parametrize(("protocol", "endpoint"), WAYS)
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([{"OUTPUT0": [1, 2]}, {"OUTPUT0": {"content": [3, 4], "shape": [2]}}], None),
        ([{}, {"OUTPUT0": [3, 4]}], None),
        (
            [{"OUTPUT0": [1, 2]}, {"OUTPUT0": [3, 5]}],
            "stream 0, step 1: output 'OUTPUT0' differs: element 1 is 4.0, expected 5.0",
        ),
    ],
)
def test_outputs_are_compared_with_validation_data(
    urls: dict[str, str],
    tmp_path: Path,
    protocol: Protocol,
    endpoint: Endpoint,
    wanted: object,
    words: str | None,
) -> None:
    steps = [{"INPUT0": [1, 2]}, {"INPUT0": [3, 4]}]
    inputs = data(tmp_path, {"data": steps, "validation_data": wanted})
    load = Load(model="single", url=urls[protocol], protocol=protocol, endpoint=endpoint, inputs=inputs)
    load = Load(**{**fields(load), "tokens": "OUTPUT0"})

    measured = measure(load, COUNTED)

    total = measured.total
    assert total.tokens_per_request == 2  # also of those that failed
    assert ("2.0 a request, with those that failed" in text_report([measured])) == bool(words)
    assert total.request_count == (4 if words else 8)
    assert total.error_count == (4 if words else 0)
    assert all(text.endswith(str(words)) for text in total.errors)


@pytest.mark.parametrize(("protocol", "endpoint"), [("grpc", "stream"), ("http", "generate_stream")])
def test_each_response_is_compared(
    urls: dict[str, str], tmp_path: Path, protocol: Protocol, endpoint: Endpoint
) -> None:
    document = {"data": [{"IN": [2]}, {"IN": [3]}], "validation_data": [{"OUT": [2]}, {"OUT": [9]}]}
    inputs = data(tmp_path, document)
    load = Load(model="square", url=urls[protocol], protocol=protocol, endpoint=endpoint, inputs=inputs)

    total = measure(load, COUNTED).total

    assert (total.request_count, total.error_count) == (4, 4)
    [text] = total.errors
    assert text.endswith("step 1: output 'OUT' differs: element 0 is 3, expected 9")


@pytest.mark.parametrize(("protocol", "endpoint"), [("grpc", "stream"), ("http", "generate_stream")])
def test_a_request_without_responses_has_not_what_was_expected(
    urls: dict[str, str], tmp_path: Path, protocol: Protocol, endpoint: Endpoint
) -> None:
    document = {"data": [{"IN": [0]}, {"IN": [1]}], "validation_data": [{"OUT": [5]}, {"OUT": [1]}]}
    load = Load(
        model="square",
        url=urls[protocol],
        protocol=protocol,
        endpoint=endpoint,
        inputs=data(tmp_path, document),
    )

    total = measure(load, COUNTED).total

    assert (total.request_count, total.error_count, total.response_count) == (4, 4, 4)
    [text] = total.errors
    assert text.endswith("stream 0, step 0: no response, expected output 'OUT'")


@pytest.mark.parametrize(("protocol", "endpoint"), [("grpc", "stream"), ("http", "generate_stream")])
def test_requests_without_responses_are_told_of(
    urls: dict[str, str], tmp_path: Path, protocol: Protocol, endpoint: Endpoint
) -> None:
    load = Load(
        model="square",
        url=urls[protocol],
        protocol=protocol,
        endpoint=endpoint,
        inputs=data(tmp_path, {"data": [{"IN": [0]}]}),
        tokens="OUT",
    )

    measured = measure(load, COUNTED, processes=2)

    assert (measured.total.request_count, measured.total.response_count) == (8, 0)
    found = measurement_json(measured)
    assert (found["responses"]["count"], found["tokens"]["count"]) == (0, 0)
    assert "0.0 responses/s" in text_report([measured])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_rows_of_a_batch_are_compared_together(
    urls: dict[str, str], tmp_path: Path, protocol: Protocol
) -> None:
    steps = [{"INPUT0": [number] * 16} for number in range(3)]
    wanted = [{"OUTPUT0": [number] * 16} for number in range(3)]
    load = Load(
        model="echo",
        url=urls[protocol],
        protocol=protocol,
        batch_size=2,
        inputs=data(tmp_path, {"data": steps, "validation_data": wanted}),
    )

    assert measure(load, COUNTED, processes=2).total.errors == {}


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_steps_of_sequences_are_compared(urls: dict[str, str], tmp_path: Path, protocol: Protocol) -> None:
    steps = [[{"INPUT0": [1]}, {"INPUT0": [2]}], [{"INPUT0": [3]}]]
    wanted = [[{"OUTPUT0": [1]}, {"OUTPUT0": [2]}], [{"OUTPUT0": [4]}]]
    load = Load(
        model="counted",
        url=urls[protocol],
        protocol=protocol,
        pace=Concurrency(2),
        sequences=SequenceShape(),
        inputs=data(tmp_path, {"data": steps, "validation_data": wanted}),
    )

    total = measure(load, Stability(request_count=20)).total

    assert total.request_count > 0
    assert [text.partition("', ")[2] for text in total.errors] == [
        "stream 1, step 0: output 'OUTPUT0' differs: element 0 is 3, expected 4"
    ]


@pytest.mark.parametrize(
    ("document", "change", "words"),
    [
        ({"validation_data": {}}, {}, "expected a list 'validation_data'"),
        ({"validation_data": [{}]}, {}, "'validation_data' has 1 steps, 'data' 2: each needs one"),
        ({"validation_data": [[{}], [1]]}, {}, "'validation_data', stream 1 is not a list of objects"),
        ({"validation_data": [{}, {"X": [1]}]}, {}, "step 1: 'X' in 'validation_data' is no output of model"),
        (
            {"validation_data": [{"OUTPUT0": [1]}, {}]},
            {},
            r"step 0, output 'OUTPUT0' of 'validation_data': got 1 elements, expected 16 for \[16\]",
        ),
        (
            {"validation_data": [{"OUTPUT0": [0] * 16}, {}]},
            {"batch_size": 2},
            "step 1: 'validation_data' has other outputs than the step before.*use a batch size of 1",
        ),
        (
            {"validation_data": [{"OUTPUT0": [0] * 16}, {}]},
            {"shared_memory": "system"},
            "'validation_data' is compared with outputs in responses",
        ),
    ],
    ids=str,
)
def test_validation_data_that_does_not_fit_is_refused(
    urls: dict[str, str], tmp_path: Path, document: dict[str, object], change: dict[str, object], words: str
) -> None:
    inputs = data(tmp_path, {"data": [{"INPUT0": [0] * 16}] * 2, **document})

    with pytest.raises(BenchError, match=words):
        measure(Load(model="echo", url=urls["http"], inputs=inputs, **change), COUNTED)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("datatype", "got", "wanted", "words"),
    [
        ("INT32", ONE_TWO, ONE_TWO, None),
        ("INT32", ONE_TWO[:4], ONE_TWO, "s: output 'OUT' has 1 elements, expected 2"),
        ("FP32", b"\0\0\0\x80", bytes(4), "s: output 'OUT' differs: element 0 is -0.0, expected 0.0"),
        (
            "BYTES",
            packed([b"a", b"x" * 90]),
            packed([b"a", b"b"]),
            "s: output 'OUT' differs: element 1 is b'xx",
        ),
        ("INT32", b"abc", ONE_TWO, "s: output 'OUT' has 3 bytes, expected 8 of INT32"),
        ("INT32", None, ONE_TWO, "s: output 'OUT' is not in the response"),
        ("BYTES", b"abc", b"", "s: output 'OUT' has 3 bytes, expected 0 of BYTES"),
    ],
)
def test_how_an_output_differs(datatype: str, got: bytes | None, wanted: bytes, words: str | None) -> None:
    difference = Expected("OUT", datatype, wanted, "s").difference({"OUT": Output(1, lambda: got)})

    assert difference == words if words is None else str(difference).startswith(words)


def test_an_output_may_be_missing() -> None:
    assert Expected("OUT", "INT32", b"", "s").difference({}) == "s: output 'OUT' is missing"


@pytest.mark.parametrize("is_binary", [True, False])
def test_outputs_of_answers_in_json_and_behind_it(is_binary: bool) -> None:
    out = {"name": "OUT", "datatype": "INT32", "shape": [1, 2]}
    text = {"name": "TEXT", "datatype": "BYTES", "shape": [1]}
    wires = (ONE_TWO, packed([b"hi"]))
    if is_binary:
        entries = [
            {**entry, "parameters": {"binary_data_size": len(wire)}}
            for entry, wire in zip((out, text), wires, strict=True)
        ]
    else:
        entries = [{**out, "data": [1, 2]}, {**text, "data": ["hi"]}]
    head = json.dumps({"outputs": entries}).encode()
    body, size = (head + b"".join(wires), len(head)) if is_binary else (head, None)

    outputs = Reader(FACTS).infer(body, size)

    assert {name: (output.element_count, output.wire()) for name, output in outputs.items()} == {
        "OUT": (2, wires[0]),
        "TEXT": (1, wires[1]),
    }


def test_outputs_of_responses_of_grpc() -> None:
    raw, typed = messages.ModelInferResponse(), messages.ModelInferResponse()
    for response in (raw, typed):
        response.outputs.add(name="OUT", datatype="INT32", shape=[2])
        response.outputs.add(name="TEXT", datatype="BYTES", shape=[1])
    raw.raw_output_contents.extend([ONE_TWO, packed([b"hi"])])
    typed.outputs[0].contents.int_contents.extend([1, 2])
    typed.outputs[1].contents.bytes_contents.append(b"hi")

    read = [{name: each.wire() for name, each in called(response).items()} for response in (raw, typed)]

    assert read[0] == read[1] == {"OUT": ONE_TWO, "TEXT": packed([b"hi"])}

    typed.outputs[0].datatype = "UINT8"
    typed.outputs[0].contents.int_contents.append(-5)
    assert called(typed)["OUT"].wire() is None

    typed.outputs[0].datatype = "INT33"
    assert called(typed)["OUT"].wire() is None
