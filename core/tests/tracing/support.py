"""Traces made by hand, and a destination that keeps them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count

import numpy as np
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor
from tritonpy.tracing.files import TraceStream
from tritonpy.tracing.settings import TraceLevel
from tritonpy.tracing.trace import FinishedTrace, Trace, TraceContext, new_trace

ALL = TraceLevel.TIMESTAMPS | TraceLevel.TENSORS


class Kept:
    """A taker and a destination that keeps what it is given."""

    def __init__(self) -> None:
        self.traces: list[FinishedTrace] = []
        self.ended: list[object] = []
        self.is_closed = threading.Event()

    def put(self, trace: FinishedTrace) -> None:
        self.traces.append(trace)

    def take(self, traces: Sequence[FinishedTrace]) -> None:
        self.traces += traces

    def end_stream(self, stream: object) -> None:
        self.ended.append(stream)

    def close(self) -> None:
        self.is_closed.set()


def begin(
    kept: Kept,
    level: TraceLevel = ALL,
    stream: TraceStream | None = None,
    context: TraceContext | None = None,
    *,
    answers_once: bool = False,
) -> Trace:
    ids = count(1)
    stream = stream or TraceStream("trace.json")
    return new_trace(stream, level, context, ids.__next__, kept.put, answers_once=answers_once)


def request(id: str = "", model: str = "m", **arrays: np.ndarray) -> InferRequest:
    inputs = {name: Tensor.from_numpy(name, array) for name, array in arrays.items()}
    return InferRequest(model, inputs, model_version="1", id=id)


def answer(trace: Trace, asked: InferRequest, *outputs: tuple[str, np.ndarray]) -> None:
    """Let a trace see the whole life of a request."""
    trace.started(asked.model_name, asked.model_version, asked.id)
    trace.queued(asked.model_version, asked.inputs.values())
    trace.computed((10, 20, 30, 40))
    response = InferResponse()
    for name, array in outputs:
        response.add(name, array)
    trace.responded(response, True)


def finished(stream: TraceStream, id: str = "", model: str = "m") -> FinishedTrace:
    """A complete trace of one request."""
    kept = Kept()
    answer(begin(kept, stream=stream), request(id, model))
    return kept.traces[0]
