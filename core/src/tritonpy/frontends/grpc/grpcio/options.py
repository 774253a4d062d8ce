"""From the options of the server to what gRPC's core calls channel arguments."""

from __future__ import annotations

from tritonpy.frontends.sockets import most_connections
from tritonpy.options import ServerOptions

_MOST_MESSAGE_BYTES = 2**31 - 1
_SHARE = 1 / 3
_MOST_CONNECTIONS = 4096
_HANDSHAKE_MS = 20_000
_COMPRESSION = {"none": 0, "low": 1, "medium": 2, "high": 3}

ChannelArguments = list[tuple[str, int]]


def channel_arguments(options: ServerOptions, max_held_byte_size: int) -> ChannelArguments:
    """The arguments of a server.

    Args:
        options: of the server.
        max_held_byte_size: bytes of requests that the server may hold; 0 for no limit. No single message is
            let in that is larger.
    """
    return [
        ("grpc.max_send_message_length", -1),
        (
            "grpc.max_receive_message_length",
            min(max_held_byte_size or _MOST_MESSAGE_BYTES, _MOST_MESSAGE_BYTES),
        ),
        ("grpc.per_message_decompression", 0),  # see `compression`
        (
            "grpc.max_allowed_incoming_connections",
            most_connections(options.grpc_max_connection_count, _SHARE, _MOST_CONNECTIONS),
        ),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),  # also of connections that never say anything
        ("grpc.max_concurrent_streams", options.grpc_max_concurrent_streams),
        # gRPC's default lets servers share a port unnoticed.
        ("grpc.so_reuseport", int(options.grpc_reuse_port)),
        # A level, not an algorithm: gRPC then takes one that the client says it can read.
        ("grpc.default_compression_level", _COMPRESSION[options.grpc_compression_level]),
        *_idle_timeout(options.idle_timeout_s),
        *_keepalive(options),
    ]


def _idle_timeout(seconds: float) -> ChannelArguments:
    if not seconds:  # gRPC knows no number for "for ever"
        return []
    return [("grpc.max_connection_idle_ms", min(round(seconds * 1000), 2**31 - 1))]


def _keepalive(options: ServerOptions) -> ChannelArguments:
    arguments = [
        ("grpc.keepalive_time_ms", options.grpc_keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", options.grpc_keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", int(options.grpc_keepalive_permit_without_calls)),
        ("grpc.http2.max_pings_without_data", options.grpc_http2_max_pings_without_data),
        (
            "grpc.http2.min_ping_interval_without_data_ms",
            options.grpc_http2_min_recv_ping_interval_without_data_ms,
        ),
        ("grpc.http2.max_ping_strikes", options.grpc_http2_max_ping_strikes),
    ]
    if options.grpc_max_connection_age_ms:  # gRPC knows no number for "for ever"
        arguments.append(("grpc.max_connection_age_ms", options.grpc_max_connection_age_ms))
    if options.grpc_max_connection_age_grace_ms:
        arguments.append(("grpc.max_connection_age_grace_ms", options.grpc_max_connection_age_grace_ms))
    return arguments
