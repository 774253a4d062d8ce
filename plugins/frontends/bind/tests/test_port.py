"""What comes to the port that is no program of ours, or one that does not behave."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import threading
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable
from tritonpy.server import Server
from tritonpy_frontend_bind.bindings import Binding
from tritonpy_frontend_bind.listener import Listener
from tritonpy_frontend_bind.settings import Settings
from tritonpy_sdk import RemoteServer
from tritonpy_sdk.remote import program as remote_program
from tritonpy_sdk.remote.proof import PROGRAM, SERVER, new_nonce, prove
from tritonpy_sdk.remote.wire import MAGIC, FrameReader, encode
from tritonpy_sdk.testing import DEADLINE_S, until

from .given import X, double, options, vector

CONFIG = {
    "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
    "instance_group": [{"count": 1}],
}
WARMUP = {
    "name": "outside",
    "batch_size": 1,
    "inputs": {"x": {"data_type": "TYPE_FP32", "dims": [1], "input_data_file": "../../../etc/passwd"}},
}


class Peer:
    """The other side of the port, frame by frame."""

    def __init__(self, connected):
        self._socket = connected
        self._reader = FrameReader(1 << 24, 1 << 24)
        self._frames = []

    def send(self, head, *parts):
        self.send_bytes(b"".join(encode(head, parts)))

    def send_bytes(self, data):
        self._socket.sendall(data)

    def next(self, kind=None):
        """The next frame, or the next of a kind; None at the end."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if kind in (None, frame.kind) and frame.kind != "ping":
                    return frame.head
            try:
                data = self._socket.recv(65536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._frames += self._reader.feed(data)

    def answer(self, hello, token):
        nonces = (hello["nonce"], new_nonce())
        proof = prove(token.strip(), PROGRAM, *nonces)
        self.send({"kind": "prove", "version": 1, "nonce": nonces[1], "proof": proof, "program": "test"})
        return nonces

    def enter(self, token):
        nonces = self.answer(self.next("hello"), token)
        welcome = self.next()
        assert welcome["proof"] == prove(token.strip(), SERVER, *nonces)
        return self

    def bind(self, name, number=1, **config):
        self.send(
            {
                "kind": "bind",
                "binding": number,
                "name": name,
                "version": 1,
                "config": CONFIG | config,
                "files": [],
            }
        )
        return self.next()

    def close(self):
        self._socket.close()


@pytest.fixture
def connect(address):
    opened = []

    def connect(to=address):
        host, port = to.split(":")
        opened.append(Peer(socket.create_connection((host, int(port)), DEADLINE_S)))
        return opened[-1]

    yield connect
    for peer in opened:
        peer.close()


@pytest.fixture
def still_serves(server):
    """Whatever the test does, the server and its other models go on."""
    yield
    assert server.model("neighbour").infer({"INPUT0": X})["OUTPUT0"].tolist() == X.tolist()


@pytest.fixture
def peer(connect, token):
    return connect().enter(token)


def test_a_token_is_never_sent(connect, token):
    peer = connect()
    hello = peer.next()

    assert (hello["versions"], hello["server"].startswith("triton")) == ([1], True)
    assert token.strip() not in json.dumps(hello)
    assert connect().next()["nonce"] != hello["nonce"]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"proof": "0" * 64}, "does not know the token"),
        ({"proof": None}, "does not know the token"),
        ({"proof": "ü" * 64}, "does not know the token"),
        ({"nonce": ""}, "does not know the token"),
        ({"nonce": 7}, "does not know the token"),
        ({"version": 2}, "speaks version 2 of the protocol, and this server 1"),
        ({"version": "x" * 1000}, "speaks version x{32} of the protocol"),
    ],
)
def test_a_proof_that_is_none_is_refused(connect, token, changed, text, still_serves):
    peer = connect()
    nonces = (peer.next()["nonce"], new_nonce())
    head = {"kind": "prove", "version": 1, "nonce": nonces[1], "program": "test"}
    head["proof"] = prove(token.strip(), PROGRAM, *nonces)

    peer.send(head | changed)

    assert re.search(text, peer.next("refused")["error"])
    assert peer.next() is None


