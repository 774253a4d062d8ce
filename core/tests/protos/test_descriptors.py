"""The committed descriptors are built from our sources and say what Triton's say."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorSet
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

CORE = Path(__file__).resolve().parents[2]
PROTOS = CORE / "src" / "tritonpy" / "protos"

Fact = tuple[object, ...]


def committed() -> FileDescriptorSet:
    return FileDescriptorSet.FromString((PROTOS / "descriptors.binpb").read_bytes())


def enum_facts(enum: EnumDescriptorProto, prefix: str) -> Iterator[tuple[str, Fact]]:
    for value in enum.value:
        yield f"{prefix}.{enum.name}.{value.name}", ("value", value.number)


def message_facts(message: DescriptorProto, prefix: str) -> Iterator[tuple[str, Fact]]:
    path = f"{prefix}.{message.name}"
    yield path, ("message", message.options.map_entry)
    for field in message.field:
        oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
        yield (
            f"{path}.{field.name}",
            (field.number, field.type, field.label, field.type_name, oneof, field.proto3_optional),
        )
    for enum in message.enum_type:
        yield from enum_facts(enum, path)
    for nested in message.nested_type:
        yield from message_facts(nested, path)


def facts(files: FileDescriptorSet) -> dict[str, Fact]:
    """Everything that decides about names and bytes: one entry per message, field, enum value and call."""
    found: dict[str, Fact] = {}
    for file in files.file:
        found[file.name] = (file.package, file.syntax, tuple(file.dependency))
        for message in file.message_type:
            found.update(message_facts(message, file.package))
        for enum in file.enum_type:
            found.update(enum_facts(enum, file.package))
        for service in file.service:
            for method in service.method:
                found[f"{file.package}.{service.name}.{method.name}"] = (
                    method.input_type,
                    method.output_type,
                    method.client_streaming,
                    method.server_streaming,
                )
    return found


def field_order(files: FileDescriptorSet, message: str) -> list[str]:
    return next(
        [field.name for field in found.field]
        for file in files.file
        for found in file.message_type
        if found.name == message
    )


def test_every_name_number_and_type_is_tritons() -> None:
    modules = pytest.importorskip("tritonclient.grpc")
    theirs = FileDescriptorSet()
    modules.model_config_pb2.DESCRIPTOR.CopyToProto(theirs.file.add())
    modules.service_pb2.DESCRIPTOR.CopyToProto(theirs.file.add())

    ours = committed()
    del ours.file[2:]  # the standard services of gRPC

    assert len(facts(ours)) > 400
    assert facts(ours) == facts(theirs)


def test_the_standard_services_are_described_as_grpc_describes_them() -> None:
    theirs = FileDescriptorSet()
    for module in (health_pb2, reflection_pb2):
        module.DESCRIPTOR.CopyToProto(theirs.file.add())
    ours = FileDescriptorSet(file=committed().file[2:])
    for file, named in zip(ours.file, theirs.file, strict=True):
        file.name = named.name

    described = str(facts(ours)).replace("grpc.reflection.v1", "grpc.reflection.v1alpha")  # its successor

    assert len(facts(ours)) > 30
    assert described == str(facts(theirs))


def test_the_service_has_twenty_calls() -> None:
    service = committed().file[1].service[0]

    assert service.name == "GRPCInferenceService"
    assert len(service.method) == 20


def test_configuration_fields_stand_in_the_order_in_which_they_are_printed() -> None:
    assert field_order(committed(), "ModelConfig") == [
        "name",
        "platform",
        "backend",
        "runtime",
        "version_policy",
        "max_batch_size",
        "input",
        "output",
        "batch_input",
        "batch_output",
        "optimization",
        "dynamic_batching",
        "sequence_batching",
        "ensemble_scheduling",
        "instance_group",
        "default_model_filename",
        "cc_model_filenames",
        "metric_tags",
        "parameters",
        "model_warmup",
        "model_operations",
        "model_transaction_policy",
        "model_repository_agents",
        "response_cache",
        "model_metrics",
    ]


def test_building_again_gives_the_committed_descriptors_and_stub(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    script = CORE / "build_protos.py"

    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)

    rebuilt = FileDescriptorSet.FromString((tmp_path / "descriptors.binpb").read_bytes())
    assert rebuilt == committed(), "run `make protos` and commit what it wrote"
    assert (tmp_path / "messages.pyi").read_text() == (PROTOS / "messages.pyi").read_text()


def test_stubs_name_messages_of_any_package_without_it(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    build = runpy.run_path(str(CORE / "build_protos.py"))["build"]
    (tmp_path / "own.proto").write_text(
        'syntax = "proto3"; package other.deep.v1; message Part {} message Whole { repeated Part parts = 1; }'
    )

    build(tmp_path, tmp_path, ("own.proto",))

    assert "RepeatedCompositeFieldContainer[Part]" in (tmp_path / "messages.pyi").read_text()


def test_a_source_that_does_not_compile_ends_the_build(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    build = runpy.run_path(str(CORE / "build_protos.py"))
    (tmp_path / "model_config.proto").write_text("nonsense")
    (tmp_path / "grpc_service.proto").write_text("nonsense")
    build["compile_descriptors"].__globals__["PROTOS"] = tmp_path

    with pytest.raises(SystemExit, match="protoc failed"):
        build["compile_descriptors"](tmp_path / "out.binpb")
