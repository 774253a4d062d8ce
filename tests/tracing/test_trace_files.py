"""Traces of requests over both protocols in files: of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.testing import until

from ..servers import OURS_AND_REAL
from .asking import Endpoint
from .conftest import wait_for_files

WORDS = ("rate=1", "level=TIMESTAMPS", "level=TENSORS", "triton,log-frequency=1")
CLIENTS_REQUESTS = 11
COMPUTE = ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
MODEL = ["REQUEST_START", "QUEUE_START", *COMPUTE, "REQUEST_END"]
ENSEMBLE = ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
HTTP = ["HTTP_RECV_START", "HTTP_RECV_END"]
HTTP_SENT = ["HTTP_SEND_START", "HTTP_SEND_END"]
GRPC = ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END"]
GRPC_SENT = ["GRPC_SEND_START", "GRPC_SEND_END"]
ANSWERED = ["INFER_RESPONSE_COMPLETE"]

Entry = dict[str, Any]


class Traced:
    """One request of a trace: what a file says of one id."""

    def __init__(self, entries: list[Entry]) -> None:
        (self.about,) = (entry for entry in entries if "model_name" in entry)
        self.entries = entries
        self.times: dict[str, list[int]] = {}
        for entry in entries:
            for stamp in entry.get("timestamps", ()):
                self.times.setdefault(stamp["name"], []).append(stamp["ns"])

    @property
    def activities(self) -> list[str]:
        """Every stamp, sorted: which comes first in a file of a real server is a matter of luck."""
        return sorted(name for name, times in self.times.items() for _ in times)

    def tensors(self, activity: str) -> list[Entry]:
        return [entry["tensor"] for entry in self.entries if entry.get("activity") == activity]


def read(path: Path) -> list[Traced]:
    """The requests of one file, a parent after its children."""
    return requests_of(json.loads(path.read_text()))


def read_written(path: Path) -> list[Traced]:
    """The same of a file that a real server may still be writing."""

    def whole() -> list[list[Traced]]:
        try:
            return [read(path)]
        except ValueError:
            return []

    return until(whole, path.read_text)[0]


def requests_of(entries: list[Entry]) -> list[Traced]:
    ids = list(dict.fromkeys(entry["id"] for entry in entries))
    return [Traced([entry for entry in entries if entry["id"] == id]) for id in ids]


def traces_of(start: Callable[..., Endpoint], folder: Path) -> dict[str, list[Traced]]:
    """The requests of each trace, by protocol and id of the client's request."""
    file = folder / "traces.json"
    server = start(f"triton,file={file}", *WORDS)
    server.ask_everything_over_http()
    server.ask_everything_over_grpc()
    found = {}
    for path in wait_for_files(file, CLIENTS_REQUESTS):
        traced = read_written(path)
        (client,) = (one for one in traced if "parent_id" not in one.about)
        protocol = "http" if "HTTP_RECV_START" in client.times else "grpc"
        found[f"{protocol} {client.about['request_id']}"] = traced
    return found


@pytest.fixture(scope="module")
def our_traces(
    ours: Callable[..., Endpoint], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Traced]]:
    return traces_of(ours, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def real_traces(
    real: Callable[..., Endpoint], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Traced]]:
    return traces_of(real, tmp_path_factory.mktemp("real"))


@pytest.fixture(params=OURS_AND_REAL)
def traces(request: pytest.FixtureRequest) -> dict[str, list[Traced]]:
    name = "our_traces" if request.param == "ours" else "real_traces"
    found: dict[str, list[Traced]] = request.getfixturevalue(name)
    return found


