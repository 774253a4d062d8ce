"""The executor of an instance in a worker: from the server's socket and back to it in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tritonpy.plugin import InferRequest, InferResponse, Model, ModelInstance

from tritonpy_abi.backends.answers import Answers
from tritonpy_abi.shim import CData, Shim

_left_behind: list[CData] = []
"""Memory of requests that nobody answers any more: threads of the backend may still read it."""


class LibraryFrames:
    """Satisfies `FrameExecutor`; made when the channel is there.

    Batches whose requests are answered in a usual way are executed and answered without the interpreter. What
    became of any other batch is told by `settle`: it has been executed, but not answered. Where requests stay
    open behind their execution, all that follow are executed by the hook.

    Args:
        shim: the library.
        handle: the `TRITONBACKEND_ModelInstance *`, initialised.
        model: of the instance.
        open_answers: makes the answers to requests whose events are in a `TRITONPY_Events *`.
        news: a `bool *` each, of which one is true while something has to be told before an answer.
        note_memory: called when the library has reported its use of memory.
    """

    frame_version = 1  # of frames as `frames.cc` reads and writes them; see `FrameExecutor`

    def __init__(
        self,
        shim: Shim,
        handle: CData,
        model: Model,
        open_answers: Callable[[CData], Answers],
        news: Sequence[CData],
        note_memory: Callable[[], None],
    ) -> None:
        self._shim = shim
        self._lib = shim.lib
        self._handle = handle
        self._outputs = sorted({output["name"] for output in model.config.get("output", ())})
        self._open_answers = open_answers
        self._news = news
        self._note_memory = note_memory
        self._next: CData = shim.ffi.new("TRITONPY_NextFrame *")
        self._reply: CData = shim.ffi.new("TRITONPY_NextFrame *")
        self._cancel_flags: memoryview | None = None
        self._executed: CData = None  # the memory of a batch that was executed, and is to be settled
        self._executor: CData = None
        self._answers: Answers | None = None

    def attach(
        self, descriptor: int, received: bytes, cancel_flags: memoryview, inline_byte_size: int
    ) -> None:
        """See `FrameExecutor`."""
        ffi = self._shim.ffi
        # Not held as what cffi makes of them: in a circle the collector would crash over such a view.
        self._cancel_flags = cancel_flags
        begun = ffi.from_buffer(received)
        names = [ffi.new("char[]", name.encode(errors="replace")) for name in self._outputs]
        outputs, news = ffi.new("const char *[]", names), ffi.new("const bool *[]", list(self._news))
        channel = ffi.new(
            "TRITONPY_FrameChannel *",
            (
                descriptor,
                begun,
                len(received),
                ffi.from_buffer("unsigned char[]", cancel_flags),
                len(cancel_flags),
                outputs,
                len(names),
                inline_byte_size,
                news,
                len(news),
            ),
        )
        executor = self._lib.TRITONPY_FrameExecutorNew(self._handle, channel)
        self._executor = ffi.gc(executor, self._lib.TRITONPY_FrameExecutorEnd)
        self._answers = self._open_answers(self._lib.TRITONPY_FrameExecutorEvents(executor))

    def next(self) -> bytes | None:
        """See `FrameExecutor`."""
        ffi = self._shim.ffi
        if self._executed is not None:  # the core could not read its frame: what it left is nobody's
            _left_behind.append(self._executed)
            self._executed = self._answers = None
            self._lib.TRITONPY_FrameExecutorRest(self._executor)
        if not self._lib.TRITONPY_FrameExecutorNext(self._executor, self._next):
            return None
        if self._next.executed != ffi.NULL:
            self._executed = ffi.gc(self._next.executed, self._lib.TRITONPY_FrameBatchEnd)
        return bytes(ffi.buffer(self._next.frame, self._next.byte_size))

    def next_reply(self) -> bytes | None:
        """See `FrameExecutor`."""
        if not self._lib.TRITONPY_FrameExecutorReply(self._executor, self._reply):
            return None
        return bytes(self._shim.ffi.buffer(self._reply.frame, self._reply.byte_size))

    def write(self, frame: bytes) -> None:
        """See `FrameExecutor`."""
        if not self._lib.TRITONPY_FrameExecutorWrite(self._executor, frame, len(frame)):
            raise BrokenPipeError("the server has closed the channel")

    @property
    def running_batch(self) -> int:
        """See `FrameExecutor`."""
        number: int = self._lib.TRITONPY_FrameExecutorRunning(self._executor)
        return number

    @property
    def has_executed(self) -> bool:
        """The batch of the last frame was executed, and is to be settled instead."""
        return self._executed is not None

    def settle(self, instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse] | None:
        """Answer the batch that was executed; see `model_instance_execute`.

        Raises:
            TritonError: the execution has failed.
        """
        assert self._answers is not None  # attached
        kept, self._executed = self._executed, None
        execution = self._next.execution
        instance.report_compute(execution.compute_start_ns, execution.compute_end_ns)
        asked = self._answers.adopt(requests, self._next.first_tag, kept, self._cancel_flags)
        self._answers.take()
        try:
            return self._answers.settle(asked, execution.error)
        finally:
            if execution.reports_memory:
                self._note_memory()
            if self._answers.has_open:  # others are answered from other threads: it is a model of that kind
                self._lib.TRITONPY_FrameExecutorRest(self._executor)
                self._answers.take_at_once()

    def close(self) -> None:
        """See `FrameExecutor`; its memory stays, since threads may send until the process ends."""
        if self._answers is not None:
            self._answers.close()
