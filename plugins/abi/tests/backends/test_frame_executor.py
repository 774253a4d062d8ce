"""The executor of an instance in a worker: what it answers by itself, and what it leaves to the core."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.ipc import frame
from tritonpy.ipc.frame import FrameReader, Message, encode_frame
from tritonpy.plugin import InferRequest, InferResponse, ModelInstance, Tensor, TritonError
from tritonpy_abi.backends import open_backend
from tritonpy_abi.backends.frame_executor import LibraryFrames
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, BackendDriver, until

from ..conftest import Compiled

CONFIG: dict[str, Any] = {
    "backend": "SharedBackend",
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
}
INLINE_BYTE_SIZE = 16 * 1024
PROBE = encode_frame((frame.PROBE, ()))
FEW = np.array([[1, 2]], np.int32)


class Channel:
    """The server's end of a worker's channel, and an instance that executes at the other one.

    Attributes:
        answers: what requests got that were answered behind their execution, by their ids.
    """

    def __init__(self, instance: ModelInstance, received: bytes = b"") -> None:
        assert isinstance(instance.frame_executor, LibraryFrames)
        self.instance = instance
        self.executor = instance.frame_executor
        self.flags = bytearray(16)
        self.answers: dict[str, str] = {}
        self._server, self._worker = socket.socketpair()
        self._server.settimeout(DEADLINE_S)
        self._reader = FrameReader()
        self._read: list[Message] = []
        self.executor.attach(self._worker.fileno(), received, memoryview(self.flags), INLINE_BYTE_SIZE)

    def send(self, *frames: bytes) -> None:
        self._server.sendall(b"".join(frames))

    def left(self, *frames: bytes) -> bytes | None:
        """What is left to the core of these frames first."""
        self.send(*frames)
        return self.executor.next()

    def answer(self) -> Message:
        """The next frame that the server gets."""
        while not self._read:
            self._read += self._reader.feed(self._server.recv(65536))
        return self._read.pop(0)

    def settle(self, *requests: InferRequest) -> list[InferResponse] | TritonError | None:
        for each in requests:
            each.ticket.outbox = self
        try:
            return self.executor.settle(self.instance, requests)
        except TritonError as error:
            return error

    def post(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert final
        assert response is not None
        self.answers[request.id] = str(
            response.error.message if response.error else response.outputs[0].numpy().tolist()
        )

    def close_server(self) -> None:
        self._server.close()

    def close(self) -> None:
        self._server.close()
        self._worker.close()


@pytest.fixture
def channel(library: Path, compiled: Compiled, tmp_path: Path) -> Iterator[Channel]:
    ModelRepository(tmp_path).model("copies", CONFIG)
    driver = BackendDriver(open_backend(compiled("backends/copying.c", "-pthread")), tmp_path)
    with driver.load("copies") as model:
        made = Channel(model.instances[0])
        yield made
    made.executor.close()
    made.close()


def tensor(values: np.ndarray[Any, Any] = FEW, name: str = "INPUT0") -> Message:
    return name, "INT32", values.shape, values.tobytes()


def asked(slot: int = 0, do: str = "", **other: Any) -> Message:
    """A request in a frame."""
    fields = {
        "id": "a",
        "flags": 0,
        "correlation_id": 0,
        "timeout_us": 0,
        "priority": 0,
        "parameters": {"do": do} if do else None,
        "requested": None,
        "inputs": [tensor()],
    }
    return slot, *(fields | other).values()


def execute(*requests: Message, batch: int = 1, releases: tuple[int, ...] = ()) -> bytes:
    return encode_frame((frame.EXECUTE, releases, batch, list(requests)))


def request(id: str = "a") -> InferRequest:
    return InferRequest("copies", {"INPUT0": Tensor.from_numpy("INPUT0", FEW)}, id=id)


def copied(values: np.ndarray[Any, Any] = FEW) -> Message:
    return [("OUTPUT0", "INT32", values.shape, values.tobytes())], None, None


def test_batches_are_answered_one_after_the_other_and_only_others_are_left(channel: Channel) -> None:
    large = np.arange(4096, dtype=np.int32).reshape(1, 4096)  # the largest that stands in a frame
    batch = 2**40  # of a server that has run for long
    several = execute(asked(0), asked(1, inputs=[tensor(large)]), batch=batch)

    assert channel.left(execute(asked(3), batch=7), several, PROBE) == PROBE

    kind, releases, first, times, responses, failure, *_ = channel.answer()
    assert (kind, releases, first, responses, failure) == (frame.EXECUTED, (), 7, [copied()], None)
    start, compute_start, compute_end, end = times
    assert start <= compute_start <= compute_end
    assert start <= end
    assert channel.answer()[2:5:2] == (batch, [copied(), copied(large)])


def test_it_knows_the_frames_of_this_release(channel: Channel) -> None:
    assert channel.executor.frame_version == frame.FRAME_VERSION


def test_a_batch_is_answered_before_the_next_one_comes(channel: Channel) -> None:
    thread = threading.Thread(target=channel.executor.next, daemon=True)
    thread.start()
    for batch in range(1, 50):
        channel.send(execute(asked(), batch=batch))
        assert channel.answer()[2] == batch
    channel.send(PROBE)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


READ = {
    "a sequence": {"flags": 3, "correlation_id": 2**62},
    "a sequence by name": {"correlation_id": "séquence"},
    "an empty id": {"id": ""},
    "a timeout": {"timeout_us": 2**40, "priority": 3},
    "outputs": {"requested": ("OUTPUT0", "OUTPUT0")},
    "no elements": {"inputs": [tensor(FEW[:, :0])]},
}


@pytest.mark.parametrize("fields", READ.values(), ids=READ)
def test_what_requests_may_have_is_read(channel: Channel, fields: dict[str, Any]) -> None:
    assert channel.left(execute(asked(**fields)), PROBE) == PROBE

    values = FEW[:, :0] if fields.get("inputs") else FEW
    assert channel.answer()[4] == [copied(values)]


def test_tensors_are_aligned_wherever_they_stand_in_the_frame(channel: Channel) -> None:
    batches = [execute(asked(id="i" * size, do="place")) for size in range(64)]

    assert channel.left(*batches, PROBE) == PROBE
    assert [channel.answer()[4] for _ in batches] == [[copied(np.array([[0, 2]], np.int32))]] * len(batches)


def test_parameters_of_every_kind_are_read(channel: Channel) -> None:
    given = {"whole": -5, "large": 2**62, "half": 0.5, "yes": True, "no": False, "word": "wört"}
    assert channel.left(execute(asked(parameters=given)), PROBE) == PROBE
    assert channel.answer()[4] == [copied()]

    assert channel.left(execute(asked(parameters=given | {"do": "error"}))) != PROBE
    assert channel.executor.has_executed  # it has found the last of them
    channel.settle(request())


LEFT = {
    "a trace": execute((*asked(), (1, None, 0))),
    "shared memory": execute(asked(inputs=[("INPUT0", "INT32", (1, 2), (3, 8))])),
    "one of several": execute(asked(), asked(1, inputs=[("INPUT0", "INT32", (1, 2), (3, 8))])),
    "memory given back": execute(asked(), releases=(4,)),
    "half a character": execute(asked(id="\ud800")),
    "a number beyond 64 bits": execute(asked(correlation_id=2**63)),
    "a parameter of that kind": execute(asked(parameters={"large": 2**70})),
    "no slot": execute(asked(16)),
    "no requests": execute(),
    "a reply to nobody": encode_frame((frame.FORGET, (), 3)),
}


@pytest.mark.parametrize("sent", LEFT.values(), ids=LEFT)
def test_what_it_does_not_know_is_left_as_it_came(channel: Channel, sent: bytes) -> None:
    assert channel.left(sent) == sent
    assert not channel.executor.has_executed
    assert channel.left(execute(asked(), batch=2), PROBE) == PROBE
    assert channel.answer()[2] == 2


UNUSUAL = {
    "error": "the request was told to fail",
    "refuse": "the batch was told to fail",
    "shorten": "has a buffer of 7 bytes, expected 8",
}


@pytest.mark.parametrize("do", UNUSUAL)
def test_what_became_of_an_unusual_batch_is_told_by_settle(channel: Channel, do: str) -> None:
    sent = execute(asked(do=do))
    assert channel.left(sent) == sent
    assert channel.executor.has_executed

    outcome = channel.settle(request())
    error = outcome if isinstance(outcome, TritonError) else (outcome or [])[0].error
    assert error is not None
    assert UNUSUAL[do] in error.message
    assert not channel.executor.has_executed
    assert channel.left(execute(asked(), batch=2), PROBE) == PROBE  # the next one is executed here again
    assert channel.answer()[2] == 2


def test_large_outputs_are_left(channel: Channel) -> None:
    large = np.arange(4097, dtype=np.int32).reshape(1, 4097)
    sent = execute(asked(inputs=[tensor(large)]))
    assert channel.left(sent) == sent

    (response,) = channel.settle(request()) or ()  # type: ignore[misc]
    assert isinstance(response, InferResponse)
    assert response.outputs[0].numpy().tolist() == large.tolist()


def test_a_batch_of_which_some_are_answered_later_is_the_last_one(channel: Channel) -> None:
    sent = execute(asked(id="a", do="later"), asked(1, id="b"), asked(2, id="c", do="later"))

    def is_left() -> bool:
        """Whether batches are left now; where threads of the backend were quick they are asked again."""
        if channel.left(sent, PROBE) == PROBE:
            assert channel.answer()[4] == [copied()] * 3
            return False
        if not channel.executor.has_executed:
            assert channel.executor.next() == PROBE
            return True
        for response in channel.settle(request("a"), request("b"), request("c")) or ():  # type: ignore[union-attr]
            assert response.outputs[0].numpy().tolist() == [[1, 2]]
            channel.answers = dict.fromkeys("abc", "[[1, 2]]")
        until(lambda: len(channel.answers) == 3)
        assert channel.answers == dict.fromkeys("abc", "[[1, 2]]")
        channel.answers.clear()
        assert channel.executor.next() == PROBE
        return False

    until(is_left)


def test_a_request_that_is_forgotten_is_answered_when_it_is_garbage(channel: Channel) -> None:
    assert channel.left(execute(asked(do="forget"))) is not None
    assert channel.settle(request()) is None
    gc.collect()

    assert "dropped the request without a final response" in channel.answers["a"]


def test_one_that_was_executed_and_is_not_settled_is_the_last_one(channel: Channel) -> None:
    assert channel.left(execute(asked(do="error"))) is not None
    sent = execute(asked(), batch=2)
    assert channel.left(sent) == sent
    assert not channel.executor.has_executed


def test_replies_are_for_another_thread_also_while_a_batch_is_executed(channel: Channel) -> None:
    replies: list[bytes | None] = []

    def receive() -> None:
        while (reply := channel.executor.next_reply()) is not None:
            replies.append(reply)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    called = encode_frame((frame.CALLED, (), 1, None, True))
    answered = encode_frame((frame.ANSWER, (), 2, 3, None))
    assert channel.left(called, execute(asked()), answered, PROBE) == PROBE
    until(lambda: len(replies) == 2)

    assert replies == [called, answered]
    assert channel.answer()[4] == [copied()]
    channel.close_server()
    assert channel.executor.next() is None
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_a_frame_in_pieces_is_put_together(library: Path, compiled: Compiled, tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("copies", CONFIG)
    driver = BackendDriver(open_backend(compiled("backends/copying.c", "-pthread")), tmp_path)
    sent = execute(asked()) + PROBE
    with driver.load("copies") as model:
        channel = Channel(model.instances[0], received=sent[:3])
        thread = threading.Thread(target=channel.executor.next, daemon=True)
        thread.start()
        for at in range(3, len(sent)):
            channel.send(sent[at : at + 1])
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        assert channel.answer()[4] == [copied()]
    channel.executor.close()
    channel.close()


def test_frames_are_written_between_those_of_executions(channel: Channel) -> None:
    told = encode_frame((frame.TELL, (), "what", (b"x" * 100_000,)))
    count = 50

    def write() -> None:
        for _ in range(count):
            channel.executor.write(told)

    def run() -> None:
        for batch in range(count):
            channel.send(execute(asked(), batch=batch))
        channel.send(PROBE)

    threads = [threading.Thread(target=each, daemon=True) for each in (write, run, channel.executor.next)]
    for thread in threads:
        thread.start()
    seen = [channel.answer() for _ in range(2 * count)]
    for thread in threads:
        thread.join(DEADLINE_S)

    assert [message[2] for message in seen if message[0] == frame.EXECUTED] == [*range(count)]
    assert sum(message[0] == frame.TELL for message in seen) == count


def test_a_server_that_is_gone_is_no_error_to_execute_for(channel: Channel) -> None:
    channel.send(execute(asked()), execute(asked()))
    channel.close_server()

    assert channel.executor.next() is None
    with pytest.raises(OSError, match="closed"):
        channel.executor.write(PROBE)


def test_damaged_frames_are_left_or_executed_and_nothing_is_read_beyond_them(channel: Channel) -> None:
    whole = execute(
        asked(2, parameters={"a": 1.5, "b": True, "c": "d", "e": 2**40}, correlation_id="x", requested=("O",))
    )
    left = executed = 0
    for place in range(4, len(whole)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[place] ^= change
            channel.send(bytes(damaged), PROBE)
            while (next_left := channel.executor.next()) != PROBE:
                left += 1
                assert next_left == damaged
                if channel.executor.has_executed:
                    executed += 1
                    channel.settle(request())
    for size in range(len(whole) - 5):
        cut = size.to_bytes(4, "little") + whole[4 : 4 + size]
        assert channel.left(cut, PROBE) == cut
        assert channel.executor.next() == PROBE
    assert left > executed
    assert channel.left(execute(asked(), batch=5), PROBE) == PROBE
