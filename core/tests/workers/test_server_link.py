"""A backend's calls from its worker, beside a server that is drawn by hand."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import NotFound, Unavailable
from tritonpy.ipc import frame
from tritonpy.ipc.channel import WorkerChannel
from tritonpy.ipc.frame import FrameReader, Message, encode_frame
from tritonpy.request import InferRequest
from tritonpy.tensor import Tensor
from tritonpy.workers.child.inbox import WorkerInbox
from tritonpy.workers.child.server_link import WorkerLink


class HandServer:
    """The server's end of the channel."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.segments, their_segments = socket.socketpair()
        self.channel = WorkerChannel(theirs, their_segments)
        self.link = WorkerLink(self.channel, WorkerInbox(self.channel))

    def receive(self) -> Message:
        (message,) = FrameReader().feed(self.socket.recv(65536))
        return message

    def send(self, *message: Any) -> None:
        self.socket.sendall(encode_frame(message))


@pytest.fixture
def server() -> Iterator[HandServer]:
    made = HandServer()
    yield made
    made.socket.close()
    made.segments.close()
    made.channel.close()


def request() -> InferRequest:
    return InferRequest("m", {"X": Tensor.from_numpy("X", np.array([1, 2], np.int32))}, id="an id")


def test_responses_come_in_their_order_and_the_final_flag_may_come_alone(server: HandServer) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()
    server.link.running_batch = 3
    server.link.infer(request(), lambda *answer: answers.put(answer), awaited_by="m_0")
    kind, _, number, batch, decoupled, model, version, encoded = server.receive()
    for value in (1, 2):
        output = ("Y", "INT32", (1,), np.array([value], np.int32).tobytes())
        server.send(frame.CALLED, (), number, ((output,), None, None), False)
    server.send(frame.CALLED, (), number, None, True)

    assert (kind, batch, decoupled, model, version, encoded[1]) == (frame.CALL, 3, True, "m", -1, "an id")
    for value in (1, 2):
        response, final = answers.get(timeout=20)
        assert (response.outputs[0].numpy().tolist(), final) == ([value], False)
    assert answers.get(timeout=20) == (None, True)


def test_a_call_that_no_execution_waits_for_says_so(server: HandServer) -> None:
    server.link.running_batch = 3
    server.link.infer(request(), lambda *answer: None)

    assert server.receive()[3] == 0


def test_a_question_has_an_answer_or_an_error(server: HandServer) -> None:
    answer = server.link.ask("server.is_live")
    _, _, number, what, args = server.receive()
    server.send(frame.ANSWER, (), number, True, None)
    assert (what, args, answer.result(20)) == ("server.is_live", (), True)

    answer = server.link.ask("server.model_config", "n", "")
    server.send(frame.ANSWER, (), server.receive()[2], None, (int(NotFound("").code), "there is none"))
    error = answer.exception(20)
    assert isinstance(error, Exception)
    assert str(error) == "there is none"


def test_whoever_waits_hears_that_the_server_is_gone(server: HandServer) -> None:
    answers: SimpleQueue[Any] = SimpleQueue()
    server.link.infer(request(), lambda *answer: answers.put(answer))
    question = server.link.ask("server.is_live")
    server.socket.close()

    response, final = answers.get(timeout=20)
    assert isinstance(response.error, Unavailable)
    assert final
    assert isinstance(question.exception(20), Unavailable)


def test_a_callback_that_fails_costs_its_own_reply(server: HandServer, caplog: Any) -> None:
    def fail(*answer: Any) -> None:
        raise ValueError("the callback is wrong")

    server.link.infer(request(), fail)
    server.send(frame.CALLED, (), server.receive()[2], None, True)
    answer = server.link.ask("server.is_live")
    server.send(frame.ANSWER, (), server.receive()[2], True, None)

    assert answer.result(20) is True
    assert "could not be handed on" in caplog.text
