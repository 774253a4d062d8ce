"""One line for each HTTP answer, in a file or on standard output."""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.frontends.http.connection.access_log import AccessLog, address_of
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..servers import local_options

GET = b"GET /v2/health/live?probe=1 HTTP/1.1\r\nHost: t\r\n\r\n"
JSON = b'{"id":"seven","inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[1,2]}]}'


def post(model: str, body: bytes) -> bytes:
    return b"POST /v2/models/%b/infer HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (
        model.encode(),
        len(body),
        body,
    )


def options(models: Path, path: Path | str) -> ServerOptions:
    return local_options(models, allow_grpc=False, allow_metrics=False, http_access_log=str(path))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_answer_leaves_a_line(echo_models: Path, dial: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_text('{"from":"before"}\n')
    with Server(options(echo_models, path)) as server:
        client = dial(server.http_port)
        host, port = client.socket.getsockname()
        client.send(GET, post("slow", JSON), post("nobody", b"{}"))
        sizes = [len(client.answer().body) for _ in range(3)]
        client.send(b"RUBBISH\r\n\r\n")
        sizes.append(len(client.answer().body))
        old = dial(server.http_port)
        old.send(b"GET /v2 HTTP/1.0\r\n\r\n")
        sizes.append(len(old.answer().body))

    found = lines(path)
    assert found.pop(0) == {"from": "before"}
    assert [(line["method"], line["path"], line["status"]) for line in found] == [
        ("GET", "/v2/health/live", 200),
        ("POST", "/v2/models/slow/infer", 200),
        ("POST", "/v2/models/nobody/infer", 404),
        ("-", "-", 400),
        ("GET", "/v2", 200),
    ]
    assert [line["response_bytes"] for line in found] == sizes
    assert [line["request_bytes"] for line in found] == [0, len(JSON), 2, 0, 0]
    assert {line["client"] for line in found[:4]} == {f"{host}:{port}"}
    assert [line.get("request_id") for line in found] == [None, "seven", None, None, None]
    assert 300_000 <= found[1]["duration_us"] < 20_000_000
    for line in found:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])
        age = datetime.now(UTC) - datetime.fromisoformat(line["time"])
        assert timedelta(0) <= age < timedelta(minutes=1)


def test_a_stream_of_events_leaves_one_line_with_all_its_bytes(
    dial: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "access.log"
    models = Path(__file__).parent.parent.parent / "examples/text_generation/models"
    with Server(options(models, path)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        body = json.dumps({"id": "8", "text_input": "the", "max_tokens": 3})
        connection.request("POST", "/v2/models/text_generation_stream/generate_stream", body)
        events = connection.getresponse().read()
        connection.close()
    (line,) = lines(path)

    assert events.startswith(b"data: ")
    assert (line["status"], line["request_bytes"], line["response_bytes"]) == (200, len(body), len(events))
    assert line["request_id"] == "8"


def test_a_rotated_file_is_begun_anew(echo_models: Path, dial: Callable[..., Any], tmp_path: Path) -> None:
    path, old = tmp_path / "access.log", tmp_path / "access.log.1"
    with Server(options(echo_models, path)) as server:
        client = dial(server.http_port)
        client.send(GET)
        client.answer()
        until(path.read_text)
        path.rename(old)
        client.send(GET, GET)
        client.answer()
        client.answer()

    assert len(lines(old)) == 1
    assert len(lines(path)) == 2


def test_a_dash_stands_for_standard_output(
    echo_models: Path, corectl: Callable[..., Any], dial: Callable[..., Any], tmp_path: Path
) -> None:
    output, program = tmp_path / "output", tmp_path / "corectl"
    program.write_text(f'#!/bin/sh\nexec {Path(sys.executable).with_name("corectl")} "$@" > {output}\n')
    program.chmod(0o700)
    server = corectl(f"--model-repository={echo_models}", "--http-access-log=-", program=program)
    client = dial(server.http_port)
    client.send(GET)
    client.answer()
    client.close()

    assert server.stop() == 0
    (line,) = lines(output)
    assert (line["path"], line["status"]) == ("/v2/health/live", 200)


def test_a_file_that_cannot_be_written_is_named_at_the_start(echo_models: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidArg, match=r"--http-access-log: cannot write to '.*': No such file"),
        Server(options(echo_models, tmp_path / "nowhere" / "access.log")),
    ):
        pass


def test_lines_that_the_disk_does_not_take_in_time_are_dropped_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonpy.frontends.http.connection.access_log._MOST_WAITING", 10)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(fifo))
    request = HttpRequest(b"GET", "/" + "x" * 200_000, {}, b"", True)
    for _ in range(100):  # far more than the pipe takes
        log.begin(("10.0.0.1", 5), request).end(b"HTTP/1.1 200 OK\r\n\r\n", 19)
    os.set_blocking(reader, True)
    with os.fdopen(reader, "rb") as pipe:
        draining = threading.Thread(target=pipe.read)  # until the log closes its end
        draining.start()
        log.close()
        draining.join()

    assert "lines of the access log were dropped" in caplog.text


@pytest.mark.parametrize(
    ("peer", "text"),
    [(("10.0.0.1", 5), "10.0.0.1:5"), (("::1", 5, 0, 0), "[::1]:5"), (None, "-"), ("", "-")],
)
def test_addresses_are_written_as_in_urls(peer: object, text: str) -> None:
    assert address_of(peer) == text
