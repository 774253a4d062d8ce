from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tritonpy.cli.main import main


def stamp(id: int, name: str, us: int) -> dict[str, Any]:
    return {"id": id, "timestamps": [{"name": name, "ns": 1_000_000 + us * 1000}]}


def request(id: int, start: int, model: str = "m", **about: Any) -> list[dict[str, Any]]:
    names = ("REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START")
    times = (0, 5, 25, 35, 135)
    return [
        {"id": id, "model_name": model, "model_version": 1, **about},
        *(stamp(id, name, start + time) for name, time in zip(names, times, strict=True)),
        stamp(id, "COMPUTE_END", start + 140),
        stamp(id, "REQUEST_END", start + 150),
    ]


def over_http(id: int, start: int, **about: Any) -> list[dict[str, Any]]:
    return [
        stamp(id, "HTTP_SEND_START", start + 160),
        stamp(id, "HTTP_SEND_END", start + 170),
        stamp(id, "HTTP_RECV_START", start - 40),
        stamp(id, "HTTP_RECV_END", start - 10),
        *request(id, start, **about),
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two requests over HTTP, one over gRPC that was waited for long, and one that a model has made."""
    over_grpc = [
        stamp(3, "GRPC_WAITREAD_START", 0),
        stamp(3, "GRPC_WAITREAD_END", 1_000_000),
        *request(3, 1_000_010),
        stamp(3, "GRPC_SEND_START", 1_000_170),
        stamp(3, "GRPC_SEND_END", 1_000_190),
    ]
    path = tmp_path / "traces.json"
    entries = [
        *request(4, 300, "step", parent_id=2, request_id="inner"),
        *over_http(1, 100),
        *over_http(2, 250, request_id="outer"),
        *over_grpc,
        {"id": 4, "activity": "TENSOR_QUEUE_INPUT", "tensor": {"name": "a", "data": "1"}},
    ]
    path.write_text(json.dumps(entries))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(["trace", "summary", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_each_model_and_way_in_has_a_row(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    status, out, _ = run(capsys, file)

    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        [
            "MODEL",
            "VERSION",
            "FROM",
            "COUNT",
            "TOTAL",
            "P99",
            "RECEIVE",
            "OVERHEAD",
            "QUEUE",
            "INPUT",
            "INFER",
            "OUTPUT",
            "SEND",
        ],
        ["m", "1", "HTTP", "2", "210", "210", "30.0", "35.0", "20.0", "10.0", "100", "5.0", "10.0"],
        ["m", "1", "gRPC", "1", "190", "190", "0.0", "35.0", "20.0", "10.0", "100", "5.0", "20.0"],
        ["step", "1", "model", "1", "150", "150", "0.0", "15.0", "20.0", "10.0", "100", "5.0", "0.0"],
    ]


def test_phases_are_the_whole_time(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    _, out, _ = run(capsys, file, "--json")

    for row in json.loads(out):
        assert sum(row["mean_ns"].values()) == row["total_ns"]["mean"]
    assert json.loads(out)[0]["total_ns"] == {"mean": 210_000, "p50": 210_000, "p99": 210_000, "max": 210_000}


def test_one_model_may_be_asked_for(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    _, out, _ = run(capsys, file, "--model", "step")

    assert [line.split()[0] for line in out.splitlines()] == ["MODEL", "step"]


def test_requests_are_shown_step_by_step_with_those_made_for_them(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    _, out, _ = run(capsys, file, "--requests")
    lines = out.splitlines()

    assert lines[0] == "1  m version 1, from HTTP: 210 us"
    assert [line.split() for line in lines[1:4]] == [
        ["0.0", "HTTP_RECV_START"],
        ["30.0", "HTTP_RECV_END"],
        ["10.0", "REQUEST_START"],
    ]
    inner = next(line for line in lines if "step" in line)
    assert inner == "    4  step version 1, from model, request id inner: 150 us"
    before = [line for line in lines[: lines.index(inner)] if not line.startswith(" ")]
    assert before[-1].startswith("2  m version 1, from HTTP, request id outer")


def test_requests_as_json(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    _, out, _ = run(capsys, file, "--requests", "--json", "--model", "step")

    (found,) = json.loads(out)
    assert (found["id"], found["parent_id"], found["from"], found["total_ns"]) == (4, 2, "model", 150_000)
    assert found["steps"][1] == {"name": "QUEUE_START", "ns": 5000}


def test_files_of_several_servers_are_counted_together(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    _, out, _ = run(capsys, file, file)

    assert out.splitlines()[1].split()[:4] == ["m", "1", "HTTP", "4"]


def test_times_that_a_real_triton_does_not_know_are_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    unknown = {"id": 1, "timestamps": [{"name": "HTTP_SEND_START", "ns": 0}]}
    path = tmp_path / "t"
    path.write_text(json.dumps([*over_http(1, 100), unknown]))
    _, out, _ = run(capsys, path)

    assert out.splitlines()[1].split()[4] == "210"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[", "is no JSON"),
        (
            '[{"id":1,"tensor":{"data":"\\"c"d\\""}}]',
            "a real Triton writes none when a string tensor has quotes",
        ),
        ("{}", "is no trace file: expected an array, got dict"),
        ('[{"name": "x"}]', "is no trace file: expected objects with an 'id', got {'name': 'x'}"),
        ('[{"id": 1, "timestamps": [{}]}]', "is no trace file: KeyError('ns')"),
    ],
)
def test_what_is_no_trace_file_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, error: str
) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    status, _, err = run(capsys, path)

    assert status == 1
    assert f"'{path}'" in err
    assert error in err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "/nowhere")

    assert (status, err.strip()) == (1, "Error: cannot read '/nowhere': No such file or directory")
