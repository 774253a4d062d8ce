"""A server that answers what a test says, and keeps what it was asked."""

from __future__ import annotations

import contextlib
import ssl
import threading
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    """What was asked."""

    path: str
    headers: Message


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # a server asks for many models at once; whom the queue has no room for waits


class Recorder:
    """A server on a port of its own.

    Args:
        context: to speak TLS.

    Attributes:
        port: on 127.0.0.1.
        url: where.
        answers: status and body by path, without the query; all else is 404.
        asked: all requests so far.
        may_answer: answers wait for it; set at the beginning.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[Request] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                recorder.asked.append(Request(self.path, self.headers))
                recorder.may_answer.wait()
                status, body = recorder.answers.get(self.path.partition("?")[0], (404, b""))
                with contextlib.suppress(ConnectionError):  # whoever asked has given up
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            do_GET = do_POST = _answer

            def log_message(self, *args: object) -> None: ...

        self._server = _Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self.may_answer.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def listing(*keys: str) -> bytes:
    """What S3 and Google answer to a question for objects: each of three bytes."""
    objects = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f'<ETag>"tag"</ETag><Size>3</Size></Contents>'
        for key in keys
    )
    return f"<ListBucketResult>{objects}</ListBucketResult>".encode()


def azure_listing(*keys: str) -> bytes:
    """What Azure answers to the same question."""
    blobs = "".join(
        f"<Blob><Name>{key}</Name><Properties><Last-Modified>Thu, 01 Jan 2026 00:00:00 GMT</Last-Modified>"
        f"<Content-Length>3</Content-Length><Content-Type>x/y</Content-Type><Etag>tag</Etag></Properties></Blob>"
        for key in keys
    )
    return f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>".encode()
