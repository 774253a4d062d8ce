"""Clients that are gone before they have taken what is being sent to them."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from tritonpy.frontends.grpc.grpcio.handlers import refusing
from tritonpy.frontends.grpc.grpcio.hang_ups import HangUpFilter
from tritonpy_sdk.testing import DEADLINE_S, until

MEBIBYTE = 1024 * 1024
SERVICE = "/inference.GRPCInferenceService/"
# Such a client takes no more than some thousand bytes before it asks for its first message.
TAKES_LITTLE = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 16 * 1024),
]


@pytest.fixture
def channel(harness: Any) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(harness.url, options=TAKES_LITTLE) as channel:
        yield channel


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "grpc")
    caplog.set_level(logging.DEBUG, "tritonpy.grpc")
    return caplog


def half_sent(channel: grpc.Channel, call: str, message: Any) -> Any:
    """A call that the server answers; it cannot send more than the beginning."""
    asked = channel.stream_stream(SERVICE + call)(iter([message.SerializeToString()]), timeout=DEADLINE_S)
    asked.initial_metadata()  # goes ahead of the message, which is larger than what the client takes
    return asked


def open_tasks(harness: Any) -> set[asyncio.Task[Any]]:
    """The tasks on the server's loop: a few of its own, and some more for each open call."""
    tasks: set[asyncio.Task[Any]] = harness.call(lambda: asyncio.all_tasks() - {asyncio.current_task()})
    return tasks


@pytest.mark.parametrize("leave", ["cancel", "close"])
@pytest.mark.parametrize("call", ["ModelInfer", "ModelStreamInfer"])
def test_a_client_that_leaves_while_it_is_answered_costs_a_verbose_line_at_most(
    harness: Any,
    channel: grpc.Channel,
    make_request: Callable[..., Any],
    log: pytest.LogCaptureFixture,
    call: str,
    leave: str,
) -> None:
    before = open_tasks(harness)
    asked = half_sent(channel, call, make_request(data=bytes(MEBIBYTE)))
    request = weakref.ref(harness.dataplane.seen)
    harness.dataplane.seen = None
    assert open_tasks(harness) - before

    if leave == "cancel":
        asked.cancel()
    channel.close()

    until(lambda: len(open_tasks(harness)) <= len(before))
    assert [record.getMessage() for record in log.records if record.levelno > logging.DEBUG] == []
    lines = [record.getMessage() for record in log.records if record.name == "tritonpy.grpc"]
    assert len(lines) <= 1  # none where grpcio hears that the client is gone before it hears what failed
    assert all(call in line and "nothing more can be sent" in line for line in lines)
    until(lambda: request() is None)
    assert harness.stub.ModelInfer(make_request(), timeout=DEADLINE_S).model_name == "echo"


def test_a_stopping_server_does_not_mind_either(
    harness: Any, channel: grpc.Channel, make_request: Callable[..., Any], log: pytest.LogCaptureFixture
) -> None:
    for call in ("ModelInfer", "ModelStreamInfer"):
        half_sent(channel, call, make_request(data=bytes(MEBIBYTE)))
    stopping = asyncio.run_coroutine_threadsafe(harness.server.stop(DEADLINE_S), harness.loop)
    harness.call(lambda: None)  # it has begun

    channel.close()
    stopping.result(DEADLINE_S)

    assert [record.getMessage() for record in log.records if record.levelno > logging.DEBUG] == []


def test_a_call_whose_refusal_cannot_be_sent_ends_as_a_cancelled_one() -> None:
    class Gone:
        async def abort(self, code: grpc.StatusCode, text: str) -> None:
            raise grpc.aio.InternalError("Failed")

    handler = refusing(grpc.unary_unary_rpc_method_handler(None), "no")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(handler.unary_unary(b"", Gone()))


class Failure:
    """What grpcio logs of a call."""

    def __init__(self, error: Exception, method: str = SERVICE + "ModelInfer") -> None:
        self.text = f"ExecuteBatchError raised in core by servicer method [{method}]"
        self.error = error

    def passes(self, hang_ups: HangUpFilter) -> bool:
        where = ("grpc._cython.cygrpc", logging.ERROR, __file__, 0)
        failure = (type(self.error), self.error, None)
        return hang_ups.filter(logging.LogRecord(*where, self.text, None, failure))


def test_only_failures_to_send_of_the_servers_own_calls_are_taken_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hang_ups = HangUpFilter([SERVICE + "ModelInfer"])

    caplog.set_level(logging.DEBUG, "tritonpy.grpc")

    assert not Failure(grpc.aio.InternalError("x")).passes(hang_ups)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]
    assert Failure(grpc.aio.InternalError("x"), "/another.Service/Call").passes(hang_ups)
    assert Failure(ValueError("x")).passes(hang_ups)
    record = logging.LogRecord("grpc._cython.cygrpc", logging.ERROR, __file__, 0, "words", None, None)
    assert hang_ups.filter(record)
