"""From the server's options to what each frontend is told."""

from __future__ import annotations

from collections.abc import Iterable

from tritonpy.flow import FlowLimits
from tritonpy.frontends.grpc.settings import GrpcSettings, Keepalive
from tritonpy.frontends.http.settings import HttpSettings
from tritonpy.frontends.restriction import Restriction
from tritonpy.options import RestrictedCalls, ServerOptions


def http_settings(options: ServerOptions) -> HttpSettings:
    """The settings of the HTTP port."""
    return HttpSettings(
        address=options.http_address,
        port=options.http_port,
        reuse_port=options.http_reuse_port,
        max_input_byte_size=options.http_max_input_byte_size,
        max_connection_count=options.http_max_connection_count,
        idle_timeout_s=options.idle_timeout_s,
        header_forward_pattern=options.http_header_forward_pattern,
        restrictions=_restrictions(options.http_restricted_apis),
        certificate_path=options.https_certificate,
        key_path=options.https_key,
        access_log_path=options.http_access_log,
        allow_v1=options.allow_trtis_v1,
        flow_limits=flow_limits(options),
    )


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
        restrictions=_restrictions(options.grpc_restricted_protocols),
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


def flow_limits(options: ServerOptions) -> FlowLimits:
    """How far clients may fall behind, and models with what they have called."""
    return FlowLimits(
        options.max_stream_response_count, options.max_stream_byte_size, options.slow_client_timeout_s
    )


def _restrictions(restricted: Iterable[RestrictedCalls]) -> tuple[Restriction, ...]:
    return tuple(Restriction(frozenset(names), header, value) for names, header, value in restricted)
