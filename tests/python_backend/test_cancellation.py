"""Clients that go before they are answered, and models that notice."""

from __future__ import annotations

import itertools
import json
import socket

import grpc
import pytest

DEADLINES_S = (1, 3, 9)
"""Of calls that are to end where they have got to: the next one where a call did not even get there."""

numbers = itertools.count()


@pytest.fixture
def id() -> str:
    return f"cancelled-{next(numbers)}"


def outcomes(server, id: str) -> list[object]:
    found = server.wait_for_log(rf"sent {id} (\[.*\]) end")
    return json.loads(found[1].replace('\\"', '"'))


def steps(*taken: list[object]) -> dict[str, list[str]]:
    return {"STEPS": [json.dumps(taken)]}


def test_a_model_sees_that_its_client_has_cancelled(server, id):
    message = server.message("sends_once", steps(["wait"], ["last_value", 1]), id=id)
    call = server.stub.ModelInfer.future(message, timeout=30)
    server.wait_for_log(f"waits with {id}")

    call.cancel()

    assert outcomes(server, id) == ["the client is gone", None]
    with pytest.raises(grpc.FutureCancelledError):
        call.result()


def test_a_model_sees_that_its_client_s_deadline_is_over(server, id):
    for deadline_s in DEADLINES_S:
        own_id = f"{id}-{deadline_s}"
        message = server.message("sends_once", steps(["wait"], ["last_value", 1]), id=own_id)
        with pytest.raises(grpc.RpcError) as ended:
            server.stub.ModelInfer(message, timeout=deadline_s)
        assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        if f"waits with {own_id}" in server.log:
            break

    assert outcomes(server, own_id)[0] == "the client is gone"


def test_a_stream_is_cancelled_between_its_responses(server, id):
    message = server.message("sends", steps(["later"], ["ticks"], ["final"]), id=id)
    call = server.stub.ModelStreamInfer(iter([message]), timeout=30)
    ticks = [next(call) for _ in range(3)]

    call.cancel()

    assert len(ticks) == 3
    [told, _] = outcomes(server, id)
    assert told.startswith("stopped after ")


def test_another_client_is_not_disturbed(server, id):
    message = server.message("sends", steps(["later"], ["wait"], ["final"]), id=id)
    call = server.stub.ModelStreamInfer(iter([message]), timeout=30)
    server.wait_for_log(f"waits with {id}")

    answer = server.stream("sends", steps(["is_cancelled"], ["last_value", 1]), id=f"{id}-other")
    call.cancel()

    assert [each.outputs for each in answer] == [{"VALUE": [1]}]
    assert outcomes(server, f"{id}-other") == [[False, False], None]
    assert outcomes(server, id)[0] == "the client is gone"


class TestInAQueue:
    """Requests to `patient` wait for ten seconds before they are executed."""

    def wait(self, server) -> None:
        server.wait_for(lambda: self.pending_count(server) == 1)

    @pytest.fixture
    def fails_alone(self, server):
        """One request is counted as cancelled, and nothing is executed."""
        before = self.counts(server)
        yield
        self.wait_for_one_failure(server, before)

    def wait_for_one_failure(self, server, before: tuple[int, int, int]) -> None:
        server.wait_for(lambda: self.counts(server) == (before[0] + 1, *before[1:]), "it is not cancelled")
        assert self.pending_count(server) == 0

    def pending_count(self, server) -> int:
        return server.metric("nv_inference_pending_request_count", "patient")

    def counts(self, server) -> tuple[int, int, int]:
        reason = {"reason": "CANCELED"}
        stats = server.statistics("patient")
        failures = server.metric("nv_inference_request_failure", "patient", **reason)
        return failures, stats["inference_stats"]["success"]["count"], stats["execution_count"]

    def test_a_call_is_cancelled(self, server, fails_alone):
        call = server.stub.ModelInfer.future(server.message("patient", {"IN": [[1]]}), timeout=30)
        self.wait(server)
        call.cancel()

    def test_a_call_s_deadline_passes(self, server):
        for deadline_s in DEADLINES_S:
            before = self.counts(server)
            message = server.message("patient", {"IN": [[1]]})
            call = server.stub.ModelInfer.future(message, timeout=deadline_s)
            place = server.wait_for(
                lambda call=call: "queue" if self.pending_count(server) else call.done() and "nowhere"
            )
            assert call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            if place == "queue":
                break

        self.wait_for_one_failure(server, before)

    def test_a_stream_is_cancelled(self, server, fails_alone):
        call = server.stub.ModelStreamInfer(iter([server.message("patient", {"IN": [[1]]})]), timeout=30)
        self.wait(server)
        call.cancel()

    @pytest.mark.ours("2.51 does not look at its HTTP clients")
    @pytest.mark.parametrize("path", ["infer", "generate", "generate_stream"])
    def test_an_http_client_hangs_up(self, server, fails_alone, path):
        body = json.dumps({"IN": 1})
        if path == "infer":
            tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}
            body = json.dumps({"inputs": [tensor]})
        head = f"POST /v2/models/patient/{path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.ports["http"])) as client:
            client.sendall((head + body).encode())
            self.wait(server)


@pytest.mark.ours("2.51 does not look at its HTTP clients")
def test_a_model_sees_that_its_http_client_has_gone(server, id):
    body = json.dumps(
        {
            "id": id,
            "inputs": [
                {
                    "name": "STEPS",
                    "datatype": "BYTES",
                    "shape": [1],
                    "data": [json.dumps([["wait"], ["last_value", 1]])],
                }
            ],
        }
    )
    head = f"POST /v2/models/sends_once/infer HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.ports["http"])) as client:
        client.sendall((head + body).encode())
        server.wait_for_log(f"waits with {id}")

    assert outcomes(server, id)[0] == "the client is gone"
