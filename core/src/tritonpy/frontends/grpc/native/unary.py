"""Calls of one message each way: inference, without a task or a future, and the calls that are described."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError, Message

from tritonpy.errors import Internal, TritonError
from tritonpy.frontends.grpc.errors import as_triton_error
from tritonpy.frontends.grpc.native.call import Call, CallConnection, Refused
from tritonpy.frontends.grpc.native.framing import Body, framed
from tritonpy.frontends.grpc.native.metadata import RequestHead
from tritonpy.frontends.grpc.servicer import DescribedCall, Servicer
from tritonpy.frontends.grpc.status import Status
from tritonpy.frontends.grpc.unary import UnaryInfer, UnaryPort
from tritonpy.protos import RpcMethod
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

Answer: TypeAlias = "Callable[[Body], bytes | Awaitable[bytes]]"
"""Makes the serialized response of a serialized request, at once or later."""


class UnaryCall(Call):
    """A call of one message each way; most are answered before or after `_run`, without a task.

    Attributes:
        name: of the call, for the log.
    """

    __slots__ = ("_body", "_is_compressed", "_task")

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead) -> None:
        super().__init__(connection, stream, head)
        self._body: Body | None = None
        self._is_compressed = False
        self._task: asyncio.Task[None] | None = None

    def _on_message(self, flag: int, body: Body) -> None:
        if self._body is not None:
            raise Refused(Status.UNIMPLEMENTED, "a call that takes one message got more")
        self._check_size(len(body))
        if flag:
            self._check_coding(flag)
        self._is_compressed = flag == 1
        self._body = body
        if not self._is_half_closed:
            self._hold(len(body))

    def _on_end(self) -> None:
        body, self._body = self._body, None
        if body is None:
            raise Refused(Status.UNIMPLEMENTED, "a call that takes one message got none")
        self._release()
        if self._is_compressed:
            self._later(self._inflate(body))
        else:
            self._run(body)

    def _awaited(self) -> object:
        if self._is_half_closed:
            return None
        return 0 if self._reader is None else self._reader.received

    def _run(self, body: Body) -> None:
        """Answer the message, now or later.

        Raises:
            TritonError: what the call ends with.
        """
        raise NotImplementedError

    def _abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _give(self, message: bytes) -> None:
        """Answer with a framed message."""
        deflation = self._connection.port.deflation
        if deflation is None or not self._head.accepts_gzip:
            self._succeed(message)
        elif deflation.is_quick(message):
            self._succeed(deflation.deflate(message))
        else:
            self._later(self._deflate(message))

    def _later(self, work: Any) -> None:
        """Have a coroutine go on with the call. Any: `create_task` takes no other awaitable."""
        self._task = asyncio.get_running_loop().create_task(self._guard(work))

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except TritonError as exc:
            self.fail(exc.with_traceback(None))
        except Exception as exc:
            self.fail(as_triton_error(exc, self._head.path))

    async def _inflate(self, body: Body) -> None:
        inflation = self._connection.port.inflation
        self._run(await inflation.inflate(body if isinstance(body, bytes) else bytes(body)))

    async def _deflate(self, message: bytes) -> None:
        deflation = self._connection.port.deflation
        if deflation is not None:
            message = await deflation.deflated(message)
        if not self.is_over:
            self._succeed(message)


class InferCall(UnaryCall):
    """A call of `ModelInfer`.

    Args:
        servicer: where inference comes in.
    """

    __slots__ = ("_infer", "_servicer")

    def __init__(
        self, connection: CallConnection, stream: int, head: RequestHead, servicer: Servicer
    ) -> None:
        super().__init__(connection, stream, head)
        self._servicer = servicer
        self._infer: _Infer | None = None

    def on_closed(self) -> None:
        """The stream is over: end the trace of a call that was answered, or give the call up."""
        if not self.is_over:
            super().on_closed()
            return
        infer, self._infer = self._infer, None
        if infer is not None and infer.trace is not None:
            infer.trace.report_activity("GRPC_SEND_END")

    def answer(self, outcome: bytes | TritonError) -> None:
        """Take the outcome; the message is framed."""
        if self.is_over:
            return
        infer = self._infer
        if infer is not None:
            if infer.trace is None:
                self._infer = None
            else:
                infer.trace.report_activity("GRPC_SEND_START")
        if isinstance(outcome, TritonError):
            self.fail(outcome)
        else:
            self._give(outcome)

    def _run(self, body: Body) -> None:
        servicer = self._servicer
        infer = self._infer = _Infer(servicer.unary, self)
        try:
            infer.start(body, self._head.metadata if servicer.reads_metadata else ())
        except TritonError:
            self._infer = None  # its trace has ended
            raise
        except Exception as exc:
            self._infer = None
            raise as_triton_error(exc, "ModelInfer") from None

    def _abandon(self) -> None:
        super()._abandon()
        infer, self._infer = self._infer, None
        if infer is not None:
            infer.cancel()


class _Infer(UnaryInfer):
    """The inference of a call, whose outcome is framed and goes to it at once."""

    __slots__ = ("_call",)

    def __init__(self, port: UnaryPort, call: InferCall) -> None:
        super().__init__(port)
        self._call = call

    def _encode(self, request: InferRequest, response: InferResponse) -> bytes:
        return framed(self._port.encoder.parts(request, response, self._treatments))

    def _answer(self, outcome: bytes | TritonError) -> None:
        self._call.answer(outcome)


class AnsweredCall(UnaryCall):
    """A call that a function answers.

    Args:
        answer: the function.
    """

    __slots__ = ("_answer",)

    def __init__(self, connection: CallConnection, stream: int, head: RequestHead, answer: Answer) -> None:
        super().__init__(connection, stream, head)
        self._answer = answer

    def _run(self, body: Body) -> None:
        try:
            response = self._answer(body)
        except TritonError:
            raise
        except Exception as exc:
            raise as_triton_error(exc, self._head.path) from None
        if isinstance(response, bytes):
            self._give(framed((response,)))
        else:
            self._later(self._wait(response))

    async def _wait(self, response: Awaitable[bytes]) -> None:
        message = framed((await response,))
        if not self.is_over:
            self._give(message)


def described(method: RpcMethod, call: DescribedCall) -> Answer:
    """Make a function from serialized request to response for a call that takes and gives message objects."""

    async def later(response: Awaitable[Message]) -> bytes:
        return (await response).SerializeToString()

    def answer(body: Body) -> bytes | Awaitable[bytes]:
        try:
            request = method.request.FromString(bytes(body))
        except DecodeError:
            raise Internal("Unable to parse request") from None
        response = call(request)
        if isinstance(response, Message):
            return response.SerializeToString()
        return later(response)

    return answer