EXPECTED = {
    # the client's request: model and activities of each request of the trace, the client's own last
    "http echo": [("echo", HTTP + MODEL + ANSWERED + HTTP_SENT)],
    "http failing": [("failing", HTTP + MODEL + ANSWERED + HTTP_SENT)],
    "http caller": [("echo", MODEL), ("caller", HTTP + MODEL + ANSWERED + HTTP_SENT)],
    "http chain": [
        ("echo", MODEL),
        ("caller", MODEL),
        ("echo", MODEL),
        ("chain", HTTP + ENSEMBLE + ANSWERED + HTTP_SENT),
    ],
    "http generate": [("echo", HTTP + MODEL + ANSWERED + HTTP_SENT)],
    "http events": [("talker", HTTP + MODEL + ANSWERED * 4 + HTTP_SENT * 3)],
    "grpc echo": [("echo", GRPC + MODEL + ANSWERED + GRPC_SENT)],
    "grpc failing": [("failing", GRPC + MODEL + ANSWERED + GRPC_SENT)],
    "grpc caller": [("echo", MODEL), ("caller", GRPC + MODEL + ANSWERED + GRPC_SENT)],
    "grpc events": [("talker", GRPC + MODEL + ANSWERED + GRPC_SENT * 4)],
    "grpc streamed": [("echo", GRPC + MODEL + ANSWERED + GRPC_SENT)],
}


def test_every_request_leaves_a_trace(traces: dict[str, list[Traced]]) -> None:
    assert set(traces) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_trace_has_tritons_activities(traces: dict[str, list[Traced]], name: str) -> None:
    found = [(one.about["model_name"], one.activities) for one in traces[name]]

    assert found == [(model, sorted(activities)) for model, activities in EXPECTED[name]]


@pytest.mark.parametrize("name", EXPECTED)
def test_activities_follow_each_other(traces: dict[str, list[Traced]], name: str) -> None:
    for one in traces[name]:
        chain = [*HTTP, *GRPC, "REQUEST_START", "QUEUE_START", *COMPUTE, "REQUEST_END"]
        times = [one.times[activity][0] for activity in chain if activity in one.times]
        assert times == sorted(times)
        answered = one.times.get("INFER_RESPONSE_COMPLETE", [])
        sent = sorted(one.times.get("HTTP_SEND_START", []) + one.times.get("GRPC_SEND_START", []))
        ends = sorted(one.times.get("HTTP_SEND_END", []) + one.times.get("GRPC_SEND_END", []))
        if name not in ("http generate", "http events"):  # a real server has 0 there
            assert all(start <= end for start, end in zip(sent, ends, strict=True))
            assert not answered or (one.times["QUEUE_START"][0] < answered[0] <= sent[0])


@pytest.mark.parametrize("name", EXPECTED)
def test_each_request_says_what_it_is_and_whose(traces: dict[str, list[Traced]], name: str) -> None:
    by_id = {one.about["id"]: one.about for one in traces[name]}
    for about in by_id.values():
        keys = ["id", "model_name", "model_version", "request_id"]
        assert list(about) == keys + ["parent_id"] * ("parent_id" in about)
        assert about["model_version"] == 1
        if "parent_id" in about:
            parent = by_id[about["parent_id"]]
            is_call = parent["model_name"] == "caller"
            assert about["request_id"] == ("traced" if is_call else parent["request_id"])
    assert [about["id"] for about in by_id.values()] == sorted(by_id, reverse=True)


def tensor(name: str, data: str, shape: str, dtype: str = "FP32") -> Entry:
    return {"name": name, "data": data, "shape": shape, "dtype": dtype}


def test_tensors_are_written_as_triton_writes_them(traces: dict[str, list[Traced]]) -> None:
    (echo,) = traces["http echo"]
    assert echo.tensors("TENSOR_QUEUE_INPUT") == [
        tensor("INPUT0", "1.5,0.1", "2"),
        tensor("TEXT", '"ab","cd"', "2", "BYTES"),
    ]
    assert echo.tensors("TENSOR_BACKEND_OUTPUT") == [
        tensor("OUTPUT0", "1.5,0.1", "2"),
        tensor("LENGTH", "2", "1", "INT32"),
    ]
    (events,) = traces["grpc events"]
    assert [one["data"] for one in events.tensors("TENSOR_BACKEND_OUTPUT")] == ["7,8", "8,9", "9,10"]
    chain = traces["http chain"][-1]
    assert chain.tensors("TENSOR_QUEUE_INPUT") == [tensor("IN", "1.5,2,0.1", "3")]
    assert chain.tensors("TENSOR_BACKEND_OUTPUT") == [tensor("OUT", "1.5,2,0.1", "3")]
    assert traces["http failing"][0].tensors("TENSOR_BACKEND_OUTPUT") == []


