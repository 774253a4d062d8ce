"""What is left of a framework's speed behind a server: full batches over HTTP, beside a bare loop.

Three ways of computing the same batches take turns:

* `bare`: a loop that calls the framework with the same batch again and again;
* `sockets`: the same calls behind sockets, without a server: threads read so many bytes as a request has,
  call one after the other, and write a canned answer. A server can hardly be quicker than that; what it is
  slower than `bare` is the price of the bytes' way and of their sender, who runs on the same cores;
* `served`: the server.

The client of the last two is a process of its own with some connections, each with one request at a time. It
writes prepared bytes and reads answers. Rounds are short and many: the median of their ratios is told, with
quartiles, and the best rate of each way, which other load on the machine changes least.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import process_tree
from bench_servers import RunningServer

CONNECTIONS = 3
_TIMEOUT_S = 120.0
_ANSWER_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Batches:
    """The requests of a model.

    Attributes:
        model: its name.
        input_name: the only input, of FP32.
        batch: what is sent.
    """

    model: str
    input_name: str
    batch: np.ndarray

    def request(self) -> bytes:
        """The bytes of a request, with its head."""
        tensor = {
            "name": self.input_name,
            "datatype": "FP32",
            "shape": self.batch.shape,
            "parameters": {"binary_data_size": self.batch.nbytes},
        }
        header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        head = (
            f"POST /v2/models/{self.model}/infer HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(header) + self.batch.nbytes}\r\n"
            f"Inference-Header-Content-Length: {len(header)}\r\n\r\n"
        )
        return head.encode() + header + self.batch.tobytes()


@dataclass(frozen=True, slots=True)
class Rate:
    """A round: batches per second, their count, and CPU time of who computes and of the client."""

    per_s: float
    count: int
    cpu_us: float
    client_cpu_us: float = 0.0


class Client:
    """A process that sends one request over some connections; see `main`."""

    def __init__(self, port: int, request: bytes) -> None:
        command = [sys.executable, __file__, str(port), str(CONNECTIONS), str(len(request))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        self._process.stdin.write(request)
        self._process.stdin.flush()

    def run(self, seconds: float) -> tuple[int, float, float]:
        """Send for so long; returns the count of answers, the seconds, and the client's CPU seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        self._process.stdin.flush()
        line = self._process.stdout.readline().split()
        if not line:
            raise SystemExit("the client has ended; see above")
        return int(line[0]), float(line[1]), float(line[2])

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def socket_loop(call: Callable[[np.ndarray], object], batches: Batches) -> Iterator[int]:
    """Calls behind sockets; gives the port."""
    byte_size = len(batches.request())
    begin = byte_size - batches.batch.nbytes
    turn = threading.Lock()
    body = bytes(_ANSWER_BYTES)
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    def serve(connection: socket.socket) -> None:
        room = np.zeros(byte_size + 64, np.uint8)
        first = -(room.ctypes.data + begin) % 64  # where frameworks take a tensor as it is
        view = memoryview(room)[first : first + byte_size]
        array = np.frombuffer(view[begin:], np.float32).reshape(batches.batch.shape)
        with connection:
            while True:
                got = 0
                while got < byte_size:
                    count = connection.recv_into(view[got:])
                    if not count:
                        return
                    got += count
                with turn:
                    call(array)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            for _ in range(CONNECTIONS):
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


