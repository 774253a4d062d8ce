"""Options about clients that read slower than models answer, or do nothing."""

from __future__ import annotations

import click

from tritonpy.cli.flag_types import read_integer, read_seconds
from tritonpy.cli.flags import number, option

FLOW: tuple[click.Option, ...] = (
    option(
        "--max-stream-responses",
        "max_stream_response_count",
        "NUMBER",
        "Responses held for one stream whose client does not read, before its model's sender waits.",
        read_integer(1, 2**31 - 1),
    ),
    number(
        "--max-stream-bytes",
        "max_stream_byte_size",
        "Bytes of such responses.",
        most=2**63 - 1,
    ),
    option(
        "--slow-client-timeout",
        "slow_client_timeout_s",
        "SECONDS",
        "How long a client may read nothing while a sender waits for it, before its request is cancelled; "
        "0: for ever.",
        read_seconds,
    ),
    option(
        "--idle-timeout",
        "idle_timeout_s",
        "SECONDS",
        "How long a connection, over HTTP or gRPC, may ask nothing before it is closed; 0: for ever.",
        read_seconds,
    ),
)
