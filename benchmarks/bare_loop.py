"""What any server on one Python loop could reach: an identity over HTTP that does next to nothing.

    python benchmarks/bench.py --parts compiled --protocols http --sizes 64 --name bare-loop \
        --ours-command '{python} benchmarks/bare_loop.py {repository} {http}'

It stands in the place of ours in that comparison. Per request it parses the head as ours does (httptools on
uvloop), looks for the model in a table, and writes back the bytes behind the JSON under an answer that was
made before. It reads no JSON, checks nothing, queues nothing, counts one number and calls no backend. `--hop`
sends each request to a thread and back first, as a model on a thread makes necessary. What ours is slower
than this is the price of being a server; what this is slower than the real one, that of one loop in Python.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httptools
import uvloop

_HEADER_LENGTH = b"inference-header-content-length"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
Executor = Callable[["Connection", bytes], None]
"""Takes a connection and the bytes of its tensor, and has them written back."""


class Served:
    """The models there are, what is said of them, and how often each has answered.

    Args:
        names: of the models; each takes INPUT0 and gives OUTPUT0, of FP32.
    """

    def __init__(self, names: list[str]) -> None:
        self.counts = dict.fromkeys(names, 0)
        self.models = {f"/v2/models/{name}/infer".encode(): name for name in names}

    def describe(self, path: str) -> bytes:
        """The document at a path, as perf_analyzer and the benchmark ask for it."""
        name = next((name for name in self.counts if path.startswith(f"/v2/models/{name}/")), "")
        name = next((each for each in self.counts if path == f"/v2/models/{each}"), name)
        what = path.rpartition("/")[2]
        tensor = {"datatype": "FP32", "data_type": "TYPE_FP32", "shape": [-1], "dims": [-1]}
        takes, gives = [tensor | {"name": "INPUT0"}], [tensor | {"name": "OUTPUT0"}]
        document: dict[str, Any] = {  # Any: JSON
            "name": "bare",
            "version": "0",
            "extensions": ["binary_tensor_data", "statistics"],
        }
        if what == "config":
            document = {"name": name, "max_batch_size": 0, "input": takes, "output": gives}
        elif what == "stats":
            count = self.counts.get(name, 0)
            phases = ("success", "queue", "compute_input", "compute_infer", "compute_output")
            stats = {phase: {"count": count, "ns": 0} for phase in phases}
            model = {"name": name, "version": "1", "inference_stats": stats}
            document = {"model_stats": [model | {"inference_count": count, "execution_count": count}]}
        elif name and what == name:
            document = {
                "name": name,
                "versions": ["1"],
                "platform": "bare",
                "inputs": takes,
                "outputs": gives,
            }
        return json.dumps(document).encode()


class Connection(asyncio.Protocol):
    """A client's connection, one request at a time.

    Args:
        served: the models.
        execute: answers the requests.
    """

    def __init__(self, served: Served, execute: Executor) -> None:
        self._served = served
        self._execute = execute
        self._parser = httptools.HttpRequestParser(self)
        self._url = self._body = b""
        self._header_length = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """The target of a request."""
        self._url = url
        self._body = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        if name.lower() == _HEADER_LENGTH:
            self._header_length = int(value)

    def on_body(self, body: bytes) -> None:
        """Part of a body."""
        self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """A request is complete."""
        name = self._served.models.get(self._url)
        if name is None:
            document = self._served.describe(self._url.decode())
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self._transport.write(head % len(document) + document)
            return
        self._served.counts[name] += 1
        self._execute(self, self._body[self._header_length :])

    def answer(self, tensor: bytes) -> None:
        """Write a tensor back."""
        self._transport.write(_answer_head(len(tensor)) + tensor)


_heads: dict[int, bytes] = {}


def _answer_head(byte_size: int) -> bytes:
    head = _heads.get(byte_size)
    if head is None:
        output: dict[str, Any] = {"name": "OUTPUT0", "datatype": "FP32", "shape": [byte_size // 4]}
        output["parameters"] = {"binary_data_size": byte_size}
        text = json.dumps({"model_name": "bare", "model_version": "1", "outputs": [output]}).encode()
        lengths = b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
        head = _heads[byte_size] = _HEAD + lengths % (len(text), len(text) + byte_size) + text
    return head


def _on_a_thread(loop: asyncio.AbstractEventLoop) -> Executor:
    """Answers from a thread, by way of the loop."""
    waiting: queue.SimpleQueue[tuple[Connection, bytes]] = queue.SimpleQueue()

    def run() -> None:
        while True:
            connection, tensor = waiting.get()
            loop.call_soon_threadsafe(connection.answer, tensor)

    threading.Thread(target=run, daemon=True).start()
    return lambda connection, tensor: waiting.put((connection, tensor))


async def _serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    served = Served(options.models)
    execute = _on_a_thread(loop) if options.hop else Connection.answer
    server = await loop.create_server(lambda: Connection(served, execute), "127.0.0.1", options.port)
    await server.serve_forever()


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repository", help="its folders are the models")
    parser.add_argument("port", type=int)
    parser.add_argument("--hop", action="store_true", help="answer from a thread")
    options = parser.parse_args()
    options.models = [folder.name for folder in Path(options.repository).iterdir()]
    uvloop.run(_serve(options))


if __name__ == "__main__":
    main()
