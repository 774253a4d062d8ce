"""What the gRPC port is told."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.flow import DEFAULT_LIMITS, FlowLimits
from tritonpy.frontends.restriction import Restriction
from tritonpy.frontends.settings import flow_limits, restrictions
from tritonpy.options import CompressionLevel, ServerOptions


@dataclass(frozen=True, slots=True)
class Keepalive:
    """How connections are kept alive; durations in milliseconds.

    Attributes:
        time_ms: after so much silence the server pings.
        timeout_ms: how long it waits for the answer to a ping.
        permit_without_calls: also ping while no call is open.
        max_pings_without_data: pings sent without other data between them; 0 for no limit.
        min_recv_ping_interval_without_data_ms: how often a client may ping while it sends nothing else.
        max_ping_strikes: how many pings beyond that are borne; 0 for no limit.
        max_connection_age_ms: how long a connection may live; 0 for ever.
        max_connection_age_grace_ms: how long its calls may take after that; 0 for ever.
    """

    time_ms: int = 7_200_000
    timeout_ms: int = 20_000
    permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_recv_ping_interval_without_data_ms: int = 300_000
    max_ping_strikes: int = 2
    max_connection_age_ms: int = 0
    max_connection_age_grace_ms: int = 0


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """The settings of the gRPC port.

    Attributes:
        address: to listen on.
        port: 0 lets the system choose.
        reuse_port: let other servers listen on the same port.
        max_connection_count: see `sockets.most_connections`.
        max_concurrent_streams: calls that one connection may have open.
        idle_timeout_s: how long a connection may ask nothing; 0 for ever.
        header_forward_pattern: a regular expression; metadata whose keys it finds become parameters of the
            request. "" for none.
        restrictions: calls that need a key.
        use_ssl: speak TLS only, with `certificate_path` and `key_path` (PEM files).
        use_ssl_mutual: ask clients for a certificate that one in `root_path` has signed.
        compression_level: how hard responses are compressed.
        max_inflated_byte_size: the largest message after decompression.
        keepalive: pings and the age of connections.
        max_held_byte_size: bytes of open requests that one stream may have; no more are read above it.
        flow_limits: how far the client of a stream may fall behind.
    """

    address: str = "0.0.0.0"
    port: int = 8001
    reuse_port: bool = False
    max_connection_count: int = 0
    max_concurrent_streams: int = 1024
    idle_timeout_s: float = 600
    header_forward_pattern: str = ""
    restrictions: tuple[Restriction, ...] = ()
    use_ssl: bool = False
    use_ssl_mutual: bool = False
    certificate_path: str = ""
    key_path: str = ""
    root_path: str = ""
    compression_level: CompressionLevel = "none"
    max_inflated_byte_size: int = 67_108_864
    keepalive: Keepalive = Keepalive()
    max_held_byte_size: int = 268_435_456
    flow_limits: FlowLimits = DEFAULT_LIMITS


def grpc_settings(options: ServerOptions) -> GrpcSettings:
    """The settings of the gRPC port."""
    return GrpcSettings(
        address=options.grpc_address,
        port=options.grpc_port,
        reuse_port=options.grpc_reuse_port,
        max_connection_count=options.grpc_max_connection_count,
        max_concurrent_streams=options.grpc_max_concurrent_streams,
        idle_timeout_s=options.idle_timeout_s,
        header_forward_pattern=options.grpc_header_forward_pattern,
        restrictions=restrictions(options.grpc_restricted_protocols),
        use_ssl=options.grpc_use_ssl,
        use_ssl_mutual=options.grpc_use_ssl_mutual,
        certificate_path=options.grpc_server_cert,
        key_path=options.grpc_server_key,
        root_path=options.grpc_root_cert,
        compression_level=options.grpc_compression_level,
        max_inflated_byte_size=options.grpc_max_inflated_byte_size,
        keepalive=Keepalive(
            time_ms=options.grpc_keepalive_time_ms,
            timeout_ms=options.grpc_keepalive_timeout_ms,
            permit_without_calls=options.grpc_keepalive_permit_without_calls,
            max_pings_without_data=options.grpc_http2_max_pings_without_data,
            min_recv_ping_interval_without_data_ms=options.grpc_http2_min_recv_ping_interval_without_data_ms,
            max_ping_strikes=options.grpc_http2_max_ping_strikes,
            max_connection_age_ms=options.grpc_max_connection_age_ms,
            max_connection_age_grace_ms=options.grpc_max_connection_age_grace_ms,
        ),
        flow_limits=flow_limits(options),
    )