def test_every_element_has_tritons_keys(traces: dict[str, list[Traced]]) -> None:
    shapes = {tuple(entry) for traced in traces.values() for one in traced for entry in one.entries}

    assert shapes == {
        ("id", "timestamps"),
        ("id", "activity", "tensor"),
        ("id", "model_name", "model_version", "request_id"),
        ("id", "model_name", "model_version", "request_id", "parent_id"),
    }


def test_events_have_the_times_at_which_they_were_sent(our_traces: dict[str, list[Traced]]) -> None:
    for name in ("http generate", "http events"):
        (one,) = our_traces[name]
        assert all(time >= one.times["INFER_RESPONSE_COMPLETE"][0] for time in one.times["HTTP_SEND_START"])


# Ours alone: what a real server never writes, or writes when it ends.


def trace_of(server: Endpoint, file: Path, number: int, ask: Callable[[], object]) -> Traced:
    ask()
    (one,) = read(wait_for_files(file, number + 1)[number])
    return one


def test_requests_that_are_refused_or_given_up_end_their_traces(
    ours: Callable[..., Endpoint], tmp_path: Path
) -> None:
    file = tmp_path / "t"
    server = ours(f"triton,file={file}", *WORDS)

    wrong = trace_of(server, file, 0, lambda: server.send("POST", "/v2/models/echo/infer", {"inputs": []}))
    assert wrong.activities == sorted([*HTTP, "REQUEST_START", *HTTP_SENT])
    assert wrong.about == {"id": 1, "model_name": "echo", "model_version": -1}

    assert server.infer("nosuch")[0] == 404  # no model, no trace
    again = trace_of(server, file, 1, lambda: server.infer("echo"))
    assert again.about["id"] == 2


def test_a_file_can_be_read_while_the_server_runs_and_is_whole_when_it_has_ended(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "t.json"
    flags = (f"--trace-config=triton,file={file}", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS")
    process = corectl(f"--model-repository={Path(__file__).with_name('models')}", *flags)
    server = Endpoint(process.ports["HTTPService"], process.ports["GRPCInferenceService"])
    for number in range(3):
        assert server.infer("echo", str(number))[0] == 200

    assert process.stop() == 0
    assert [one.about["request_id"] for one in read(file)] == ["0", "1", "2"]


def test_a_server_that_is_killed_leaves_a_whole_file(corectl: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    flags = (f"--trace-config=triton,file={file}", "--trace-config=rate=1", "--trace-config=level=TIMESTAMPS")
    process = corectl(f"--model-repository={Path(__file__).with_name('models')}", *flags)
    server = Endpoint(process.ports["HTTPService"], process.ports["GRPCInferenceService"])
    assert server.infer("echo", "only")[0] == 200
    until(lambda: file.exists() and bool(file.read_bytes()))

    process.stop(9)
    assert [one.about["request_id"] for one in read(file)] == ["only"]


def test_models_have_files_of_one_name_together(ours: Callable[..., Endpoint], tmp_path: Path) -> None:
    file = tmp_path / "t"
    server = ours(f"triton,file={file}", "rate=1")
    wish = {"trace_level": ["TIMESTAMPS"], "trace_count": "2", "log_frequency": "2"}
    assert server.send("POST", "/v2/models/echo/trace/setting", wish)[0] == 200
    for number in range(4):
        assert server.infer("echo", str(number))[0] == 200
        assert server.infer("failing")[0] == 500

    (path,) = wait_for_files(file, 1)
    assert [one.about["request_id"] for one in read(path)] == ["0", "1"]
