"""`corectl models` and `corectl infer` against a server with the built-in backends."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
from tritonpy.cli.main import main
from tritonpy.options import ServerOptions
from tritonpy.server import Server

CONFIGS = {
    "echo": """
        backend: "identity" max_batch_size: 8
        input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] } ]
        output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] } ]
    """,
    "types": """
        backend: "identity"
        input [
            { name: "INPUT0" data_type: TYPE_STRING dims: [ -1 ] },
            { name: "INPUT1" data_type: TYPE_BF16 dims: [ -1 ] },
            { name: "INPUT2" data_type: TYPE_FP16 dims: [ -1 ] }
        ]
        output [
            { name: "OUTPUT0" data_type: TYPE_STRING dims: [ -1 ] },
            { name: "OUTPUT1" data_type: TYPE_BF16 dims: [ -1 ] },
            { name: "OUTPUT2" data_type: TYPE_FP16 dims: [ -1 ] }
        ]
    """,
    "square": """
        backend: "square"
        input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
        output [ { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
        model_transaction_policy { decoupled: true }
    """,
    "slow": """
        backend: "identity"
        input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
        output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
        parameters { key: "execute_delay_ms" value { string_value: "3000" } }
    """,
    "broken": """
        backend: "no_such_backend"
        input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
        output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] } ]
    """,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    for name, config in CONFIGS.items():
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(config)
    options = ServerOptions(
        (str(repository),),
        exit_on_error=False,
        exit_timeout_s=0,  # a model is still busy
        http_address="127.0.0.1",
        http_port=0,
        grpc_address="127.0.0.1",
        grpc_port=0,
        allow_metrics=False,
    )
    with Server(options) as server:
        yield server


@pytest.fixture(params=["http", "grpc"])
def where(request: pytest.FixtureRequest, server: Server) -> list[str]:
    """How to reach the server by either protocol."""
    if request.param == "http":
        return [f"--url=127.0.0.1:{server.http_port}"]
    return ["--grpc", f"--url=127.0.0.1:{server.grpc_port}"]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else can have meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_models_shows_state_and_reason(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", f"--url=http://127.0.0.1:{server.http_port}"]) == 0

    rows = {line.split()[0]: line.split(None, 3) for line in capsys.readouterr().out.splitlines()}
    assert rows["name"] == ["name", "version", "state", "reason"]
    assert rows["echo"][:3] == ["echo", "1", "READY"]
    assert rows["broken"][2] == "UNAVAILABLE"
    assert "no_such_backend" in rows["broken"][3]


def test_models_as_json_is_the_index(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json", f"--url=127.0.0.1:{server.http_port}"]) == 0

    entries = json.loads(capsys.readouterr().out)
    assert {"name": "echo", "version": "1", "state": "READY"}.items() <= next(
        entry for entry in entries if entry["name"] == "echo"
    ).items()


def test_infer_prints_the_outputs(where: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "echo", "--input", "INPUT0=1 2.5", *where]) == 0

    assert capsys.readouterr().out == "echo version 1\nOUTPUT0 FP32 [1,2]\n  [[1. , 2.5]]\n"


def test_infer_as_json_has_every_value(
    where: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype="f4").reshape(4, 2))

    assert main(["infer", "echo", f"--input=INPUT0=@{tmp_path / 'x.npy'}", "--json", *where]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "model_name": "echo",
        "model_version": "1",
        "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [4, 2], "data": [*range(8)]}],
    }


def test_infer_carries_types_that_json_does_not_have(
    where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--input=INPUT0=grüß dich", "--input=INPUT1=1.5 -2", "--input=INPUT2=0.5,NaN"]

    assert main(["infer", "types", "--json", *arguments, *where]) == 0

    outputs = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["outputs"]}
    assert outputs["OUTPUT0"]["data"] == ["grüß dich"]
    assert outputs["OUTPUT1"] == {"name": "OUTPUT1", "datatype": "BF16", "shape": [2], "data": [1.5, -2.0]}
    assert outputs["OUTPUT2"]["data"][0] == 0.5
    assert np.isnan(outputs["OUTPUT2"]["data"][1])


def test_infer_asks_for_the_named_output_and_version_only(
    where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--input=INPUT0=a", "--input=INPUT1=1", "--input=INPUT2=1", "--output=OUTPUT2"]

    assert main(["infer", "types", "--version=1", *arguments, *where]) == 0

    assert capsys.readouterr().out == "types version 1\nOUTPUT2 FP16 [1]\n  [1.]\n"


def test_infer_over_grpc_prints_every_answer_of_a_decoupled_model(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", "square", "--grpc", f"--url=127.0.0.1:{server.grpc_port}", "--input=IN=3"]) == 0

    assert capsys.readouterr().out.count("OUT INT32 [1]\n  [3]\n") == 3


def test_infer_over_http_repeats_why_a_decoupled_model_cannot(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", "square", f"--url=127.0.0.1:{server.http_port}", "--input=IN=3"]) == 1

    assert "HTTP end point doesn't support models with decoupled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["unknown", "--input=X=1"], "unknown model"),
        (["ecko", "--input=X=1"], "; did you mean echo? The server knows broken, echo, "),
        (["echo", "--version=7", "--input=INPUT0=1 2"], "version 7"),
        (["echo", "--input=X=1"], "model 'echo' has no input 'X'; its inputs are INPUT0 (FP32 [-1,2])"),
        (["echo"], "model 'echo' wants inputs: INPUT0 (FP32 [-1,2]); give them by --input"),
        (["echo", "--input=INPUT0=1 2 3"], "got shape [3], expected [-1,2]"),
        (["echo", "--input=INPUT0=@/no/file"], "input 'INPUT0': cannot read /no/file: No such file"),
        (["echo", "--input=INPUT0=1 2", "--output=Y"], "unexpected inference output 'Y' for model 'echo'"),
        (["echo", "--input=INPUT0"], "got 'INPUT0', expected NAME=VALUE"),
        (["echo", "--input=INPUT0=1 2", "--input=INPUT0=1 2"], "'INPUT0' is given twice"),
        (["echo", "--input=INPUT0=1 2", "--shape=INPUT0=a"], "expected numbers between commas"),
        (["slow", "--input=INPUT0=1", "--timeout=0.2"], "within 0.2 s; wait longer with --timeout"),
    ],
)
def test_infer_says_what_is_wrong(
    where: list[str], arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["infer", *arguments, *where]) == 1

    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["models"], ["infer", "echo", "--input=X=1"], ["infer", "echo", "--grpc", "--input=X=1"]]
)
def test_a_server_that_is_not_there_is_named_with_what_to_do(
    arguments: list[str], closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, f"--url=127.0.0.1:{closed_port}"]) == 1

    error = capsys.readouterr().err
    assert f"127.0.0.1:{closed_port}" in error
    assert "no server answers at" in error
    assert "corectl serve --model-repository PATH" in error


@pytest.mark.parametrize("url", ["ftp://localhost", "http://", "localhost:notaport"])
def test_an_address_that_is_none_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", f"--url={url}"]) == 1
    assert "--url" in capsys.readouterr().err


def test_something_that_does_not_speak_http_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"220 mail.example\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert main(["models", f"--url=127.0.0.1:{listener.getsockname()[1]}"]) == 1
        thread.join()

    assert "does not speak HTTP" in capsys.readouterr().err


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("command", [["models"], ["infer", "echo"], ["models", "load", "echo"]])
def test_a_page_of_another_server_is_not_printed(
    command: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b"<!DOCTYPE html><title>Welcome</title>"
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as fake:
        thread = threading.Thread(target=fake.serve_forever, args=(0.02,))
        thread.start()
        ended = main([*command, f"--url=127.0.0.1:{fake.server_port}"])
        fake.shutdown()
        thread.join()

    error = capsys.readouterr().err
    assert ended == 1
    assert f"http://127.0.0.1:{fake.server_port} is no inference server: it sent a page of HTML" in error
    assert "DOCTYPE" not in error


def test_models_falls_back_to_statistics_where_there_is_no_index(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        def do_GET(self) -> None:
            body = b'{"model_stats": [{"name": "m", "version": "3"}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as fake:
        thread = threading.Thread(target=fake.serve_forever, args=(0.02,))
        thread.start()
        status = main(["models", f"--url=http://127.0.0.1:{fake.server_port}"])
        fake.shutdown()
        thread.join()

    assert status == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()][1] == ["m", "3", "READY"]