def test_a_proof_of_one_connection_is_worth_nothing_in_another(connect, token):
    first, second = connect(), connect()
    nonces = (first.next()["nonce"], new_nonce())
    head = {"kind": "prove", "version": 1, "nonce": nonces[1], "program": "test"}
    second.next()

    second.send(head | {"proof": prove(token.strip(), PROGRAM, *nonces)})

    assert second.next()["kind"] == "refused"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        MAGIC + b"\xff" * 12,
        MAGIC + b"\x04\x10\x00\x00" + bytes(8),
        MAGIC + b"\x02\x00\x00\x00" + b"\x01" + bytes(7) + b"{}",
        b"".join(encode({"kind": "bind"})),
        b"".join(encode({"kind": "ping"})),
        MAGIC + b"\x04\x00\x00\x00" + bytes(8) + b"[[[[",
        MAGIC + b"\x02\x00\x00\x00" + bytes(8) + b"[]",
        random.Random(1).randbytes(5000),
    ],
)
def test_garbage_ends_its_connection_at_once(connect, data, still_serves):
    peer = connect()
    peer.next("hello")

    peer.send_bytes(data)

    assert peer.next() is None


@pytest.mark.parametrize(
    "head",
    [
        {"kind": "prove"},
        {"kind": "nonsense"},
        {"kind": "bind"},
        {"kind": "bind", "binding": 1, "name": 3, "version": 1, "config": {}},
        {"kind": "bind", "binding": 1, "name": "n", "version": 1, "config": []},
        {"kind": "bind", "binding": True, "name": "n", "version": 1, "config": {}},
        {"kind": "unbind", "binding": "1"},
        {"kind": "executed", "call": 1},
        {"kind": "executed", "call": -1},
        {"kind": "response", "call": 1},
    ],
)
def test_a_program_that_says_nonsense_is_let_go(peer, head, still_serves):
    peer.send(head)

    assert peer.next() is None


