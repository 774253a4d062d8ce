"""The options of a server: the field, type and default, flag and help text of each, declared once.

`corectl serve` and the page about it are made from the same fields, so that a server that is embedded and one
that is started from a command line behave alike. Defaults are Triton's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

LogFormat = Literal["default", "ISO8601", "json"]
StrategyPathPolicy = Literal["any", "strict"]
ModelControlMode = Literal["none", "poll", "explicit"]
RateLimitMode = Literal["off", "execution_count"]
CompressionLevel = Literal["none", "low", "medium", "high"]
GrpcTransport = Literal["auto", "native", "grpcio"]
RestrictedCalls = tuple[tuple[str, ...], str, str]
"""Categories of calls, the header that they need, and what it must say."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of an option on the command line.

    Attributes:
        names: the flag, and others for the same, with blanks between them.
        value: stands for the value in the help.
        help: says what the option does.
        kind: of value; `cli/flag_values.py` has a reader for each but "mark", which is true when it is there.
        heading: begins a group of the help, with this option.
        least, most: bounds of a number.
        choices: the words that may be said.
        alone: is meant when the flag stands without a value; "" if it needs one.
        follows: the field whose value this option has unless it is given.
    """

    names: str
    value: str
    help: str
    kind: str = "text"
    heading: str = ""
    least: int = 0
    most: int = 2**31 - 1
    choices: tuple[str, ...] = ()
    alone: str = ""
    follows: str = ""

    @property
    def name(self) -> str:
        """The flag as messages call it."""
        return self.names.partition(" ")[0]


def _flag(names: str, value: str, help: str, **more: Any) -> dict[str, Flag]:  # Any: as in `Flag`
    return {"flag": Flag(names, value, help, **more)}


def option(default: _T, names: str, value: str, help: str, **more: Any) -> _T:  # Any: as in `Flag`
    """A field whose flag has a value; where the default is a tuple, the flag may be repeated."""
    made: _T = field(default=default, metadata=_flag(names, value, help, **more))
    return made


def number(default: int, names: str, help: str, **more: Any) -> int:  # Any: as in `Flag`
    """A whole number, from 0 unless it says otherwise."""
    return option(default, names, "NUMBER", help, kind="number", **more)


def switch(default: bool, names: str, help: str, **more: Any) -> bool:  # Any: as in `Flag`
    """True or false, and true when the flag stands without a value."""
    return option(default, names, "BOOLEAN", help, kind="switch", alone="true", **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The settings of one server.

    All but the repositories are named: `ServerOptions(("models",), http_port=0)`. The help text of its flag
    says what each is for.
    """

    # Server
    server_id: str = option("triton", "--id", "TEXT", "Name of the server in its metadata.", heading="Server")
    exit_timeout_s: float = number(
        30, "--exit-timeout-secs", "How long a stopping server waits for requests in flight."
    )
    drain_delay_s: float = option(
        0,
        "--drain-delay-secs --drain-delay-s",
        "SECONDS",
        "How long a server that was told to stop says that it is not ready and still accepts requests, "
        "before the exit timeout begins: until balancers send no more to it.",
        kind="seconds",
    )
    exit_on_error: bool = switch(
        True, "--exit-on-error", "End with status 1 when a model cannot be loaded at start."
    )
    strict_readiness: bool = switch(True, "--strict-readiness", "Be ready only when every model is ready.")

    # Models
    model_repositories: tuple[str, ...] = field(
        kw_only=False,
        metadata=_flag(
            "--model-repository --model-store",
            "PATH",
            "Directory with models, or s3://, gs:// or as:// with a place in an object store; required.",
            kind="repository",
            heading="Models",
        ),
    )
    model_control_mode: ModelControlMode = option(
        "none",
        "--model-control-mode",
        "MODE",
        "Who decides what is loaded: none: everything, at start; poll: everything, and again what "
        "changes; explicit: what is asked for.",
        kind="choice",
        choices=("none", "poll", "explicit"),
    )
    repository_poll_s: float = option(
        15,
        "--repository-poll-secs",
        "SECONDS",
        "How long mode poll waits between two looks at the repositories; 0: never again after the start.",
        kind="seconds",
    )
    repository_timeout_s: float = option(
        60,
        "--repository-timeout-secs",
        "SECONDS",
        "How long one call to an object store may take, with its retries, from 1.",
        kind="timeout",
    )
    load_models: tuple[str, ...] = option(
        (), "--load-model", "NAME", "Load this model at start, in mode explicit; * alone for all."
    )
    model_config_name: str = option(
        "",
        "--model-config-name",
        "NAME",
        "Read configs/NAME.pbtxt (or .json, .yaml) of models that have it instead of their config.pbtxt.",
        kind="config name",
    )
    model_namespacing: bool = switch(
        False, "--model-namespacing", "Serve models of equal names in several repositories side by side."
    )
    model_load_thread_count: int = number(
        4, "--model-load-thread-count", "How many models load at once.", least=1
    )
    model_load_retry_count: int = number(
        0, "--model-load-retry-count", "How often a version whose load failed is tried again."
    )
    reload: bool = option(
        False,
        "--reload",
        "",
        "Load models anew when their files change, without a pause; for development.",
        kind="mark",
    )
    auto_complete_config: bool = True  # --disable-auto-complete-config
    debugged_models: tuple[str, ...] = option(
        (),
        "--debug-model",
        "NAME",
        "Run one instance of this model on a thread of the server, without time limits: breakpoint() and "
        "debuggers work.",
    )

    # Backends and plugins
    backend_directory: str = option(
        "/opt/tritonserver/backends",
        "--backend-directory",
        "PATH",
        "Where shared-object backends lie.",
        heading="Backends and plugins",
    )
    repo_agent_directory: str = option(
        "/opt/tritonserver/repoagents",
        "--repoagent-directory",
        "PATH",
        "Where repository agents lie that are files.",
    )
    backend_config: tuple[tuple[str, str, str], ...] = option(
        (),
        "--backend-config",
        "[BACKEND,]KEY=VALUE",
        "Setting of one backend or, without its name, of all.",
        kind="backend setting",
    )
    frontend_config: tuple[tuple[str, str, str], ...] = option(
        (),
        "--frontend-config",
        "FRONTEND[,KEY=VALUE]",
        "Start this frontend, with this setting. http, grpc and metrics, which start without, take what "
        "their flags are called: http,port=8080 is --http-port=8080.",
        kind="frontend setting",
    )
    disabled_plugins: tuple[tuple[str, str], ...] = option(
        (), "--disable-plugin", "KIND:NAME", "Do not load this plugin.", kind="plugin"
    )

    # Devices
    host_policies: tuple[tuple[str, str, str], ...] = option(
        (),
        "--host-policy",
        "POLICY,SETTING=VALUE",
        "Where instances of groups with this host policy run: numa-node=NODE whose memory they take, "
        "cpu-cores=FIRST-LAST[,…] they keep to. Groups that name none have gpu_<id>, cpu or model.",
        kind="host policy",
        heading="Devices",
    )
    min_compute_capability: float = option(
        6.0,
        "--min-supported-compute-capability",
        "NUMBER",
        "GPUs below this CUDA compute capability are not used.",
        kind="fraction",
        most=1000,
    )
    model_load_gpu_limits: tuple[tuple[int, float], ...] = option(
        (),
        "--model-load-gpu-limit",
        "DEVICE:FRACTION",
        "Start no instance on a GPU whose memory is used beyond this part when it would be started.",
        kind="gpu limit",
    )
    pinned_memory_pool_byte_size: int = number(
        268_435_456,
        "--pinned-memory-pool-byte-size",
        "Shown in the table of options, nothing else: the server holds tensors in ordinary memory, and "
        "frameworks pin what they copy to GPUs.",
        most=2**63 - 1,
    )
    cuda_memory_pool_byte_sizes: tuple[tuple[int, int], ...] = option(
        (),
        "--cuda-memory-pool-byte-size",
        "DEVICE:BYTES",
        "Shown in the table of options, nothing else: the server takes no memory of GPUs, frameworks do.",
        kind="gpu bytes",
    )
    cuda_virtual_address_sizes: tuple[tuple[int, int], ...] = option(
        (),
        "--cuda-virtual-address-size",
        "DEVICE:BYTES",
        "Nothing yet: sequences keep no state on GPUs.",
        kind="gpu bytes",
    )

    # HTTP
    allow_http: bool = switch(True, "--allow-http", "Serve HTTP.", heading="HTTP")
    http_address: str = option("0.0.0.0", "--http-address", "ADDRESS", "Address for HTTP.")
    http_port: int = number(8000, "--http-port", "Port for HTTP; 0 lets the system choose.", most=65535)
    http_reuse_port: bool = switch(False, "--reuse-http-port", "Let other servers listen on the same port.")
    http_max_input_byte_size: int = option(
        67_108_864,
        "--http-max-input-size",
        "NUMBER",
        "Largest HTTP body in bytes that is JSON, and largest one after decompression.",
        kind="number above 0",
    )
    http_max_connection_count: int = number(
        0,
        "--http-max-connections",
        "Connections; for one more the quietest is closed. 0: as many as descriptors allow, up to 16384.",
    )
    http_header_forward_pattern: str = option(
        "",
        "--http-header-forward-pattern",
        "REGEX",
        "Headers whose names this finds become parameters of inference requests.",
        kind="pattern",
    )
    http_restricted_apis: tuple[RestrictedCalls, ...] = option(
        (),
        "--http-restricted-api",
        "API,..:KEY=VALUE",
        "Answer these calls only to requests whose header KEY says VALUE. API is one of health, metadata,"
        " inference, shared-memory, model-config, model-repository, statistics, trace, logging.",
        kind="restriction",
    )
    https_certificate: str = option(
        "", "--https-certificate", "PATH", "Speak HTTPS with this certificate (PEM)."
    )
    https_key: str = option("", "--https-key", "PATH", "Private key of the certificate (PEM).")
    https_client_ca: str = option(
        "", "--https-client-ca", "PATH", "Ask clients for a certificate that one of these has signed (PEM)."
    )
    http_access_log: str = option(
        "", "--http-access-log", "PATH", "Write a line per HTTP request there; - for standard output."
    )
    allow_trtis_v1: bool = switch(
        False, "--allow-trtis-v1", "Answer the health and status paths of protocol version 1."
    )

    # gRPC
    allow_grpc: bool = switch(True, "--allow-grpc", "Serve gRPC.", heading="gRPC")
    grpc_address: str = option(
        "0.0.0.0", "--grpc-address", "ADDRESS", "Address for gRPC; unix:PATH for a socket of this machine."
    )
    grpc_port: int = number(8001, "--grpc-port", "Port for gRPC; 0 lets the system choose.", most=65535)
    grpc_reuse_port: bool = switch(False, "--reuse-grpc-port", "Let other servers listen on the same port.")
    grpc_transport: GrpcTransport = option(
        "auto",
        "--grpc-transport",
        "TRANSPORT",
        "What moves the bytes of gRPC: native: libnghttp2 on the server's loop, which costs less per call; "
        "grpcio: gRPC's C++ core; auto: native where it is installed.",
        kind="choice",
        choices=("auto", "native", "grpcio"),
    )
    grpc_header_forward_pattern: str = option(
        "",
        "--grpc-header-forward-pattern",
        "REGEX",
        "Metadata whose keys this finds become parameters of inference requests.",
        kind="pattern",
    )
    grpc_restricted_protocols: tuple[RestrictedCalls, ...] = option(
        (),
        "--grpc-restricted-protocol",
        "PROTOCOL,..:KEY=VALUE",
        "Answer these calls only with metadata triton-grpc-protocol-KEY that says VALUE. PROTOCOL is one "
        "of what --http-restricted-api takes.",
        kind="restriction",
    )
    grpc_use_ssl: bool = switch(False, "--grpc-use-ssl", "Speak TLS only.")
    grpc_use_ssl_mutual: bool = switch(
        False,
        "--grpc-use-ssl-mutual",
        "Speak TLS only, and ask clients for a certificate that --grpc-root-cert has signed.",
    )
    grpc_server_cert: str = option("", "--grpc-server-cert", "PATH", "The server's certificate (PEM).")
    grpc_server_key: str = option(
        "", "--grpc-server-key", "PATH", "The private key of --grpc-server-cert (PEM)."
    )
    grpc_root_cert: str = option(
        "", "--grpc-root-cert", "PATH", "Certificates that clients' are checked against (PEM)."
    )
    grpc_compression_level: CompressionLevel = option(
        "none",
        "--grpc-infer-response-compression-level",
        "LEVEL",
        "How hard inference responses are compressed: none, low, medium or high.",
        kind="choice",
        choices=("none", "low", "medium", "high"),
    )
    grpc_max_connection_count: int = number(
        0,
        "--grpc-max-connections",
        "Connections; of more, a few may ask for health, or on grpcio's transport all are closed at once. "
        "0: as many as descriptors allow, up to 4096.",
    )
    grpc_max_concurrent_streams: int = number(
        1024,
        "--grpc-max-concurrent-streams",
        "Calls, streams among them, that one connection may have open; its client waits with more.",
        least=1,
    )
    grpc_max_inflated_byte_size: int = number(
        67_108_864,
        "--grpc-max-inflated-size",
        "Largest gRPC message in bytes after decompression.",
        most=2**63 - 1,
    )
    grpc_keepalive_time_ms: int = number(
        7_200_000, "--grpc-keepalive-time", "Ping after so many milliseconds of silence."
    )
    grpc_keepalive_timeout_ms: int = number(
        20_000,
        "--grpc-keepalive-timeout",
        "Milliseconds to wait for the answer to a ping before the connection is closed.",
    )
    grpc_keepalive_permit_without_calls: bool = switch(
        False, "--grpc-keepalive-permit-without-calls", "Ping also while no call is open."
    )
    grpc_http2_max_pings_without_data: int = number(
        2,
        "--grpc-http2-max-pings-without-data",
        "Most pings to send without other data between them; 0 for no limit.",
    )
    grpc_http2_min_recv_ping_interval_without_data_ms: int = number(
        300_000,
        "--grpc-http2-min-recv-ping-interval-without-data",
        "Milliseconds that a client must leave between pings without other data.",
    )
    grpc_http2_max_ping_strikes: int = number(
        2,
        "--grpc-http2-max-ping-strikes",
        "Bad pings to bear before the connection is closed; 0 for no limit.",
    )
    grpc_max_connection_age_ms: int = number(
        0, "--grpc-max-connection-age", "Milliseconds that a connection may live; 0 for ever."
    )
    grpc_max_connection_age_grace_ms: int = number(
        0,
        "--grpc-max-connection-age-grace",
        "Milliseconds that the calls of a connection may take after that; 0 for ever.",
    )

    # Metrics
    allow_metrics: bool = switch(True, "--allow-metrics", "Serve metrics.", heading="Metrics")
    allow_cpu_metrics: bool = switch(True, "--allow-cpu-metrics", "Show the machine's processors and memory.")
    allow_gpu_metrics: bool = switch(True, "--allow-gpu-metrics", "Show the GPUs that the server uses.")
    metrics_address: str = option(
        "0.0.0.0",
        "--metrics-address",
        "ADDRESS",
        "Address for metrics.  [default: the HTTP address]",
        follows="http_address",
    )
    metrics_port: int = number(
        8002, "--metrics-port", "Port for metrics; 0 lets the system choose.", most=65535
    )
    metrics_reuse_port: bool = switch(
        False,
        "--reuse-metrics-port",
        "Let other servers listen on the same port, of which each scrape then meets one.",
    )
    metrics_interval_ms: float = option(
        2000,
        "--metrics-interval-ms",
        "NUMBER",
        "How old what is shown of processors, memory and GPUs may be.",
        kind="milliseconds",
    )
    metrics_config: tuple[str, ...] = option(
        (),
        "--metrics-config",
        "SETTING=VALUE",
        "Which latencies of models are kept: counter_latencies (true), summary_latencies (false), "
        "histogram_latencies (false), and summary_quantiles=QUANTILE:ERROR,… for the summaries.",
        kind="metrics setting",
    )

    # Limits and access
    max_inflight_byte_size: int = number(
        1_073_741_824,
        "--max-inflight-bytes",
        "Bytes of requests held at once; above it HTTP clients wait and gRPC calls are refused. 0: no limit.",
        most=2**63 - 1,
        heading="Limits and access",
    )
    max_model_config_byte_size: int = number(
        1_048_576,
        "--max-model-config-bytes",
        "Largest configuration of a model, as a file or in a load request.",
    )
    allow_client_shm: bool = switch(
        False, "--allow-client-shm", "Let clients register regions of shared memory."
    )
    max_region_count: int = number(
        16_384, "--max-shm-regions", "Regions of shared memory that may be registered."
    )
    allow_sent_code: bool = switch(
        True,
        "--allow-sent-code",
        "Take files with requests to load a model. Their senders run code of their own here.",
    )
    worker_environment: tuple[str, ...] = option(
        (),
        "--worker-environment",
        "NAME",
        "Let workers of models see this variable although it holds a secret of the server, such as a key "
        "of an object store; * for all.",
    )
    strategy_path_policy: StrategyPathPolicy = option(
        "any",
        "--strategy-path-policy",
        "any|strict",
        "What a model may name as its batching strategy: anything, or (strict) an installed one or a file"
        " in its own directory.",
        kind="choice",
        choices=("any", "strict"),
    )
    max_stream_response_count: int = number(
        1024,
        "--max-stream-responses",
        "Responses held for one stream whose client does not read, before its model's sender waits.",
        least=1,
    )
    max_stream_byte_size: int = number(
        67_108_864, "--max-stream-bytes", "Bytes of such responses.", most=2**63 - 1
    )
    slow_client_timeout_s: float = option(
        30,
        "--slow-client-timeout",
        "SECONDS",
        "How long a client may read nothing while a sender waits for it, before its request is cancelled;"
        " 0: for ever.",
        kind="seconds",
    )
    idle_timeout_s: float = option(
        600,
        "--idle-timeout",
        "SECONDS",
        "How long a connection, over HTTP or gRPC, may ask nothing before it is closed; 0: for ever.",
        kind="seconds",
    )

    # Rate limiter
    rate_limit: RateLimitMode = option(
        "off",
        "--rate-limit",
        "off|execution_count",
        "When instances execute: off: as soon as they are free; execution_count: when the resources that "
        "their rate_limiter names are free too, and first the one with the fewest executions, each "
        "counted as often as its priority says.",
        kind="choice in any case",
        choices=("off", "execution_count"),
        heading="Rate limiter",
    )
    rate_limit_resources: tuple[tuple[str, int, int | None], ...] = option(
        (),
        "--rate-limit-resource",
        "NAME:COUNT[:DEVICE]",
        "How much there is of a resource, on one device or on each; the name in any case. Without this "
        "option there is as much as the instance that needs most.",
        kind="resource",
    )

    # Response cache
    cache_config: tuple[tuple[str, str, str], ...] = option(
        (),
        "--cache-config",
        "CACHE,KEY=VALUE",
        "Setting of the response cache, which models with response_cache { enable: true } use: "
        "local,size=BYTES keeps responses in memory.",
        kind="cache setting",
        heading="Response cache",
    )
    cache_directory: str = option(
        "/opt/tritonserver/caches", "--cache-directory", "PATH", "Where caches lie that are files."
    )
    cache_timeout_ms: int = number(
        100,
        "--cache-timeout-ms",
        "How long a request waits for a cache that is not in memory before it goes on without; from 1.",
        least=1,
    )

    # Logging
    log_verbose: int = option(
        0,
        "--log-verbose",
        "LEVEL",
        "Verbose lines up to this level; 0 for none.",
        kind="verbosity",
        alone="1",
        heading="Logging",
    )
    log_info: bool = switch(True, "--log-info", "Write informational lines.")
    log_warning: bool = switch(True, "--log-warning", "Write warnings.")
    log_error: bool = switch(True, "--log-error", "Write errors.")
    log_format: LogFormat = option(
        "default",
        "--log-format",
        "default|ISO8601|json",
        "Shape of a log line.",
        kind="choice",
        choices=("default", "ISO8601", "json"),
    )
    log_file: str = option("", "--log-file", "PATH", "Write the log there; standard error without it.")

    # Tracing
    trace_config: tuple[tuple[str, str, str], ...] = option(
        (),
        "--trace-config",
        "[MODE,]SETTING=VALUE",
        "What is traced: level=OFF, TIMESTAMPS or TENSORS; rate=NUMBER: every so many-th request; "
        "count=NUMBER: how many at most, -1 for all; mode=triton (files) or opentelemetry. Of triton: "
        "file=PATH, log-frequency=NUMBER (traces per file). Of opentelemetry: url=URL, "
        "resource=KEY=VALUE, bsp_max_queue_size=NUMBER, bsp_schedule_delay=MILLISECONDS, "
        "bsp_max_export_batch_size=NUMBER.",
        kind="trace setting",
        heading="Tracing",
    )
