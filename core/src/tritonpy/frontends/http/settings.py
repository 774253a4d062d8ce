"""What the HTTP port is told."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.flow import DEFAULT_LIMITS, FlowLimits
from tritonpy.frontends.restriction import Restriction
from tritonpy.frontends.settings import flow_limits, restrictions
from tritonpy.options import ServerOptions


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The settings of the inference port.

    Attributes:
        address: to listen on.
        port: 0 lets the system choose.
        reuse_port: let other servers listen on the same port.
        max_input_byte_size: the largest body that is JSON, and the largest body after decompression.
        max_connection_count: see `sockets.most_connections`.
        idle_timeout_s: how long a connection may ask nothing; 0 for ever.
        header_forward_pattern: a regular expression; headers whose names it finds become parameters of the
            request. "" for none.
        restrictions: calls that need a key.
        certificate_path, key_path: PEM files; with them the port speaks HTTPS.
        access_log_path: where each request leaves a line; "-" for standard output, "" for nowhere.
        allow_v1: answer the health and status paths of version 1 of the protocol.
        flow_limits: how far the client of an event stream may fall behind.
    """

    address: str = "0.0.0.0"
    port: int = 8000
    reuse_port: bool = False
    max_input_byte_size: int = 67_108_864
    max_connection_count: int = 0
    idle_timeout_s: float = 600
    header_forward_pattern: str = ""
    restrictions: tuple[Restriction, ...] = ()
    certificate_path: str = ""
    key_path: str = ""
    access_log_path: str = ""
    allow_v1: bool = False
    flow_limits: FlowLimits = DEFAULT_LIMITS


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
        restrictions=restrictions(options.http_restricted_apis),
        certificate_path=options.https_certificate,
        key_path=options.https_key,
        access_log_path=options.http_access_log,
        allow_v1=options.allow_trtis_v1,
        flow_limits=flow_limits(options),
    )