@pytest.mark.parametrize(
    ("name", "config", "text"),
    [
        ("../up", {}, "path traversal"),
        ("", {}, "empty"),
        ("x" * 300, {}, "at most 255 bytes"),
        ("n", {"ensemble_scheduling": {}}, "cannot configure 'ensemble_scheduling'"),
        ("n", {"model_repository_agents": {}}, "cannot configure"),
        ("n", {"parameters": []}, "cannot configure 'parameters'"),
        ("n", {"instance_group": []}, "one group of instances"),
        ("n", {"instance_group": [{"count": 10_000}]}, "got 10000 instances"),
        ("n", {"max_batch_size": "many"}, "max_batch_size"),
        ("n", {"input": 3}, "input"),
        ("n", {"model_warmup": [WARMUP]}, "inside the"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_with_a_reason(peer, name, config, text, still_serves):
    answer = peer.bind(name, **config)

    assert answer["kind"] == "failed"
    assert text in answer["error"][1]
    assert peer.bind("fine", number=2)["kind"] == "bound"


def test_files_lie_in_the_folders_for_warm_up_and_states_only(peer):
    head = {"kind": "bind", "binding": 1, "name": "n", "version": 1, "config": CONFIG}

    for path in (
        "1/model.py",
        "batchstrategy.so",
        "warmup/../x",
        "warmup/a/b",
        "/etc/x",
        "initial_state/../x",
    ):
        peer.send(head | {"files": [[path, 1]]}, b"x")
        assert "expected warmup/NAME or initial_state/NAME" in peer.next("failed")["error"][1]


def ask(server, name, **more):
    return server.model(name).submit({"x": X}, **more)


@pytest.mark.parametrize(
    "answer",
    [
        {"responses": []},
        {"responses": [None]},
        {"responses": [{"outputs": [["y", "FP32", [1, 2], 4]]}]},
        {"responses": [{"outputs": [["y", "FP32", [1, 3], 8]]}]},
        {"responses": [{"outputs": [["y", "FP32", [-1, -2], 8]]}]},
        {"responses": [{"outputs": [["y", "FP33", [1, 2], 8]]}]},
        {"responses": [{"outputs": [["y", "FP32", [1, 2], 80000]]}]},
        {"responses": [{"outputs": "y"}]},
        {"responses": {"y": 1}},
        {"responses": None},
        {"error": ["x", 1]},
        {"compute_ns": "long"},
    ],
)
def test_an_answer_that_is_none_fails_its_request_only(peer, server, answer, still_serves):
    assert peer.bind("answers")["kind"] == "bound"
    future = ask(server, "answers")
    call = peer.next("execute")["call"]

    peer.send({"kind": "executed", "call": call, "compute_ns": 0} | answer, bytes(8))

    with pytest.raises(TritonError, match=r"is gone|not answered every request"):
        future.result(DEADLINE_S)


def test_strings_that_are_none_fail_their_request_only(peer, server, still_serves):
    output = [{"name": "y", "data_type": "TYPE_STRING", "dims": [-1]}]
    assert peer.bind("strings", output=output)["kind"] == "bound"
    future = ask(server, "strings")
    call = peer.next("execute")["call"]
    entry = {"outputs": [["y", "BYTES", [1, 2], 5]]}

    peer.send({"kind": "executed", "call": call, "compute_ns": 0, "responses": [entry]}, b"\xff" * 5)

    with pytest.raises(TritonError, match="string"):
        future.result(DEADLINE_S)


def test_a_program_that_sends_more_responses_than_it_may_is_let_go(peer, server, still_serves):
    policy = {"decoupled": True}
    assert peer.bind("flood", model_transaction_policy=policy)["kind"] == "bound"
    stream = server.model("flood").stream({"x": X})
    call = peer.next("execute")["call"]
    response = {"outputs": [["y", "FP32", [1, 1024], 4096]]}
    head = {"kind": "response", "call": call, "request": 0, "response": response, "final": False}
    frame = b"".join(encode(head, [bytes(4096)]))

    with suppress(OSError):
        for _ in range(100_000):
            peer.send_bytes(frame)

    with pytest.raises(Unavailable, match="more responses than the program was told"):
        for _ in stream:
            pass


def test_a_number_that_is_used_already_is_refused(peer, server):
    assert peer.bind("first")["kind"] == "bound"

    assert "is that of another function" in peer.bind("second")["error"][1]
    peer.send({"kind": "unbind", "binding": 99})
    assert peer.next()["reason"] == "it is not bound"


def test_a_model_that_is_unloaded_on_the_server_is_not_bound_again(peer, server):
    assert peer.bind("unloaded")["kind"] == "bound"

    server.unload("unloaded")

    ended = peer.next("ended")
    assert (ended["reason"], ended["again"]) == ("it was unloaded on the server", False)
    assert peer.bind("unloaded", number=2)["kind"] == "bound"


def test_who_knocks_often_fills_no_log(caplog):
    now_s = 0.0
    listener = Listener(SimpleNamespace(name="bind"), Settings([]), clock=lambda: now_s)
    for _ in range(30):
        listener.refused("peer", "no frame")
        now_s += 0.125

    assert [record.message for record in caplog.records] == [
        "refused a connection from peer: no frame",
        *["refused a connection from peer: no frame (and 7 others since the last such line)"] * 3,
    ]


def test_changes_of_a_name_take_turns_and_leave_nothing_behind():
    done, active = [], set()

    async def offer_model(name, *given):
        assert name not in active
        active.add(name)
        await asyncio.sleep(0)
        active.remove(name)
        done.append(name)

    async def change():
        listener = Listener(SimpleNamespace(dataplane=SimpleNamespace(offer_model=offer_model)), Settings([]))
        bindings = [Binding(None, number, name, 1, {}) for number, name in enumerate("aaab")]
        await asyncio.gather(*(listener.serve(binding, {}) for binding in bindings))
        await asyncio.gather(*(listener.end(binding, "over", again=False) for binding in bindings))
        return listener

    listener = asyncio.run(change())

    assert sorted(done) == list("aaab")
    assert not listener._turns


def test_the_number_of_programs_is_limited(token_file, token):
    given = options(token_file, ("max-programs", "1"))
    with Server(given) as server:
        address = f"127.0.0.1:{server.port('bind')}"
        with RemoteServer(address, token=token), pytest.raises(Unavailable, match="max-programs"):
            RemoteServer(address, token=token).start()
        with RemoteServer(address, token=token, connect_timeout_s=DEADLINE_S) as second:
            assert second.is_connected


def test_programs_that_connect_at_once_are_counted_when_they_have_proved_themselves(
    token_file, token, connect
):
    given = options(token_file, ("max-programs", "1"))
    with Server(given) as server:
        first, second = (connect(f"127.0.0.1:{server.port('bind')}") for _ in range(2))
        hello = second.next("hello")
        first.enter(token)
        second.answer(hello, token)

        assert "no more than 1 are taken" in second.next("refused")["error"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ports": "1"}, "bind,ports: not known, expected address, port"),
        ({"port": "70000"}, "bind,port: got '70000', expected 65535"),
        ({"token-file": "/nowhere"}, "bind,token-file: cannot read '/nowhere'"),
        ({"token-file": ""}, "bind,token-file: missing: whoever binds"),
        ({"token-file": os.devnull}, "has 0 characters, expected 16 or more"),
        ({"silence-ms": "0"}, "silence-ms"),
        ({"max-frame-bytes": "many"}, "max-frame-bytes"),
        ({"tls-key": "k.pem"}, "bind,tls-certificate: missing"),
        ({"tls-key": "k.pem", "tls-certificate": "c.pem"}, "no certificate and its private key"),
        ({"unix": "/tmp/x"}, "'/tmp/x' cannot stand beside port"),
    ],
)
def test_settings_that_cannot_be_end_the_start(token_file, settings, text):
    with pytest.raises(TritonError, match=text), Server(options(token_file, *settings.items())):
        pass


@pytest.mark.parametrize(
    "address",
    ["", "http://x:1", "tcp://", "x:port", "unix:", "tcp://u@x:1", "x:1/path", "a..b:1", f"{'a' * 64}.b:1"],
)
def test_addresses_that_are_none(address):
    with pytest.raises(InvalidArg, match="expected HOST:PORT"):
        RemoteServer(address)


def test_a_path_where_the_system_has_no_such_sockets(monkeypatch):
    monkeypatch.delattr(socket, "AF_UNIX")
    with pytest.raises(
        InvalidArg, match="'unix:/tmp/x', expected HOST:PORT: this system has no such sockets"
    ):
        RemoteServer("unix:/tmp/x")


def test_a_start_that_fails_unexpectedly_says_so_at_once(monkeypatch):
    monkeypatch.setattr(remote_program, "Session", lambda *given: 1 / 0)
    remote = RemoteServer("127.0.0.1:1", connect_timeout_s=600)

    for _ in range(2):
        with pytest.raises(Unavailable, match="has failed for good: division by zero"):
            remote.start()
    assert not remote.is_running


def test_a_connection_that_fails_unexpectedly_ends_the_program(token, monkeypatch):
    monkeypatch.setattr(remote_program.random, "uniform", lambda *given: 1 / 0)  # before it connects again
    with socket.create_server(("127.0.0.1", 0)) as listener:
        remote = RemoteServer(f"127.0.0.1:{listener.getsockname()[1]}", token=token, connect_timeout_s=600)

        def take_and_leave():
            peer = Peer(listener.accept()[0])
            nonce = new_nonce()
            peer.send({"kind": "hello", "versions": [1], "nonce": nonce, "server": "x"})
            proof = prove(token.strip(), SERVER, nonce, peer.next("prove")["nonce"])
            peer.send({"kind": "welcome", "proof": proof, "most_data_bytes": 1, "silence_s": 600})
            peer.close()

        thread = threading.Thread(target=take_and_leave, daemon=True)
        thread.start()
        with pytest.raises(Internal, match="has failed for good: ZeroDivisionError"):
            remote.serve()
        thread.join()

    assert not remote.is_running
    assert not remote.is_connected
    remote.bind("later", double, [vector("x")], [vector("y")])


def test_a_server_that_does_not_know_the_token_gets_no_function(token):
    listener = socket.create_server(("127.0.0.1", 0))
    remote = RemoteServer(f"127.0.0.1:{listener.getsockname()[1]}", token=token)

    def pretend():
        near, _ = listener.accept()
        with near:
            near.sendall(
                b"".join(encode({"kind": "hello", "versions": [1], "nonce": new_nonce(), "server": "x"}))
            )
            near.recv(4096)
            welcome = {"kind": "welcome", "proof": "0" * 64, "most_data_bytes": 1, "silence_s": 1}
            near.sendall(b"".join(encode(welcome)))
            near.recv(4096)

    thread = threading.Thread(target=pretend)
    thread.start()
    with pytest.raises(Unavailable, match="the server does not know the token"):
        remote.start()
    thread.join()
    listener.close()
    assert not remote.is_running


def test_a_wrong_token_is_told_at_once(address):
    with pytest.raises(Unavailable, match="it does not know the token"):
        RemoteServer(address, token="another token").start()


def test_many_frames_in_one_piece_and_one_frame_in_many(peer, server):
    assert peer.bind("pieces")["kind"] == "bound"
    future = ask(server, "pieces")
    call = peer.next("execute")["call"]
    entry = {"outputs": [["y", "FP32", [1, 2], 8]]}
    head = {"kind": "executed", "call": call, "compute_ns": 0, "responses": [entry]}
    data = b"".join([*encode({"kind": "ping"}), *encode(head, [X.tobytes()]), *encode({"kind": "ping"})])

    for byte in data:
        peer.send_bytes(bytes([byte]))

    assert np.array_equal(future.result(DEADLINE_S)["y"], X)
    until(lambda: server.model("pieces").statistics["model_stats"][0]["inference_count"] == 1)
