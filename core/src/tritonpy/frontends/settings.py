"""From the server's options to what both HTTP and gRPC are told."""

from __future__ import annotations

from collections.abc import Iterable

from tritonpy.flow import FlowLimits
from tritonpy.frontends.restriction import Restriction
from tritonpy.options import RestrictedCalls, ServerOptions


def flow_limits(options: ServerOptions) -> FlowLimits:
    """How far clients may fall behind, and models with what they have called."""
    return FlowLimits(
        options.max_stream_response_count, options.max_stream_byte_size, options.slow_client_timeout_s
    )


def restrictions(restricted: Iterable[RestrictedCalls]) -> tuple[Restriction, ...]:
    """Calls that need a key."""
    return tuple(Restriction(frozenset(names), header, value) for names, header, value in restricted)
