"""What the HTTP port is told."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.flow import DEFAULT_LIMITS, FlowLimits
from tritonpy.frontends.restriction import Restriction


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
