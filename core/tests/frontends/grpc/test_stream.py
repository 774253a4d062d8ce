"""ModelStreamInfer over a real socket."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client_library
import tritonclient.grpc.aio as aio_client_library
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

from .streams import FINAL, Stream, deliver, described, numbers

EMPTY_FINAL = {"triton_enable_empty_final_response": {"bool_param": True}}


def test_one_response_per_request_says_it_is_final(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request(id="a"), make_request(id="b"))
    stream.half_close()

    responses = stream.rest()

    assert [described(response) for response in responses] == [
        ("", "a", "echo", True),
        ("", "b", "echo", True),
    ]
    assert responses[0].infer_response.model_version == "3"
    assert responses[0].infer_response.raw_output_contents[0] == bytes(8)


def test_responses_leave_in_the_order_of_their_requests(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="slow"), make_request(id="quick"), make_request("nope", id="bad"))
    stream.send(make_request("manual", id="last"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "last", numbers(2))
    deliver(harness, "slow", numbers(1))
    stream.half_close()

    assert [described(response)[:2] for response in stream.rest()] == [
        ("", "slow"),
        ("", "quick"),
        ("Request for unknown model: 'nope' is not found", "bad"),
        ("", "last"),
    ]


def test_decoupled_responses_do_not_wait_in_line(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="slow"), make_request("decoupled", id="d"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "d", numbers(1), final=False)
    first = described(stream.receive())
    deliver(harness, "slow", numbers(2))
    second = described(stream.receive())
    deliver(harness, "d", numbers(3))
    third = described(stream.receive())

    assert first == ("", "d", "decoupled", False)
    assert second == ("", "slow", "manual", True)
    assert third == ("", "d", "decoupled", True)


def test_line_does_not_wait_for_decoupled_requests(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("decoupled", id="d"), make_request(id="quick"))

    assert described(stream.receive()) == ("", "quick", "echo", True)


@pytest.mark.parametrize("responses", [0, 2])
def test_lone_final_flag_is_not_sent(
    harness: Any, stream: Stream, make_request: Callable[..., Any], responses: int
) -> None:
    stream.send(make_request("decoupled", id="d"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "d", *[numbers(1)] * responses, None)

    assert [described(response)[3] for response in stream.rest()] == [False] * responses


def test_lone_final_flag_is_sent_to_clients_that_want_it(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("decoupled", id="d", parameters=EMPTY_FINAL))
    stream.send(make_request("decoupled", id="e", parameters=EMPTY_FINAL, model_version="3"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "d", numbers(1), None)
    deliver(harness, "e", None)

    responses = stream.rest()

    assert [described(response) for response in responses] == [
        ("", "d", "decoupled", False),
        ("", "d", "decoupled", True),
        ("", "e", "decoupled", True),
    ]
    assert not responses[1].infer_response.outputs
    assert [response.infer_response.model_version for response in responses] == ["3", "", "3"]


def test_empty_final_response_is_no_matter_to_models_that_answer_once(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request(id="a", parameters=EMPTY_FINAL))
    stream.half_close()

    assert [described(response) for response in stream.rest()] == [("", "a", "echo", True)]


def test_error_of_a_model_is_a_message_and_the_stream_goes_on(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("fails", id="f"), make_request(id="next"))
    stream.half_close()

    assert [described(response) for response in stream.rest()] == [
        ("the model says no", "f", "fails", True),
        ("", "next", "echo", True),
    ]


def test_error_in_the_middle_of_decoupled_responses_is_not_final(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("decoupled", id="d"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "d", numbers(1), InferResponse(error=InvalidArg("no")), numbers(2), None)

    assert [described(response) for response in stream.rest()] == [
        ("", "d", "decoupled", False),
        ("no", "d", "decoupled", False),
        ("", "d", "decoupled", False),
    ]


def test_refused_request_is_a_message_with_its_id_alone(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    no_data = make_request(id="n")
    del no_data.raw_input_contents[:]
    stream.send(no_data, make_request("crash", id="c"), make_request("echo", id="next"))
    stream.half_close()

    assert [described(response) for response in stream.rest()] == [
        ("unable to find data for input tensor 'INPUT0' for model 'echo' in request.", "n", "", None),
        ("RuntimeError: boom", "c", "", None),
        ("", "next", "echo", True),
    ]


def test_refused_request_to_a_decoupled_model_does_not_wait_in_line(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    no_data = make_request("decoupled", id="n")
    del no_data.raw_input_contents[:]
    stream.send(make_request("manual", id="slow"), no_data)

    assert described(stream.receive())[1] == "n"


def test_bytes_that_are_no_message_cost_one_error(harness: Any, make_request: Callable[..., Any]) -> None:
    call = harness.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
    bodies = [make_request(id="a").SerializeToString(), b"\xff\xff", make_request(id="b").SerializeToString()]

    responses = [
        client_library.service_pb2.ModelStreamInferResponse.FromString(body)
        for body in call(iter(bodies), timeout=20)
    ]

    assert [described(response)[:2] for response in responses] == [
        ("", "a"),
        ("Unable to parse request", ""),
        ("", "b"),
    ]


def test_model_that_sends_no_response_is_an_error(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="m"), make_request(id="next"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "m", None)

    assert described(stream.receive())[0] == "[request id: m] model 'manual' sent no response"
    assert described(stream.receive())[1] == "next"


def test_response_and_final_flag_may_come_apart(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="m"), make_request(id="next"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "m", numbers(1), None)

    assert [described(response)[1] for response in stream.rest()] == ["m", "next"]


def test_response_that_cannot_be_written_is_an_error(
    harness: Any, stream: Stream, make_request: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    stream.send(make_request("manual", id="m"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    deliver(harness, "m", InferResponse([Tensor("OUTPUT0", "FP32", [1], None)]))  # type: ignore[arg-type]

    message, id, _, final = described(stream.receive())
    assert (id, final) == ("m", True)
    assert "Error" in message
    assert "Traceback" in caplog.text


def test_half_close_waits_for_open_requests(
    harness: Any, stream: Stream, make_request: Callable[..., Any]
) -> None:
    stream.send(make_request("manual", id="m"), make_request("decoupled", id="d"))
    stream.half_close()
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "m", numbers(1))
    first = described(stream.receive())[1]
    deliver(harness, "d", numbers(1))

    assert first == "m"
    assert [described(response)[1] for response in stream.rest()] == ["d"]
    assert stream.call.code() is grpc.StatusCode.OK


def test_stream_without_requests_ends_ok(stream: Stream) -> None:
    stream.half_close()

    assert stream.rest() == []


GRPC_ERROR = (("triton_grpc_error", "true"),)


def test_error_of_a_model_ends_the_stream_of_clients_that_want_so(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    stream = Stream(harness.stub, metadata=GRPC_ERROR)
    stream.send(make_request("decoupled", id="d"), make_request("manual", id="m"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "d", numbers(1), InferResponse(error=NotFound("gone")), final=False)

    assert described(stream.receive())[1] == "d"
    with pytest.raises(grpc.RpcError) as ended:
        stream.receive()
    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.NOT_FOUND, "gone")
    harness.dataplane.wait_for(lambda plane: sorted(plane.cancelled) == ["d", "m"])
    stream.half_close()


def test_the_status_of_such_a_stream_does_not_wait_for_requests_before_it(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    stream = Stream(harness.stub, metadata=GRPC_ERROR)
    stream.send(make_request("manual", id="slow"), make_request("manual", id="bad"))
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 2)
    deliver(harness, "bad", InferResponse(error=NotFound("gone")))

    with pytest.raises(grpc.RpcError) as ended:
        stream.receive()

    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.NOT_FOUND, "gone")
    harness.dataplane.wait_for(lambda plane: plane.cancelled == ["slow"])
    stream.half_close()


def test_refusals_stay_messages_for_clients_that_want_statuses(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    stream = Stream(harness.stub, metadata=GRPC_ERROR)
    stream.send(make_request("nope", id="n"), make_request(id="next"))
    stream.half_close()

    assert [described(response)[1] for response in stream.rest()] == ["n", "next"]


def test_tritonclient_streams_a_decoupled_model(harness: Any) -> None:
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    array = np.array([1, 2], np.float32)
    tensor = client_library.InferInput("INPUT0", [2], "FP32")
    tensor.set_data_from_numpy(array)

    with client_library.InferenceServerClient(harness.url) as client:
        client.start_stream(lambda result, error: received.put((result, error)))
        client.async_stream_infer("decoupled", [tensor], request_id="d", enable_empty_final_response=True)
        harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
        deliver(harness, "d", numbers(1), numbers(2), None)
        results = [received.get(timeout=20) for _ in range(3)]
        client.async_stream_infer("nope", [tensor])
        _, error = received.get(timeout=20)
        client.stop_stream()

    assert [list(result.as_numpy("OUTPUT0")) for result, _ in results[:2]] == [[1], [2]]
    assert results[2][0].get_response().parameters[FINAL].bool_param
    assert error.message() == "Request for unknown model: 'nope' is not found"


def test_asyncio_client_streams(harness: Any) -> None:
    tensor = aio_client_library.InferInput("INPUT0", [2], "FP32")
    tensor.set_data_from_numpy(np.array([1, 2], np.float32))

    async def ask() -> list[Any]:
        async def requests() -> Any:
            for index in range(10):
                yield {"model_name": "echo", "inputs": [tensor], "request_id": str(index)}

        async with aio_client_library.InferenceServerClient(harness.url) as client:
            return [result async for result in client.stream_infer(requests())]

    results = harness.run(ask())

    assert [result.get_response().id for result, _ in results] == [str(index) for index in range(10)]
    assert all(error is None for _, error in results)
