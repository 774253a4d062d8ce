"""What the gRPC port is told."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.flow import DEFAULT_LIMITS, FlowLimits
from tritonpy.frontends.restriction import Restriction
from tritonpy.options import CompressionLevel


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
