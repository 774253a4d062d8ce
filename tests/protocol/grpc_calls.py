"""Good and bad calls of the gRPC port, written as bytes: each transport has to answer them alike."""

from __future__ import annotations

import base64
import gzip
import zlib
from typing import Any

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import service_pb2

from .h2_caller import Ask, framed, with_headers

SERVICE = "/inference.GRPCInferenceService/"
HEALTH = "/grpc.health.v1.Health/"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def infer(model: str, values: bytes, shape: int | None = None, **more: Any) -> bytes:
    """A request of a model whose input `INPUT0` are so many bytes."""
    message = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[values], **more)
    message.inputs.add(name="INPUT0", datatype="UINT8", shape=[len(values) if shape is None else shape])
    serialized: bytes = message.SerializeToString()
    return serialized


def unary(name: str, message: bytes = b"", **more: Any) -> Ask:
    return Ask(SERVICE + name, framed(message), **more)


def _with(*headers: tuple[str, str], without: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"headers": with_headers(*headers, without=without)}


def _named(name: str) -> bytes:
    serialized: bytes = service_pb2.ModelMetadataRequest(name=name).SerializeToString()
    return serialized


ECHO = infer("echo", b"12345")
LONG = infer("echo", b"x" * 200_000)
STREAMED = framed(ECHO) + framed(infer("nope", b"1")) + framed(infer("echo", b"12", 3))

