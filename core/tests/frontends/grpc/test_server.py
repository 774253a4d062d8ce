"""Listening, stopping, and the calls that describe."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from tritonclient.grpc import InferenceServerClient, service_pb2
from tritonpy.errors import NotFound, Unavailable
from tritonpy.protos import rpc_methods
from tritonpy_sdk.testing import until

SERVICE = "/inference.GRPCInferenceService/"


def test_port_zero_is_replaced_by_the_port_that_is_bound(harness: Any) -> None:
    assert harness.port > 0
    with socket.create_connection(("127.0.0.1", harness.port)):
        pass


def test_port_that_is_taken_is_refused_by_name(harness: Any) -> None:
    async def start() -> None:
        await harness.new_server(port=harness.port).start()

    with pytest.raises(Unavailable, match=rf"Socket '127.0.0.1:{harness.port}' already in use"):
        harness.run(start())


def test_ipv6_address_can_be_listened_on(harness: Any) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")

    async def start() -> Any:
        server = harness.new_server("::1")
        await server.start()
        return server

    server = harness.run(start())
    with InferenceServerClient(f"[::1]:{server.port}") as client:
        alive = client.is_server_live()
    harness.run(server.stop(0))

    assert alive


def test_tritonclient_reads_all_descriptions(harness: Any) -> None:
    with InferenceServerClient(harness.url) as client:
        live, ready = client.is_server_live(), client.is_server_ready()
        known, unknown = client.is_model_ready("echo"), client.is_model_ready("nope")
        server = client.get_server_metadata(as_json=True)
        model = client.get_model_metadata("echo")
        statistics = client.get_inference_statistics("echo").model_stats[0]

    assert (live, ready, known, unknown) == (True, True, True, False)
    assert server == {"name": "triton", "version": "1.2.3", "extensions": ["statistics"]}
    assert list(model.versions) == ["1", "3"]
    assert list(model.inputs[0].shape) == [-1, 4]
    assert model.outputs[0].datatype == "FP32"
    assert statistics.last_inference == 1_700_000_000_000
    assert statistics.inference_stats.success.ns == 5_000_000_000_000
    assert statistics.batch_stats[0].batch_size == 1
    assert statistics.response_stats["0"].success.count == 2


def test_configuration_arrives_as_a_message(harness: Any) -> None:
    harness.dataplane.config = {
        "name": "echo",
        "max_batch_size": 8,
        "version_policy": {"specific": {"versions": [1, 3]}},
        "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [-1, 4]}],
        "instance_group": [{"name": "echo_0", "kind": "KIND_CPU", "count": 2}],
        "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100},
        "parameters": {"key": {"string_value": "value"}},
    }

    with InferenceServerClient(harness.url) as client:
        config = client.get_model_config("echo").config

    assert list(config.version_policy.specific.versions) == [1, 3]
    assert list(config.input[0].dims) == [-1, 4]
    assert config.instance_group[0].count == 2
    assert config.dynamic_batching.max_queue_delay_microseconds == 100
    assert config.parameters["key"].string_value == "value"


def test_errors_of_the_data_plane_become_statuses(harness: Any) -> None:
    for call in ("ModelMetadata", "ModelConfig"):
        with pytest.raises(grpc.RpcError) as refused:
            getattr(harness.stub, call)(getattr(service_pb2, f"{call}Request")(name="nope"), timeout=20)

        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert refused.value.details() == "Request for unknown model: 'nope' is not found"


def test_broken_data_plane_becomes_internal_without_a_stack_trace(
    harness: Any, caplog: pytest.LogCaptureFixture
) -> None:
    harness.dataplane.config = {"no_such_field": 1}

    with pytest.raises(grpc.RpcError) as refused:
        harness.stub.ModelConfig(service_pb2.ModelConfigRequest(name="echo"), timeout=20)

    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert "no_such_field" in refused.value.details()
    assert "Traceback" not in refused.value.details()
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata"])
@pytest.mark.parametrize("body", [b"\xff\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x0a\x7f"])
def test_bytes_that_are_no_message_are_refused(harness: Any, method: str, body: bytes) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        harness.channel.unary_unary(SERVICE + method)(body, timeout=20)

    assert refused.value.code() is grpc.StatusCode.INTERNAL
    assert refused.value.details() == "Unable to parse request"


def ended(call: Callable[..., Any], *arguments: Any) -> tuple[grpc.StatusCode, str]:
    try:
        call(*arguments, timeout=20)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return grpc.StatusCode.OK, ""


def test_all_twenty_calls_are_answered(harness: Any) -> None:
    missing = {}
    for method in rpc_methods():
        if method.name == "ModelStreamInfer":
            assert list(harness.stub.ModelStreamInfer(iter([]), timeout=20)) == []
            continue
        request = getattr(service_pb2, f"{method.name}Request")
        fields = {"model_name", "name"} & set(request.DESCRIPTOR.fields_by_name)
        code, text = ended(getattr(harness.stub, method.name), request(**dict.fromkeys(fields, "echo")))
        if code is grpc.StatusCode.UNIMPLEMENTED:
            missing[method.name] = text

    assert missing == {}
    assert len(rpc_methods()) == 20


@pytest.mark.parametrize("name", [SERVICE + "NoSuchCall", "/no.such.Service/ModelInfer", "/nothing"])
def test_calls_that_are_not_there_are_unimplemented(harness: Any, name: str) -> None:
    assert ended(harness.channel.unary_unary(name), b"")[0] is grpc.StatusCode.UNIMPLEMENTED


def test_stop_answers_what_is_in_flight_and_refuses_what_is_new(
    harness: Any, make_request: Callable[..., Any]
) -> None:
    answer = harness.stub.ModelInfer.future(make_request("manual"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)

    stopped = asyncio.run_coroutine_threadsafe(harness.server.stop(20), harness.loop)
    harness.call(lambda: None)  # the stop has begun
    with pytest.raises(grpc.RpcError) as refused:
        harness.stub.ModelInfer(make_request(), timeout=20)
    with pytest.raises(grpc.RpcError) as stream_refused:
        list(harness.stub.ModelStreamInfer(iter([make_request()]), timeout=20))
    live = harness.stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=20).live
    harness.call(lambda: harness.dataplane.requests.pop().fail(NotFound("late but answered")))

    for error in (refused.value, stream_refused.value):
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert error.details() == "GRPC server is shutting down and has stopped accepting new requests."
    assert live
    assert answer.exception(20).details() == "late but answered"
    stopped.result(20)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", harness.port))


def test_a_server_that_shares_its_port_leaves_newcomers_to_others_as_soon_as_it_stops(
    start_harness: Callable[..., Any], make_request: Callable[..., Any], transport: str
) -> None:
    if transport != "native":
        pytest.skip("grpcio closes the port last")
    harness = start_harness(grpc_reuse_port=True)
    answer = harness.stub.ModelInfer.future(make_request("manual"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)
    waiting: list[socket.socket] = []

    async def stop_over_a_connection() -> None:
        waiting.append(
            socket.create_connection(("127.0.0.1", harness.port))
        )  # the loop is here, and so accepts nothing
        await harness.server.stop(20)

    def is_refused() -> bool:
        try:
            socket.create_connection(("127.0.0.1", harness.port)).close()
        except ConnectionRefusedError:
            return True
        return False

    stopped = asyncio.run_coroutine_threadsafe(stop_over_a_connection(), harness.loop)
    until(is_refused)
    waiting[0].settimeout(20)
    greeted = waiting[0].recv(9)
    harness.call(lambda: harness.dataplane.requests.pop().fail(NotFound("late but answered")))

    assert answer.exception(20).details() == "late but answered"
    assert greeted[3:4] == b"\x04"  # SETTINGS of HTTP/2: it was accepted, not reset
    stopped.result(20)
    waiting[0].close()


def test_stop_cancels_what_does_not_end_in_time(harness: Any, make_request: Callable[..., Any]) -> None:
    answer = harness.stub.ModelInfer.future(make_request("manual", id="slow"), timeout=20)
    harness.dataplane.wait_for(lambda plane: len(plane.requests) == 1)

    harness.run(harness.server.stop(0.05))

    assert answer.exception(20).code() is grpc.StatusCode.UNAVAILABLE
    harness.dataplane.wait_for(lambda plane: plane.cancelled == ["slow"])


def test_stop_of_an_idle_server_is_immediate(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonpy.frontends.grpc.grpcio.server._LAST_BYTES_S", 3600)
    harness.run(asyncio.wait_for(harness.server.stop(3600), 20))


def test_server_that_never_started_can_be_stopped(harness: Any) -> None:
    harness.run(harness.new_server().stop(1))


def test_two_servers_live_in_one_process(
    start_harness: Callable[..., Any], make_request: Callable[..., Any]
) -> None:
    first, second = start_harness(), start_harness()
    answers: list[Any] = []

    def ask(harness: Any) -> None:
        answers.extend(harness.stub.ModelInfer(make_request(), timeout=20) for _ in range(20))

    threads = [threading.Thread(target=ask, args=(harness,)) for harness in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(answers) == 40
