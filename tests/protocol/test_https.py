"""The HTTP port over TLS, with certificates made for the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
import trustme
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.server import Server

from ..servers import http_of, local_options

GET = b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n\r\n"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> tuple[Path, Path]:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    issued = authority.issue_cert("localhost", "127.0.0.1")
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    return certificate, key


@pytest.fixture
def trust(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def options(models: Path, certificate: Path | str, key: Path | str) -> ServerOptions:
    return local_options(
        models, allow_grpc=False, allow_metrics=False, https_certificate=str(certificate), https_key=str(key)
    )


def test_bodies_of_every_size_come_back_whole(
    echo_models: Path,
    files: tuple[Path, Path],
    trust: ssl.SSLContext,
    dial: Callable[..., Any],
    infer_request: Callable[..., bytes],
) -> None:
    with Server(options(echo_models, *files)) as server:
        client = dial(server.http_port, trust)
        for count in (1, 5000, 1_000_000, 100_000, 16, 2_500_000):
            values = np.random.default_rng(count).random(count, np.float32)
            client.send(infer_request("echo", values))
            answer = client.answer()

            assert answer.status == 200
            head = int(answer.headers["inference-header-content-length"])
            np.testing.assert_array_equal(np.frombuffer(answer.body[head:], np.float32), values)
        client.close()


def test_a_slow_reader_and_pipelined_requests_keep_their_order(
    echo_models: Path,
    files: tuple[Path, Path],
    trust: ssl.SSLContext,
    dial: Callable[..., Any],
    infer_request: Callable[..., bytes],
) -> None:
    with Server(options(echo_models, *files)) as server:
        client = dial(server.http_port, trust)
        counts = [2_000_000, 3, 50_000, 1]
        client.send(*(infer_request("echo", np.full(count, count, np.float32)) for count in counts[:1]))
        client.send(*(infer_request("echo", np.full(count, count, np.float32)) for count in counts[1:]))
        for count in counts:
            answer = client.answer()
            head = int(answer.headers["inference-header-content-length"])
            values = np.frombuffer(answer.body[head:], np.float32)

            assert values.shape == (count,)
            assert (values == count).all()
        client.close()


def test_a_request_whose_connection_was_not_accepted_when_the_port_closes_is_answered(
    echo_models: Path, files: tuple[Path, Path], trust: ssl.SSLContext
) -> None:
    heard: list[bytes] = []
    with Server(options(echo_models, *files)) as server:

        def ask(connected: socket.socket) -> None:
            """Send the end of the handshake and the request at once, so that no time lies between them."""
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
            with connected:
                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        connected.sendall(outgoing.read())
                        incoming.write(connected.recv(1 << 16))
                tls.write(GET)
                connected.sendall(outgoing.read())
                while not heard:
                    if not (data := connected.recv(1 << 16)):
                        break
                    incoming.write(data)
                    with contextlib.suppress(ssl.SSLWantReadError):
                        heard.append(tls.read())

        async def stop_over_a_connection() -> threading.Thread:
            connected = socket.create_connection(("127.0.0.1", server.http_port), 20)
            thread = threading.Thread(target=ask, args=(connected,))
            thread.start()
            await http_of(server).stop_accepting()  # until here the loop has accepted nothing
            return thread

        asyncio.run_coroutine_threadsafe(stop_over_a_connection(), server.loop).result(20).join()

    assert [answer[:15] for answer in heard] == [b"HTTP/1.1 200 OK"]


def test_triton_clients_speak_it(
    echo_models: Path, files: tuple[Path, Path], authority: trustme.CA, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    with Server(options(echo_models, *files)) as server:
        client = tritonclient.http.InferenceServerClient(
            f"localhost:{server.http_port}", ssl=True, ssl_options={"ca_certs": str(ca_file)}
        )
        tensor = tritonclient.http.InferInput("INPUT0", [4], "FP32")
        tensor.set_data_from_numpy(np.arange(4, dtype=np.float32))
        result = client.infer("echo", [tensor])
        client.close()

    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), np.arange(4, dtype=np.float32))


def test_older_versions_of_tls_and_plain_http_are_turned_away(
    echo_models: Path, files: tuple[Path, Path], trust: ssl.SSLContext, dial: Callable[..., Any]
) -> None:
    with Server(options(echo_models, *files)) as server:
        plain = dial(server.http_port)
        plain.send(GET)
        assert not plain.stream.read().startswith(b"HTTP")

        trust.minimum_version = ssl.TLSVersion.TLSv1_2
        client = dial(server.http_port, trust)
        assert client.socket.version() in ("TLSv1.2", "TLSv1.3")
        client.close()

        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname = False
        old.verify_mode = ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection(("127.0.0.1", server.http_port), 30) as bare,
            pytest.raises(ssl.SSLError),
        ):
            old.wrap_socket(bare)


def test_a_stopping_server_sends_a_slow_reader_everything_and_waits_for_no_idle_one(
    echo_models: Path,
    files: tuple[Path, Path],
    trust: ssl.SSLContext,
    dial: Callable[..., Any],
    infer_request: Callable[..., bytes],
) -> None:
    values = np.random.default_rng(1).random(4_000_000, np.float32)
    with Server(options(echo_models, *files)) as server:
        idle, slow = dial(server.http_port, trust), dial(server.http_port, trust)
        idle.send(GET)
        assert idle.answer().status == 200
        slow.send(infer_request("echo", values, "Connection: close"))
        status = slow.stream.readline()  # the rest is on its way
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert idle.stream.read() == b""  # before the slow one has read a byte
        rest = slow.stream.read()
        stopping.join()

    assert status == b"HTTP/1.1 200 OK\r\n"
    assert rest.endswith(values.tobytes())


def test_a_refused_upload_reads_why(
    echo_models: Path, files: tuple[Path, Path], trust: ssl.SSLContext, dial: Callable[..., Any]
) -> None:
    with Server(options(echo_models, *files)) as server:
        client = dial(server.http_port, trust)
        client.send(
            b"POST /v2/models/echo/infer HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", bytes(5_000_000)
        )
        answer = client.answer()
        client.close()

    assert answer.status == 400
    assert "--http-max-input-size" in answer.error


@pytest.mark.parametrize(
    ("break_files", "expected"),
    [
        (lambda certificate, key: certificate.unlink(), "--https-certificate: cannot read"),
        (lambda certificate, key: key.unlink(), "--https-key: cannot read"),
        (lambda certificate, key: certificate.write_text("hello"), "--https-certificate: '.*' holds no PEM"),
        (lambda certificate, key: key.write_text("hello"), "--https-key: '.*' holds no PEM"),
        (
            lambda certificate, key: trustme.CA().issue_cert("x").private_key_pem.write_to_path(key),
            "--https-key: '.*' is not the key of the certificate in",
        ),
    ],
    ids=["no certificate", "no key", "a bad certificate", "a bad key", "a strange key"],
)
def test_files_that_do_not_do_are_named_with_their_flag(
    echo_models: Path, files: tuple[Path, Path], break_files: Callable[[Path, Path], None], expected: str
) -> None:
    break_files(*files)

    with pytest.raises(InvalidArg, match=expected), Server(options(echo_models, *files)):
        pass


def test_clients_without_a_certificate_get_nothing_where_one_is_asked_for(
    echo_models: Path, files: tuple[Path, Path], authority: trustme.CA, trust: ssl.SSLContext, tmp_path: Path
) -> None:
    clients = trustme.CA()
    clients.cert_pem.write_to_path(tmp_path / "clients.pem")
    known = ssl.create_default_context()
    authority.configure_trust(known)
    clients.issue_cert("router").configure_cert(known)
    strange = ssl.create_default_context()
    authority.configure_trust(strange)
    trustme.CA().issue_cert("router").configure_cert(strange)
    asked = replace(options(echo_models, *files), https_client_ca=str(tmp_path / "clients.pem"))

    def ask(context: ssl.SSLContext) -> bytes:
        with socket.create_connection(("127.0.0.1", server.http_port), 20) as connected:
            try:
                with context.wrap_socket(connected, server_hostname="localhost") as client:
                    client.sendall(GET)
                    return client.recv(15)
            except OSError:  # of TLS, or the end of the connection
                return b""

    with Server(asked) as server:
        assert [ask(context) for context in (known, trust, strange)] == [b"HTTP/1.1 200 OK", b"", b""]
    with (
        pytest.raises(InvalidArg, match=r"--https-client-ca: '.*' holds no PEM"),
        Server(replace(asked, https_client_ca=str(files[1]))),
    ):
        pass


def test_one_file_alone_is_refused(echo_models: Path, files: tuple[Path, Path]) -> None:
    with (
        pytest.raises(InvalidArg, match="--https-key is missing"),
        Server(options(echo_models, files[0], "")),
    ):
        pass
    with (
        pytest.raises(InvalidArg, match="--https-certificate is missing"),
        Server(options(echo_models, "", files[1])),
    ):
        pass