CASES: dict[str, Ask] = {
    # What is right.
    "an inference": unary("ModelInfer", ECHO),
    "with an id": unary("ModelInfer", infer("echo", b"1", id="mine")),
    "of much": unary("ModelInfer", LONG),
    "ended by an empty frame": unary("ModelInfer", ECHO, ends="empty"),
    "all other calls": unary("ServerMetadata"),
    "of metadata": unary("ModelMetadata", _named("echo")),
    "of a message without a byte": unary("ServerLive"),
    "a stream": Ask(f"{SERVICE}ModelStreamInfer", STREAMED),
    "a stream of nothing": Ask(f"{SERVICE}ModelStreamInfer", ends="with headers"),
    "a stream of nothing, ended by an empty frame": Ask(f"{SERVICE}ModelStreamInfer", ends="empty"),
    "a stream that wants statuses": Ask(
        f"{SERVICE}ModelStreamInfer", framed(infer("fails", b"1")), **_with(("triton_grpc_error", "true"))
    ),
    "health": Ask(f"{HEALTH}Check", framed(b"")),
    "health of a model": Ask(
        f"{HEALTH}Check", framed(health_pb2.HealthCheckRequest(service="echo").SerializeToString())
    ),
    "health of what is not there": Ask(
        f"{HEALTH}Check", framed(health_pb2.HealthCheckRequest(service="nope").SerializeToString())
    ),
    "reflection": Ask(
        REFLECTION,
        framed(reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString())
        + framed(reflection_pb2.ServerReflectionRequest(file_by_filename="nope").SerializeToString()),
    ),
    # Headers.
    "content-type with a codec": unary(
        "ModelInfer", ECHO, **_with(("content-type", "application/grpc+proto"))
    ),
    "content-type with a parameter": unary(
        "ModelInfer", ECHO, **_with(("content-type", "application/grpc;charset=utf-8"))
    ),
    "content-type of something else": unary(
        "ModelInfer", ECHO, **_with(("content-type", "application/json"))
    ),
    "content-type that only begins alike": unary(
        "ModelInfer", ECHO, **_with(("content-type", "application/grpcurl"))
    ),
    "content-type of gRPC for browsers": unary(
        "ModelInfer", ECHO, **_with(("content-type", "application/grpc-web"))
    ),
    "no content-type": unary("ModelInfer", ECHO, **_with(without=("content-type",))),
    "no te": unary("ModelInfer", ECHO, **_with(without=("te",))),
    "te of something else": unary("ModelInfer", ECHO, **_with(("te", "gzip"))),
    "GET": unary("ModelInfer", ECHO, method="GET"),
    "PUT": unary("ModelInfer", ECHO, method="PUT"),
    "a user agent": unary("ModelInfer", ECHO, **_with(("user-agent", "grpc-test/1"))),
    "metadata": unary("ModelInfer", infer("parameters", b"1"), **_with(("x-a", "1"), ("x-b", "two words"))),
    "metadata twice": unary("ModelInfer", infer("parameters", b"1"), **_with(("x-a", "1"), ("x-a", "2"))),
    "metadata that is empty": unary("ModelInfer", infer("parameters", b"1"), **_with(("x-a", ""))),
    "binary metadata": unary(
        "ModelInfer",
        infer("parameters", b"1"),
        **_with(("x-a-bin", base64.b64encode(b"text").decode().rstrip("="))),
    ),
    "binary metadata, padded": unary(
        "ModelInfer", infer("parameters", b"1"), **_with(("x-a-bin", base64.b64encode(b"text").decode()))
    ),
    "binary metadata, a list": unary(
        "ModelInfer", infer("parameters", b"1"), **_with(("x-a-bin", "dGV4dA,dGV4dA"))
    ),
    "binary metadata that is none": unary(
        "ModelInfer", infer("parameters", b"1"), **_with(("x-a-bin", "not base64!"))
    ),
    "binary metadata that is no text": unary(
        "ModelInfer", infer("parameters", b"1"), **_with(("x-a-bin", base64.b64encode(b"\xff\xfe").decode()))
    ),
    "reserved metadata": unary("ModelInfer", infer("parameters", b"1"), **_with(("grpc-x-a", "1"))),
    "metadata of 7 KiB": unary("ModelInfer", ECHO, **_with(("x-long", "x" * 7_000))),
    "metadata of 32 KiB": unary("ModelInfer", ECHO, **_with(("x-long", "x" * 32_000))),
    # Paths.
    "an unknown call": unary("NoSuchCall"),
    "an unknown service": Ask("/no.such.Service/Call", framed(b"")),
    "a path without a call": Ask("/nothing", framed(b"")),
    "a path of another case": unary("modelinfer", ECHO),
    "a path with a query": unary("ModelInfer?x=1", ECHO),
    "an empty path": Ask("", framed(b"")),
    # Errors of the server.
    "an unknown model": unary("ModelInfer", infer("nope", b"1")),
    "an unknown model beyond ASCII": unary("ModelInfer", infer("fäils 100% ✓", b"1")),
    "an unknown model with a line break": unary("ModelMetadata", _named("a\nb\tc")),
    "an unknown model with a very long name": unary("ModelMetadata", _named("x" * 20_000)),
    "a shape that does not fit": unary("ModelInfer", infer("echo", b"12", 3)),
    "an error of the model": unary("ModelInfer", infer("fails", b"1")),
    "a decoupled model": unary("ModelInfer", infer("each", b"1")),
    "bytes that are no message": unary("ModelInfer", b"\xff\xff\xff\xff"),
    "bytes that are no message, of another call": unary("ModelMetadata", b"\xff\xff\xff\xff"),
    "a restricted call": unary("RepositoryIndex"),
    "a restricted call with its key": unary("RepositoryIndex", **_with(("triton-grpc-protocol-key", "open"))),
    # Framing.
    "no message": Ask(f"{SERVICE}ModelInfer", ends="with headers"),
    "no message, ended by an empty frame": Ask(f"{SERVICE}ModelInfer", ends="empty"),
    "two messages": Ask(f"{SERVICE}ModelInfer", framed(ECHO) + framed(ECHO)),
    "half a message": Ask(f"{SERVICE}ModelInfer", framed(ECHO)[:-3]),
    "half a head": Ask(f"{SERVICE}ModelInfer", framed(ECHO)[:3]),
    "a whole message and half a head": Ask(f"{SERVICE}ModelInfer", framed(ECHO) + b"\x00\x00"),
    "half a message in a stream": Ask(f"{SERVICE}ModelStreamInfer", framed(ECHO) + framed(ECHO)[:-3]),
    "bytes that are no message in a stream": Ask(f"{SERVICE}ModelStreamInfer", framed(b"\xff\xff\xff")),
    "a flag of its own": Ask(f"{SERVICE}ModelInfer", framed(ECHO, 2)),
    # Compression.
    "gzip": Ask(f"{SERVICE}ModelInfer", framed(gzip.compress(LONG), 1), **_with(("grpc-encoding", "gzip"))),
    "deflate": Ask(
        f"{SERVICE}ModelInfer", framed(zlib.compress(LONG), 1), **_with(("grpc-encoding", "deflate"))
    ),
    "identity": unary("ModelInfer", ECHO, **_with(("grpc-encoding", "identity"))),
    "gzip, but not this message": unary("ModelInfer", ECHO, **_with(("grpc-encoding", "gzip"))),
    "compressed with identity": Ask(
        f"{SERVICE}ModelInfer", framed(ECHO, 1), **_with(("grpc-encoding", "identity"))
    ),
    "compressed without saying how": Ask(f"{SERVICE}ModelInfer", framed(gzip.compress(ECHO), 1)),
    "compressed as nobody can": Ask(
        f"{SERVICE}ModelInfer", framed(ECHO, 1), **_with(("grpc-encoding", "snappy"))
    ),
    "compressed and broken": Ask(
        f"{SERVICE}ModelInfer",
        framed(gzip.compress(LONG)[:-20] + bytes(20), 1),
        **_with(("grpc-encoding", "gzip")),
    ),
    "compressed and no gzip": Ask(
        f"{SERVICE}ModelInfer", framed(ECHO, 1), **_with(("grpc-encoding", "gzip"))
    ),
    "metadata, compressed": Ask(
        f"{SERVICE}ModelMetadata",
        framed(gzip.compress(_named("echo")), 1),
        **_with(("grpc-encoding", "gzip")),
    ),
    "who reads gzip": unary("ModelInfer", LONG, **_with(("grpc-accept-encoding", "identity, deflate, gzip"))),
    "who reads what nobody writes": unary("ModelInfer", LONG, **_with(("grpc-accept-encoding", "snappy"))),
    "a stream, compressed": Ask(
        f"{SERVICE}ModelStreamInfer",
        framed(gzip.compress(ECHO), 1) + framed(ECHO),
        **_with(("grpc-encoding", "gzip")),
    ),
    # Deadlines.
    "a timeout that is long": unary("ModelInfer", ECHO, **_with(("grpc-timeout", "99999999H"))),
    **{
        f"a timeout in {unit}": unary("ModelInfer", ECHO, **_with(("grpc-timeout", f"{number}{unit}")))
        for unit, number in (
            ("H", 1),
            ("M", 1),
            ("S", 60),
            ("m", 60_000),
            ("u", 60_000_000),
            ("n", 99_999_999),
        )
        if unit != "n"
    },
    "a timeout that is over": unary("ModelInfer", infer("slow", b"1"), **_with(("grpc-timeout", "50m"))),
    "a timeout of nothing": unary("ModelInfer", infer("slow", b"1"), **_with(("grpc-timeout", "0m"))),
    "a timeout without a unit": unary("ModelInfer", ECHO, **_with(("grpc-timeout", "60"))),
    "a timeout of an unknown unit": unary("ModelInfer", ECHO, **_with(("grpc-timeout", "60x"))),
    "a timeout that is no number": unary("ModelInfer", ECHO, **_with(("grpc-timeout", "soon"))),
    "a timeout of nine digits": unary("ModelInfer", ECHO, **_with(("grpc-timeout", "999999999m"))),
    "a timeout below zero": unary("ModelInfer", ECHO, **_with(("grpc-timeout", "-1S"))),
    "a stream whose timeout is over": Ask(
        f"{SERVICE}ModelStreamInfer", framed(infer("slow", b"1")), **_with(("grpc-timeout", "50m"))
    ),
    "a stream that its client leaves open": Ask(
        f"{SERVICE}ModelStreamInfer", framed(ECHO), ends="never", **_with(("grpc-timeout", "300m"))
    ),
}