def compare(
    call: Callable[[np.ndarray], object],
    server: RunningServer,
    batches: Batches,
    rounds: int,
    seconds: float,
) -> dict[str, object]:
    """Rates of all three ways, and what is left of the bare one."""
    batch = batches.batch
    with socket_loop(call, batches) as port:
        behind_sockets = Client(port, batches.request())
        behind_server = Client(server.ports["http"], batches.request())

        def bare() -> Rate:
            count, begin, cpu = 0, time.perf_counter(), time.process_time()
            while time.perf_counter() - begin < seconds:
                call(batch)
                count += 1
            wall_s = time.perf_counter() - begin
            return Rate(count / wall_s, count, (time.process_time() - cpu) * 1e6)

        def asked(client: Client, cpu_us: Callable[[], float]) -> Rate:
            begin_us = cpu_us()
            count, wall_s, client_cpu_s = client.run(seconds)
            return Rate(count / wall_s, count, cpu_us() - begin_us, client_cpu_s * 1e6)

        ways: dict[str, Callable[[], Rate]] = {
            "bare": bare,
            "sockets": lambda: asked(behind_sockets, lambda: time.process_time() * 1e6),
            "served": lambda: asked(behind_server, lambda: process_tree.cpu_time_us(server.root_pid)),
        }
        for way in ways.values():  # the first calls are slow
            way()
        found: dict[str, list[Rate]] = {name: [] for name in ways}
        for index in range(rounds):
            order = list(ways) if index % 2 else list(ways)[::-1]  # none always follows the same other
            for name in order:
                found[name].append(ways[name]())
        behind_sockets.close()
        behind_server.close()
    return {
        "batch": list(batch.shape),
        "connections": CONNECTIONS,
        "rounds": rounds,
        "rows_per_s": {name: _rows(statistics.median, rates, batch) for name, rates in found.items()},
        "best_rows_per_s": {name: _rows(max, rates, batch) for name, rates in found.items()},
        "cpu_us_per_row": {name: round(_cpu_us(rates) / len(batch), 1) for name, rates in found.items()},
        "client_cpu_us_per_row": {
            name: round(
                sum(rate.client_cpu_us for rate in found[name])
                / sum(rate.count for rate in found[name])
                / len(batch),
                1,
            )
            for name in ("sockets", "served")
        },
        "share_of_bare": _ratio(found["served"], found["bare"]),
        "share_of_sockets": _ratio(found["served"], found["sockets"]),
        "sockets_of_bare": _ratio(found["sockets"], found["bare"]),
    }


def _rows(pick: Callable[[Iterator[float]], float], rates: list[Rate], batch: np.ndarray) -> float:
    return round(pick(rate.per_s for rate in rates) * len(batch), 1)


def _ratio(rates: list[Rate], others: list[Rate]) -> dict[str, float]:
    """Of the rates of each round the median and the quartiles, of the best rates, and of CPU times."""
    ratios = [rate.per_s / other.per_s for rate, other in zip(rates, others, strict=True)]
    lower, middle, upper = statistics.quantiles(ratios)
    best = max(rate.per_s for rate in rates) / max(other.per_s for other in others)
    return {
        "median": round(middle, 3),
        "lower": round(lower, 3),
        "upper": round(upper, 3),
        "best": round(best, 3),
        "cpu": round(_cpu_us(others) / _cpu_us(rates), 3),
    }


def _cpu_us(rates: list[Rate]) -> float:
    """CPU time of a batch over all rounds: the system counts that of others in steps of 10 ms."""
    return sum(rate.cpu_us for rate in rates) / sum(rate.count for rate in rates)


def main() -> None:
    """The client: a request on standard input, then a line with seconds again and again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("connections", type=int)
    parser.add_argument("byte_size", type=int)
    options = parser.parse_args()
    request = sys.stdin.buffer.read(options.byte_size)
    connections = [
        socket.create_connection(("127.0.0.1", options.port), timeout=_TIMEOUT_S)
        for _ in range(options.connections)
    ]
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for line in sys.stdin.buffer:
        counts = [0] * len(connections)
        begin, cpu = time.perf_counter(), time.process_time()
        threads = [
            threading.Thread(target=_ask, args=(connection, request, begin + float(line), counts, index))
            for index, connection in enumerate(connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sum(counts), time.perf_counter() - begin, time.process_time() - cpu, flush=True)


def _ask(connection: socket.socket, request: bytes, end: float, counts: list[int], index: int) -> None:
    while time.perf_counter() < end:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            part = connection.recv(65536)
            if not part:
                raise SystemExit("the connection was closed")
            answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        if b" 200 " not in head[:16]:
            raise SystemExit(answer[:500].decode(errors="replace"))
        lengths = (line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        missing = int(next(lengths)) - len(body)
        while missing > 0:
            missing -= len(connection.recv(65536))
        counts[index] += 1


if __name__ == "__main__":
    main()
