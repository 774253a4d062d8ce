"""The part "grpc": what one transport of gRPC does better or worse than another.

Single calls with small and large tensors, calls over the stream, a decoupled model with many small responses,
sequences that share one stream, and tensors in shared memory. HTTP stands beside it where it can do the same.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import process_tree
import tritonclient.grpc
from bench_servers import NotStarted, RunningServer
from load_generator import Load, LoadFailed
from stream_load import StreamLoad

MODELS = ("identity_py", "repeat_py", "sums_py")
SMALL, LARGE, SHARED = 64, 1 << 20, 600_000  # bytes
RESPONSES = 100  # to each request of `repeat_py`
COUNT = (("COUNT", RESPONSES),)
STREAMS = [StreamLoad("repeat_py", streams=count, responses_per_request=RESPONSES) for count in (1, 8)]
WARM_UP_S = 0.3
LIMIT_S = 10.0


def unary_loads(protocols: Sequence[str]) -> list[Load]:
    """Return what perf_analyzer asks."""

    def identity(protocol: str, clients: int, byte_size: int, **more: bool) -> Load:
        return Load("identity_py", protocol, clients, "INPUT0", str(byte_size // 4), byte_size, **more)

    loads = []
    for protocol in protocols:
        loads += [identity(protocol, clients, SMALL) for clients in (1, 8, 32)]
        loads += [identity(protocol, clients, LARGE) for clients in (1, 4)]
        loads += [identity(protocol, clients, SHARED, is_shared_memory=True) for clients in (1, 4)]
    if "grpc" in protocols:
        loads += [identity("grpc", clients, SMALL, is_streaming=True) for clients in (1, 8)]
        loads += [
            Load(  # one request is as many responses
                "repeat_py",
                "grpc",
                clients,
                byte_size=4,
                is_streaming=True,
                input_values=(("COUNT", RESPONSES),),
            )
            for clients in (1, 8)
        ]
    return loads


@dataclass(frozen=True, slots=True)
class SequenceLoad:
    """What is asked of a model with sequences: so many at the same time, over one stream.

    Attributes:
        sequences: at the same time; each sends its next request when the one before is answered.
        length: requests of each.
    """

    sequences: int
    length: int = 20
    model_name: str = "sums_py"

    @property
    def title(self) -> str:
        """How tables call it."""
        return f"{self.model_name} one stream c={self.sequences}"


SEQUENCES = [SequenceLoad(sequences=count) for count in (1, 8)]


@dataclass(frozen=True, slots=True)
class SequenceMeasurement:
    """What the client saw, and what it cost the server."""

    infer_per_s: float
    p50_us: float
    p99_us: float
    request_count: int
    server_cpu_us: float  # per request
    generator_cpu_us: float  # per request, in this process, which is written in Python too


def measure_sequences(server: RunningServer, load: SequenceLoad, seconds: float) -> SequenceMeasurement:
    """Send sequences for `seconds` and return how their requests were answered.

    Raises:
        LoadFailed: a response is an error, a wrong sum, or does not come.
    """
    asker = _Asker(server, load)
    try:
        asker.begin()
        time.sleep(WARM_UP_S)
        cpu_before_us = process_tree.cpu_time_us(server.root_pid)
        own_before_s, count_before, started = time.process_time(), len(asker.taken_us), time.monotonic()
        time.sleep(seconds)
        count, wall_s = len(asker.taken_us) - count_before, time.monotonic() - started
        own_us = (time.process_time() - own_before_s) * 1e6
        cpu_us = process_tree.cpu_time_us(server.root_pid) - cpu_before_us
    finally:
        asker.end()
    if asker.failure or not count:
        raise LoadFailed(asker.failure or f"no request of {load.model_name} was answered in {seconds:g} s")
    taken_us = sorted(asker.taken_us[count_before : count_before + count])
    return SequenceMeasurement(
        infer_per_s=round(count / wall_s, 1),
        p50_us=round(statistics.median(taken_us), 1),
        p99_us=round(taken_us[int(len(taken_us) * 0.99)], 1),
        request_count=count,
        server_cpu_us=round(cpu_us / count, 1),
        generator_cpu_us=round(own_us / count, 1),
    )


def check_sequence(server: RunningServer) -> None:
    """Refuse a server that does not answer a sequence with its sums.

    Raises:
        NotStarted: it answers something else, or not in time.
    """
    asker = _Asker(server, SequenceLoad(sequences=2))
    try:
        asker.begin()
        deadline = time.monotonic() + LIMIT_S
        while len(asker.taken_us) < 2 * asker.load.length and not asker.failure:
            if time.monotonic() > deadline:
                raise NotStarted(f"{server.name} answered {len(asker.taken_us)} requests of a sequence")
            time.sleep(0.01)
    finally:
        asker.end()
    if asker.failure:
        raise NotStarted(f"{server.name} {asker.failure}")


class _Asker:
    """One stream of tritonclient with several sequences, whose next request leaves where an answer came.

    Attributes:
        taken_us: of each answered request; the thread of the stream adds to it, others only read.
        failure: what went wrong first.
    """

    def __init__(self, server: RunningServer, load: SequenceLoad) -> None:
        self.load = load
        self.taken_us: list[float] = []
        self.failure = ""
        self._client = tritonclient.grpc.InferenceServerClient(server.url("grpc"))
        self._client.start_stream(self._on_answer)
        self._input = tritonclient.grpc.InferInput("X", [1, 1], "INT32")
        self._input.set_data_from_numpy(np.ones((1, 1), np.int32))
        self._sent: dict[str, float] = {}
        self._next_id = int(time.time() * 1e6)  # a sequence of an earlier round may still be known
        self._open = load.sequences
        self._is_ending = False
        self._has_ended = threading.Event()

    def begin(self) -> None:
        for _ in range(self.load.sequences):
            self._next_id += 1
            self._send(self._next_id, 1)

    def end(self) -> None:
        """Let the sequences come to their ends, and close the stream."""
        self._is_ending = True
        if not self._has_ended.wait(LIMIT_S) and not self.failure:
            self.failure = f"{self._open} sequences were not answered within {LIMIT_S:g} s"
        self._client.stop_stream(cancel_requests=True)
        self._client.close()

    def _send(self, sequence: int, number: int) -> None:
        name = f"{sequence}:{number}"
        self._sent[name] = time.monotonic()
        self._client.async_stream_infer(
            self.load.model_name,
            [self._input],
            request_id=name,
            sequence_id=sequence,
            sequence_start=number == 1,
            sequence_end=number == self.load.length,
        )

    def _on_answer(self, result: Any, error: Any) -> None:  # Any: tritonclient has no types
        if error is not None:
            if not self._has_ended.is_set():  # a stream that is closed says that too
                self.failure = self.failure or f"answered: {error}"
                self._has_ended.set()
            return
        name = result.get_response().id
        sequence, number = map(int, name.split(":"))
        self.taken_us.append((time.monotonic() - self._sent.pop(name)) * 1e6)
        if result.as_numpy("SUM").item() != number:
            self.failure = f"answered {result.as_numpy('SUM')} to request {number} of a sequence of ones"
        if number < self.load.length:
            self._send(sequence, number + 1)
        elif not self._is_ending:
            self._next_id += 1
            self._send(self._next_id, 1)
        else:
            self._open -= 1
            if not self._open:
                self._has_ended.set()
