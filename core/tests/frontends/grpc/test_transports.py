"""The choice between the two transports of gRPC."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from tritonpy.admission import Admission
from tritonpy.errors import InvalidArg
from tritonpy.frontends.grpc.transports import grpc_server
from tritonpy.frontends.services import FrontendServices
from tritonpy.options import GrpcTransport, ServerOptions
from tritonpy.shared_memory.registry import SharedMemoryRegions

from ..data_plane import FakeDataplane

pytest.importorskip("ngh2")


def chosen(transport: GrpcTransport) -> str:
    services = FrontendServices(Admission(0), SharedMemoryRegions(is_allowed=True))
    return type(grpc_server(FakeDataplane(), services, ServerOptions((), grpc_transport=transport))).__name__


@pytest.mark.parametrize(
    ("transport", "name"),
    [("auto", "NativeGrpcServer"), ("native", "NativeGrpcServer"), ("grpcio", "GrpcioServer")],
)
def test_auto_is_native_where_the_engine_is(
    transport: GrpcTransport, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tritonpy.grpc")

    assert chosen(transport) == name
    assert caplog.messages[-1].startswith(
        "gRPC transport: native, ngh2 " if name.startswith("Native") else "gRPC transport: grpcio "
    )


@pytest.mark.parametrize("lacks", ["module", "version"])
def test_auto_is_grpcio_elsewhere_and_says_why(
    lacks: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tritonpy.grpc")
    if lacks == "module":
        monkeypatch.setitem(sys.modules, "ngh2", None)
    else:
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.4.0")

    assert chosen("auto") == "GrpcioServer"
    assert "the distribution ngh2 " in caplog.messages[-1]
    with pytest.raises(InvalidArg, match=r"--grpc-transport=native: the distribution ngh2 .*grpc-native"):
        chosen("native")
