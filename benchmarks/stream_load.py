"""Drive a decoupled model over the gRPC stream and count its responses.

perf_analyzer counts requests; here one request has many responses, so we count ourselves. Each stream asks
for a number of responses, reads them all and asks again. Responses are not parsed: their first byte tells a
result from an error, and a generator that parses would be slower than the servers it measures.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

import grpc
import numpy as np
import process_tree
from bench_servers import NotStarted, RunningServer
from load_generator import LoadFailed
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
WARM_UP_S = 0.3
ERROR_TAG = 0x0A  # the first byte of a message whose first field, the error's text, is set
FIELDS = ("responses_per_s", "first_p50_us", "first_p99_us", "server_cpu_us")


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """What is asked of a decoupled model: so many streams, one request at a time in each."""

    model_name: str
    streams: int
    responses_per_request: int = 100

    @property
    def title(self) -> str:
        """How tables call it."""
        return f"{self.model_name} grpc stream c={self.streams}"


@dataclass(frozen=True, slots=True)
class StreamMeasurement:
    """What the streams saw, and what it cost the server."""

    responses_per_s: float
    first_p50_us: float  # from the request to its first response
    first_p99_us: float
    response_count: int
    server_cpu_us: float  # per response
    generator_cpu_us: float  # per response, in this process, which is written in Python too


def measure_stream(server: RunningServer, load: StreamLoad, seconds: float) -> StreamMeasurement:
    """Keep all streams busy for `seconds` and return what they received.

    Raises:
        LoadFailed: a response is an error, or a stream ended.
    """
    streams = [_Stream(server.url("grpc"), load) for _ in range(load.streams)]
    try:
        for stream in streams:
            stream.start()
        time.sleep(WARM_UP_S)
        cpu_before_us = process_tree.cpu_time_us(server.root_pid)
        own_before_s = time.process_time()
        counts_before = [stream.response_count for stream in streams]
        started = time.monotonic()
        time.sleep(seconds)
        count = sum(stream.response_count for stream in streams) - sum(counts_before)
        wall_s = time.monotonic() - started
        own_us = (time.process_time() - own_before_s) * 1e6
        cpu_us = process_tree.cpu_time_us(server.root_pid) - cpu_before_us
    finally:
        for stream in streams:
            stream.stop()
    failures = [stream.failure for stream in streams if stream.failure is not None]
    if failures:
        raise LoadFailed(failures[0])
    first_us = sorted(taken for stream in streams for taken in stream.first_us_since(started))
    if not count or not first_us:
        raise LoadFailed(f"no response of {load.model_name} arrived in {seconds:g} s")
    return StreamMeasurement(
        responses_per_s=round(count / wall_s, 1),
        first_p50_us=round(statistics.median(first_us), 1),
        first_p99_us=round(first_us[int(len(first_us) * 0.99)], 1),
        response_count=count,
        server_cpu_us=round(cpu_us / count, 1),
        generator_cpu_us=round(own_us / count, 1),
    )


def check_stream(server: RunningServer, model_name: str, count: int = 100) -> None:
    """Refuse a server whose decoupled model does not answer one request with 0, 1, 2, … in this order.

    Raises:
        NotStarted: it answers something else, an error, or not within ten seconds.
    """
    with grpc.insecure_channel(server.url("grpc")) as channel:
        infer: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(METHOD)
        found: list[object] = []
        try:
            for message in infer(iter([_request(model_name, count)]), timeout=10):
                response = service_pb2.ModelStreamInferResponse.FromString(message)
                found.append(
                    response.error_message
                    or np.frombuffer(response.infer_response.raw_output_contents[0], np.int32).item()
                )
        except grpc.RpcError as error:
            found.append(f"{error.code()}: {error.details()}")
    if found != list(range(count)):
        raise NotStarted(f"{server.name} answered {model_name} with {found}; expected 0 to {count - 1}")


@dataclass(eq=False)
class _Stream:
    """One stream in a thread and a connection of its own.

    The counts are the thread's; others only read them.
    """

    url: str
    load: StreamLoad
    response_count: int = 0
    failure: str | None = None
    _first: list[tuple[float, float]] = field(default_factory=list)  # when a request left, µs to its answer
    _ending: bool = False

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let the request under way finish and close the stream."""
        self._ending = True
        self._thread.join(10)
        if self._thread.is_alive():
            self.failure = f"the request under way had only {self.response_count} responses after 10 s"

    def first_us_since(self, moment: float) -> Iterator[float]:
        """Yield how long the first response took, for each request sent after `moment`."""
        return (taken_us for sent, taken_us in self._first if sent >= moment)

    def _run(self) -> None:
        request = _request(self.load.model_name, self.load.responses_per_request)
        turns: SimpleQueue[bytes | None] = SimpleQueue()
        options = [
            ("grpc.use_local_subchannel_pool", 1)
        ]  # else all streams of this process share a connection
        try:
            with grpc.insecure_channel(self.url, options) as channel:
                infer: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(METHOD)
                responses = infer(iter(turns.get, None))
                while not self._ending:
                    sent = time.monotonic()
                    turns.put(request)
                    for number in range(self.load.responses_per_request):
                        message = next(responses)
                        if message[0] == ERROR_TAG:
                            text = service_pb2.ModelStreamInferResponse.FromString(message).error_message
                            raise LoadFailed(f"{self.load.model_name} answered: {text}")
                        if not number:
                            self._first.append((sent, (time.monotonic() - sent) * 1e6))
                        self.response_count += 1
                turns.put(None)
                if next(responses, None) is not None:
                    raise LoadFailed(f"{self.load.model_name} sent more responses than asked for")
        except (grpc.RpcError, LoadFailed, StopIteration) as error:
            self.failure = f"{type(error).__name__}: {error}"


def _request(model_name: str, count: int) -> bytes:
    """Return the request for `count` responses as it goes over the wire."""
    request = service_pb2.ModelInferRequest(model_name=model_name)
    request.inputs.add(name="COUNT", datatype="INT32", shape=[1])
    request.raw_input_contents.append(np.array([count], np.int32).tobytes())
    message: bytes = request.SerializeToString()
    return message
