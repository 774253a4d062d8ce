"""The options of `corectl serve` that concern a port."""

from __future__ import annotations

import click

from tritonpy.cli.flag_types import (
    read_above_zero,
    read_choice,
    read_pattern,
    read_restriction,
    read_restrictions,
)
from tritonpy.cli.flags import number, option, port, several, switch

HTTP: tuple[click.Option, ...] = (
    switch("--allow-http", "allow_http", "Serve HTTP."),
    option("--http-address", "http_address", "ADDRESS", "Address for HTTP."),
    port("--http-port", "http_port", "HTTP"),
    switch("--reuse-http-port", "http_reuse_port", "Let other servers listen on the same port."),
    option(
        "--http-max-input-size",
        "http_max_input_byte_size",
        "NUMBER",
        "Largest HTTP body in bytes that is JSON, and largest one after decompression.",
        read_above_zero("--http-max-input-size"),
    ),
    number(
        "--http-max-connections",
        "http_max_connection_count",
        "Connections; for one more the quietest is closed. 0: as many as descriptors allow, up to 16384.",
    ),
    option(
        "--http-header-forward-pattern",
        "http_header_forward_pattern",
        "REGEX",
        "Headers whose names this finds become parameters of inference requests.",
        read_pattern,
    ),
    several(
        "--http-restricted-api",
        "http_restricted_apis",
        "API,..:KEY=VALUE",
        "Answer these calls only to requests whose header KEY says VALUE. API is one of health, metadata, "
        "inference, shared-memory, model-config, model-repository, statistics, trace, logging.",
        read_restriction("--http-restricted-api"),
    ),
    several(
        "--http-restricted-api-file",
        "http_restricted_api_files",
        "PATH",
        "A file whose lines are as --http-restricted-api takes them: command lines can be read by everybody.",
        read_restrictions("--http-restricted-api-file"),
    ),
    option("--https-certificate", "https_certificate", "PATH", "Speak HTTPS with this certificate (PEM)."),
    option("--https-key", "https_key", "PATH", "Private key of the certificate (PEM)."),
    option(
        "--http-access-log",
        "http_access_log",
        "PATH",
        "Write a line per HTTP request there; - for standard output.",
    ),
    switch("--allow-trtis-v1", "allow_trtis_v1", "Answer the health and status paths of protocol version 1."),
)

GRPC: tuple[click.Option, ...] = (
    switch("--allow-grpc", "allow_grpc", "Serve gRPC."),
    option("--grpc-address", "grpc_address", "ADDRESS", "Address for gRPC."),
    port("--grpc-port", "grpc_port", "gRPC"),
    switch("--reuse-grpc-port", "grpc_reuse_port", "Let other servers listen on the same port."),
    option(
        "--grpc-header-forward-pattern",
        "grpc_header_forward_pattern",
        "REGEX",
        "Metadata whose keys this finds become parameters of inference requests.",
        read_pattern,
    ),
    several(
        "--grpc-restricted-protocol",
        "grpc_restricted_protocols",
        "PROTOCOL,..:KEY=VALUE",
        "Answer these calls only with metadata triton-grpc-protocol-KEY that says VALUE. PROTOCOL is one of "
        "what --http-restricted-api takes.",
        read_restriction("--grpc-restricted-protocol"),
    ),
    several(
        "--grpc-restricted-protocol-file",
        "grpc_restricted_protocol_files",
        "PATH",
        "A file whose lines are as --grpc-restricted-protocol takes them.",
        read_restrictions("--grpc-restricted-protocol-file"),
    ),
    switch("--grpc-use-ssl", "grpc_use_ssl", "Speak TLS only."),
    switch(
        "--grpc-use-ssl-mutual",
        "grpc_use_ssl_mutual",
        "Speak TLS only, and ask clients for a certificate that --grpc-root-cert has signed.",
    ),
    option("--grpc-server-cert", "grpc_server_cert", "PATH", "The server's certificate (PEM)."),
    option("--grpc-server-key", "grpc_server_key", "PATH", "The private key of --grpc-server-cert (PEM)."),
    option(
        "--grpc-root-cert", "grpc_root_cert", "PATH", "Certificates that clients' are checked against (PEM)."
    ),
    option(
        "--grpc-infer-response-compression-level",
        "grpc_compression_level",
        "LEVEL",
        "How hard inference responses are compressed: none, low, medium or high.",
        read_choice("--grpc-infer-response-compression-level", "none", "low", "medium", "high"),
    ),
    number(
        "--grpc-max-connections",
        "grpc_max_connection_count",
        "Connections; more are closed at once. 0: as many as descriptors allow, up to 4096.",
    ),
    number(
        "--grpc-max-concurrent-streams",
        "grpc_max_concurrent_streams",
        "Calls, streams among them, that one connection may have open; its client waits with more.",
        least=1,
    ),
    number(
        "--grpc-max-inflated-size",
        "grpc_max_inflated_byte_size",
        "Largest gRPC message in bytes after decompression.",
        most=2**63 - 1,
    ),
    number("--grpc-keepalive-time", "grpc_keepalive_time_ms", "Ping after so many milliseconds of silence."),
    number(
        "--grpc-keepalive-timeout",
        "grpc_keepalive_timeout_ms",
        "Milliseconds to wait for the answer to a ping before the connection is closed.",
    ),
    switch(
        "--grpc-keepalive-permit-without-calls",
        "grpc_keepalive_permit_without_calls",
        "Ping also while no call is open.",
    ),
    number(
        "--grpc-http2-max-pings-without-data",
        "grpc_http2_max_pings_without_data",
        "Most pings to send without other data between them; 0 for no limit.",
    ),
    number(
        "--grpc-http2-min-recv-ping-interval-without-data",
        "grpc_http2_min_recv_ping_interval_without_data_ms",
        "Milliseconds that a client must leave between pings without other data.",
    ),
    number(
        "--grpc-http2-max-ping-strikes",
        "grpc_http2_max_ping_strikes",
        "Bad pings to bear before the connection is closed; 0 for no limit.",
    ),
    number(
        "--grpc-max-connection-age",
        "grpc_max_connection_age_ms",
        "Milliseconds that a connection may live; 0 for ever.",
    ),
    number(
        "--grpc-max-connection-age-grace",
        "grpc_max_connection_age_grace_ms",
        "Milliseconds that the calls of a connection may take after that; 0 for ever.",
    ),
)
