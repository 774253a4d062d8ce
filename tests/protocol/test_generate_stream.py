"""Server-sent events of generate_stream: what is in them, when they leave, and who pays for slow clients."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import socket
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..servers import local_options

MODELS = Path(__file__).with_name("generate_models")
TALKER = {"id": "7", "model_name": "talker", "model_version": "1"}
CURL = shutil.which("curl")


def request_bytes(path: str, document: dict[str, Any], version: str = "1.1", headers: str = "") -> bytes:
    body = json.dumps(document).encode()
    head = f"POST /v2/models/{path} HTTP/{version}\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def send(port: int, path: str, document: dict[str, Any], **options: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(request_bytes(path, document, **options))
    return client


def read_until(client: socket.socket, mark: bytes) -> bytes:
    received, seen = bytearray(), 0
    while received.find(mark, seen) < 0:
        seen = max(0, len(received) - len(mark))
        part = client.recv(65536)
        assert part, bytes(received)
        received += part
    return bytes(received)


def read_to_end(client: socket.socket) -> bytes:
    received = b""
    while part := client.recv(65536):
        received += part
    return received


def statistics(port: int, model: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        connection.request("GET", f"/v2/models/{model}/stats")
        document = json.loads(connection.getresponse().read())
    stats: dict[str, Any] = document["model_stats"][0]
    return stats


def said(*words: str) -> list[dict[str, Any]]:
    return [{**TALKER, "text": word} for word in words]


TALKS: dict[str, tuple[list[str], int, list[dict[str, Any]]]] = {
    "one": (["a"], 200, said("a")),
    "several": (["a", "b", "c"], 200, said("a", "b", "c")),
    "none": ([], 200, []),
    "the last with the flag": (["a", "last"], 200, said("a", "last")),
    "no outputs": (["nothing"], 200, [TALKER]),
    "arrays": (["two"], 200, [{**TALKER, "number": [1.5, 2.0], "text": ["x", "y"]}]),
    "an error in the middle": (["a", "error", "b"], 200, [*said("a"), {"error": "bad "}, *said("b")]),
    "an error at the end": (["a", "last error"], 200, [*said("a"), {"error": "bad end"}]),
}


def assert_streams(port: int, name: str) -> None:
    say, expected_status, expected = TALKS[name]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        for path in ("talker/generate_stream", "talker/versions/1/generate_stream"):  # on one connection
            connection.request("POST", f"/v2/models/{path}", json.dumps({"say": say, "id": "7"}))
            response = connection.getresponse()
            body = response.read()

            assert response.status == expected_status
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert response.headers["Transfer-Encoding"] == "chunked"
            events = body.split(b"\n\n")
            assert events.pop() == b""
            assert [json.loads(event.removeprefix(b"data: ")) for event in events] == expected


@pytest.mark.parametrize("name", TALKS)
def test_each_response_is_an_event(generate_port: int, name: str) -> None:
    assert_streams(generate_port, name)


@pytest.mark.parity
@pytest.mark.parametrize("name", TALKS)
def test_a_real_server_sends_the_same_events(real_generate_port: int, name: str) -> None:
    assert_streams(real_generate_port, name)


def test_an_error_before_all_else_decides_the_status_and_what_follows_still_comes(generate_port: int) -> None:
    with send(
        generate_port, "talker/generate_stream", {"say": ["error:UNAVAILABLE", "a"]}, version="1.0"
    ) as client:
        answer = read_to_end(client)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 503 " in head
    assert body == (
        b'data: {"error":"bad UNAVAILABLE"}\n\n'
        b'data: {"model_name":"talker","model_version":"1","text":"a"}\n\n'
    )


def test_events_leave_while_the_model_is_still_at_it(generate_port: int, tmp_path: Path) -> None:
    flag = tmp_path / "go"

    with send(generate_port, "talker/generate_stream", {"say": ["a", f"until:{flag}", "b"]}) as client:
        first = read_until(client, b'"text":"a"')
        flag.touch()
        rest = read_until(client, b"0\r\n\r\n")

    assert b'"text":"b"' not in first
    assert b'"text":"b"' in rest


def test_http_1_0_gets_events_without_chunks_up_to_the_end_of_the_connection(generate_port: int) -> None:
    with send(generate_port, "talker/generate_stream", {"say": ["a"]}, version="1.0") as client:
        head, _, body = read_to_end(client).partition(b"\r\n\r\n")

    assert b"chunked" not in head
    assert body == b'data: {"model_name":"talker","model_version":"1","text":"a"}\n\n'


def test_generate_waits_for_a_model_that_says_it_is_done_later(generate_port: int, tmp_path: Path) -> None:
    flag = tmp_path / "go"

    with send(generate_port, "talker/generate", {"say": ["a", f"until:{flag}"]}) as client:
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(30)
        flag.touch()
        answer = read_until(client, b"}")

    assert b'"text":"a"' in answer


@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_a_client_that_hangs_up_cancels_its_running_request(
    generate_port: int, tmp_path: Path, path: str
) -> None:
    begun, noticed = tmp_path / "begun", tmp_path / "noticed"
    say = ["a", f"touch:{begun}", f"until cancelled:{noticed}"]
    with send(generate_port, f"talker/{path}", {"say": say}) as client:
        until(begun.exists)
        if path == "generate_stream":
            read_until(client, b'"text":"a"')

    until(noticed.exists)


def test_a_client_that_hangs_up_takes_its_request_out_of_the_queue(
    generate_port: int, tmp_path: Path
) -> None:
    flag, trace = tmp_path / "go", tmp_path / "never"
    busy = send(generate_port, "talker/generate_stream", {"say": ["a", f"until:{flag}"]})
    read_until(busy, b'"text":"a"')
    waiting = send(generate_port, "talker/generate_stream", {"say": [f"until cancelled:{trace}"]})
    before = statistics(generate_port, "talker")["inference_stats"]["fail"]["count"]

    waiting.close()
    until(lambda: statistics(generate_port, "talker")["inference_stats"]["fail"]["count"] > before)
    flag.touch()
    read_until(busy, b"0\r\n\r\n")
    busy.close()

    assert_streams(generate_port, "several")  # the instance is free
    assert not trace.exists()


def test_a_client_that_never_reads_loses_its_request_and_nobody_else_does(
    generate_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    before = statistics(generate_port, "flood")["execution_count"]
    with caplog.at_level(logging.WARNING, "tritonpy.http"):
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", generate_port))
        slow.sendall(request_bytes("flood/generate_stream", {"id": "slow", "count": 8000, "byte_size": 4096}))
        quick = send(generate_port, "flood/generate_stream", {"count": 300, "byte_size": 1000})
        answer = read_until(quick, b"0\r\n\r\n")
        quick.close()
        until(lambda: any("[request id: slow]" in record.getMessage() for record in caplog.records))
        late = read_until(slow, b"\r\n0\r\n\r\n")
        slow.close()

    until(lambda: statistics(generate_port, "flood")["execution_count"] > before)
    assert statistics(generate_port, "flood")["execution_count"] == before + 1  # they were one batch
    assert answer.count(b"data: ") == 300
    assert b'"error"' not in answer
    said = (record.getMessage() for record in caplog.records)
    warning = next(line for line in said if "[request id: slow]" in line)
    assert "reads too slowly" in warning
    assert "at most 1024 responses or 67108864 bytes are held" in warning
    event = late[late.rindex(b"data: ") :].partition(b"\n\n")[0]
    assert "reads too slowly" in json.loads(event.removeprefix(b"data: "))["error"]


def test_a_client_that_reads_slowly_gets_everything(generate_port: int) -> None:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect(("127.0.0.1", generate_port))
    done = statistics(generate_port, "flood")["inference_stats"]["success"]["count"]
    client.sendall(request_bytes("flood/generate_stream", {"count": 40, "byte_size": 100_000}, version="1.0"))
    with send(
        generate_port, "flood/generate_stream", {"count": 1, "byte_size": 1}
    ) as other:  # fills the batch
        read_until(other, b"0\r\n\r\n")
    until(lambda: statistics(generate_port, "flood")["inference_stats"]["success"]["count"] == done + 2)

    body = read_to_end(client).partition(b"\r\n\r\n")[2]
    client.close()

    assert body.count(b"data: ") == 40
    assert body.count(b"x" * 100_000) == 40


def test_a_stopping_server_lets_a_stream_end(tmp_path: Path) -> None:
    flag = tmp_path / "go"
    talker = {"model_control_mode": "explicit", "load_models": ("talker",)}
    server = Server(local_options(MODELS, allow_grpc=False, allow_metrics=False, **talker))
    server.start()
    client = send(server.http_port, "talker/generate_stream", {"say": ["a", f"until:{flag}", "b"]})
    read_until(client, b'"text":"a"')
    stopping = threading.Thread(target=server.stop)
    stopping.start()

    flag.touch()
    rest = read_to_end(client)
    stopping.join()
    client.close()

    assert b'"text":"b"' in rest
    assert rest.endswith(b"0\r\n\r\n")


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_curl_shows_events_as_they_come(generate_port: int, tmp_path: Path) -> None:
    flag = tmp_path / "go"
    command = [
        str(CURL),
        "-sN",
        f"http://127.0.0.1:{generate_port}/v2/models/talker/generate_stream",
        "-d",
        json.dumps({"say": ["a", f"until:{flag}", "b"]}),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        first = curl.stdout.readline()
        flag.touch()
        rest = curl.stdout.read()

    assert curl.returncode == 0
    assert first == 'data: {"model_name":"talker","model_version":"1","text":"a"}\n'
    assert rest == '\ndata: {"model_name":"talker","model_version":"1","text":"b"}\n\n'
