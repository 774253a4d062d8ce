"""Reflection: a client that knows nothing finds the services, their messages, and can call them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
]


@pytest.fixture
def pool(harness: Any) -> descriptor_pool.DescriptorPool:
    """What a client learns from the server."""
    return descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(harness.channel))


def test_all_services_are_listed(harness: Any) -> None:
    assert sorted(ProtoReflectionDescriptorDatabase(harness.channel).get_services()) == SERVICES


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_described(pool: descriptor_pool.DescriptorPool, service: str) -> None:
    described = pool.FindServiceByName(service)

    assert described.full_name == service
    assert described.methods


def test_a_client_calls_what_it_was_told_of(harness: Any, pool: descriptor_pool.DescriptorPool) -> None:
    method = pool.FindServiceByName("inference.GRPCInferenceService").methods_by_name["ModelMetadata"]
    request = GetMessageClass(method.input_type)(name="echo")
    call = harness.channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )

    answer = json_format.MessageToDict(call(request, timeout=20))

    assert (answer["name"], answer["versions"]) == ("echo", ["1", "3"])


def test_all_twenty_calls_are_described(pool: descriptor_pool.DescriptorPool) -> None:
    assert len(pool.FindServiceByName("inference.GRPCInferenceService").methods) == 20


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_both_versions_answer_alike(harness: Any, version: str) -> None:
    ask = harness.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    request = reflection_pb2.ServerReflectionRequest

    def requests() -> Iterator[Any]:
        yield request(file_containing_symbol="inference.GRPCInferenceService.ModelInfer")
        yield request(file_by_filename="model_config.proto")
        yield request(file_containing_symbol="no.such.Symbol")
        yield request(all_extension_numbers_of_type="inference.ModelInferRequest")
        yield request()

    by_symbol, by_name, unknown, extensions, nothing = ask(requests(), timeout=20)

    files = [
        descriptor_pb2.FileDescriptorProto.FromString(file)
        for file in by_symbol.file_descriptor_response.file_descriptor_proto
    ]
    assert [file.name for file in files] == ["grpc_service.proto", "model_config.proto"]
    assert by_name.file_descriptor_response.file_descriptor_proto[0] == files[1].SerializeToString()
    assert unknown.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert extensions.all_extension_numbers_response.base_type_name == "inference.ModelInferRequest"
    assert nothing.error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]


CLIENT = "import tritonclient.grpc"
STANDARD = "from grpc_health.v1 import health_pb2\nfrom grpc_reflection.v1alpha import reflection_pb2"
OURS = "import tritonpy.frontends.grpc.grpcio.server"


@pytest.mark.parametrize(
    "modules", [(CLIENT, STANDARD, OURS), (OURS, CLIENT, STANDARD), (STANDARD, OURS, CLIENT)]
)
def test_modules_of_clients_may_be_imported_in_any_order(modules: tuple[str, ...]) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", "\n".join(modules)], check=True, timeout=30)


def test_the_port_needs_no_generated_module() -> None:
    program = f"{OURS}\nimport sys\nprint(*(name for name in sys.modules if name.endswith('_pb2')))"

    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert set(loaded.stdout.split()) <= {"google.protobuf.descriptor_pb2"}  # which protobuf itself brings


@pytest.mark.parametrize(
    "symbol", ["grpc.reflection.v1alpha.ServerReflection", "grpc.health.v1.Health.Watch"]
)
def test_standard_services_are_described_without_their_packages(harness: Any, symbol: str) -> None:
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
    ask = harness.channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )

    [answer] = ask(iter([request]), timeout=20)

    assert answer.original_request == request
    [file] = answer.file_descriptor_response.file_descriptor_proto
    assert symbol.startswith(descriptor_pb2.FileDescriptorProto.FromString(file).package)
