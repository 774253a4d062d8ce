"""Every option of the gRPC port reaches it."""

from __future__ import annotations

from tritonpy.frontends.grpc.settings import GrpcSettings, Keepalive, grpc_settings
from tritonpy.frontends.restriction import Restriction
from tritonpy.options import ServerOptions


def test_every_option_of_grpc_arrives_in_its_place() -> None:
    options = ServerOptions(
        (),
        grpc_address="address",
        grpc_port=1,
        grpc_reuse_port=True,
        grpc_header_forward_pattern="pattern",
        grpc_restricted_protocols=((("health", "trace"), "key", "value"),),
        grpc_use_ssl=True,
        grpc_use_ssl_mutual=True,
        grpc_server_cert="certificate",
        grpc_server_key="key",
        grpc_root_cert="root",
        grpc_compression_level="high",
        grpc_keepalive_time_ms=11,
        grpc_keepalive_timeout_ms=12,
        grpc_keepalive_permit_without_calls=True,
        grpc_http2_max_pings_without_data=13,
        grpc_http2_min_recv_ping_interval_without_data_ms=14,
        grpc_http2_max_ping_strikes=15,
        grpc_max_connection_age_ms=16,
        grpc_max_connection_age_grace_ms=17,
    )

    assert grpc_settings(options) == GrpcSettings(
        address="address",
        port=1,
        reuse_port=True,
        header_forward_pattern="pattern",
        restrictions=(Restriction(frozenset({"health", "trace"}), "key", "value"),),
        use_ssl=True,
        use_ssl_mutual=True,
        certificate_path="certificate",
        key_path="key",
        root_path="root",
        compression_level="high",
        keepalive=Keepalive(11, 12, True, 13, 14, 15, 16, 17),
    )


def test_defaults_are_tritons() -> None:
    settings = grpc_settings(ServerOptions(()))

    assert settings == GrpcSettings()
    assert settings.keepalive == Keepalive(7_200_000, 20_000, False, 2, 300_000, 2, 0, 0)
