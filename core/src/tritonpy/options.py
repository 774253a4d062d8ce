"""What one server is told when it starts: flat values with Triton's defaults.

`cli/serve.py` builds it from the command line, an embedding program by hand. Only `runtime.py` sees all of
it; every other part is given the few values it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LogFormat = Literal["default", "ISO8601", "json"]
StrategyPathPolicy = Literal["any", "strict"]
ModelControlMode = Literal["none", "poll", "explicit"]
RateLimitMode = Literal["off", "execution_count"]
CompressionLevel = Literal["none", "low", "medium", "high"]
RestrictedCalls = tuple[tuple[str, ...], str, str]
"""Categories of calls, the header that they need, and what it must say."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The settings of one server.

    Attributes:
        model_repositories: repository roots, as given.
        server_id: the name in the server metadata.
        exit_timeout_s: how long a stopping server waits for requests in flight.
        exit_on_error: end with status 1 when a model cannot be loaded at start.
        strict_readiness: the server is ready only when every model is.
        auto_complete_config: fill what a model's configuration leaves out from the model itself.
        model_control_mode: who decides which models are loaded: `none` loads all at the start, `poll` follows
            changes of the repositories, `explicit` loads what it is asked to.
        repository_poll_s: how long mode `poll` waits between two looks; 0 looks at the start only.
        repository_timeout_s: how long one call to an object store may take, with its retries.
        load_models: names of models to load at the start in mode `explicit`; `*` alone means all.
        reload: load models anew when their files change, for development.
        debugged_models: models that run on threads of the server, where a debugger reaches them.
        model_config_name: models that have a `configs/<name>.pbtxt`, or `.json` or `.yaml`, are configured by
            it; "" for none.
        max_model_config_byte_size: how large the configuration of a model may be.
        model_namespacing: models of equal names in several repositories are served side by side.
        model_load_thread_count: how many models load at once.
        model_load_retry_count: how often a version whose load failed is tried again.
        backend_directory: where shared-object backends lie.
        repo_agent_directory: where repository agents lie that are files.
        cache_config: `(cache, key, value)` each: which response cache, and its settings; all name the same.
        cache_directory: where response caches lie that are files.
        cache_timeout_ms: how long a request waits for a response cache that is not in memory.
        backend_config: `(backend, key, value)` each; the backend is "" for a setting of all backends.
        disabled_plugins: `(kind, name)` of plugins that must not be loaded.
        strategy_path_policy: with `strict` a model names installed strategies, or files in its directory.
        host_policies: `(policy, setting, value)` each; the settings are `numa-node` and `cpu-cores`.
        min_compute_capability: GPUs below it are not used.
        model_load_gpu_limits: `(device, fraction)` each: above this part of a GPU's memory nothing is loaded.
        rate_limit: `execution_count` lets instances execute only while the resources they share are free.
        rate_limit_resources: `(name, count, device)` each: how much there is of a resource, on each device
            where that is None.
        pinned_memory_pool_byte_size, cuda_memory_pool_byte_sizes, cuda_virtual_address_sizes: pools of memory
            for transfers to GPUs, `(device, bytes)` each where one belongs to a device. Only shown: the
            server makes none.
        allow_client_shm: let clients register regions of shared memory.
        max_region_count: regions that clients may have registered.
        allow_sent_code: take files with requests to load a model, which are executed then.
        worker_environment: names of variables that workers get although they hold secrets of the server, such
            as the keys of object stores; `*` for all.
        http_port, grpc_port, metrics_port: 0 lets the system choose.
        http_reuse_port, grpc_reuse_port: let other servers listen on the same port.
        http_max_input_byte_size: the largest HTTP request body that is JSON, and the largest one after
            decompression.
        http_max_connection_count, grpc_max_connection_count: connections of a port; 0 for as many as
            descriptors allow.
        grpc_max_concurrent_streams: calls that one gRPC connection may have open.
        idle_timeout_s: how long a connection may ask nothing before it is closed; 0 for ever.
        http_header_forward_pattern, grpc_header_forward_pattern: a regular expression; headers whose names it
            finds become parameters of inference requests. "" for none.
        http_restricted_apis, grpc_restricted_protocols: calls that need a header.
        https_certificate, https_key: PEM files; with them the HTTP port speaks HTTPS.
        http_access_log: where each HTTP request leaves a line; "-" for standard output, "" for nowhere.
        allow_trtis_v1: answer the health and status paths of version 1 of the protocol.
        grpc_use_ssl: speak TLS on the gRPC port, with `grpc_server_cert` and `grpc_server_key`, PEM files.
        grpc_use_ssl_mutual: ask gRPC clients for a certificate that one in `grpc_root_cert` has signed.
        grpc_compression_level: how hard gRPC responses are compressed.
        grpc_max_inflated_byte_size: the largest gRPC message after decompression.
        grpc_keepalive_time_ms, grpc_keepalive_timeout_ms, grpc_keepalive_permit_without_calls,
            grpc_http2_max_pings_without_data, grpc_http2_min_recv_ping_interval_without_data_ms,
            grpc_http2_max_ping_strikes, grpc_max_connection_age_ms, grpc_max_connection_age_grace_ms: pings
            and the age of gRPC connections; an age of 0 means no limit.
        trace_config: `(mode, setting, value)` each, as `--trace-config` has them; the mode is "" for settings
            of both.
        allow_cpu_metrics, allow_gpu_metrics: show the machine's processors and memory, and its GPUs.
        metrics_interval_ms: how old what is shown of the machine may be.
        metrics_config: `<setting>=<value>` each: which latencies of models are kept, and how they are shown.
        max_inflight_byte_size: bytes of requests held at once; above it nothing more is read from clients of
            HTTP, and calls over gRPC are refused. A request that arrives while nothing else is held is let in
            whatever its size over HTTP; no message over gRPC may be larger than this. 0 means no limit.
        max_stream_response_count, max_stream_byte_size: responses, and their bytes, that are held for the
            client of a stream before the sender of its request waits.
        slow_client_timeout_s: how long such a client may read nothing before its request is cancelled; 0 for
            ever.
        log_verbose: 0 is off; higher numbers tell more.
        log_info, log_warning, log_error: which lines are written.
        log_file: "" writes to standard error.
    """

    model_repositories: tuple[str, ...]
    server_id: str = "triton"
    exit_timeout_s: float = 30
    exit_on_error: bool = True
    strict_readiness: bool = True
    auto_complete_config: bool = True
    model_control_mode: ModelControlMode = "none"
    repository_poll_s: float = 15
    repository_timeout_s: float = 60
    load_models: tuple[str, ...] = ()
    model_config_name: str = ""
    max_model_config_byte_size: int = 1_048_576
    model_namespacing: bool = False
    model_load_thread_count: int = 4
    model_load_retry_count: int = 0
    reload: bool = False
    debugged_models: tuple[str, ...] = ()
    backend_directory: str = "/opt/tritonserver/backends"
    repo_agent_directory: str = "/opt/tritonserver/repoagents"
    cache_config: tuple[tuple[str, str, str], ...] = ()
    cache_directory: str = "/opt/tritonserver/caches"
    cache_timeout_ms: int = 100
    backend_config: tuple[tuple[str, str, str], ...] = ()
    disabled_plugins: tuple[tuple[str, str], ...] = ()
    strategy_path_policy: StrategyPathPolicy = "any"
    host_policies: tuple[tuple[str, str, str], ...] = ()
    min_compute_capability: float = 6.0
    model_load_gpu_limits: tuple[tuple[int, float], ...] = ()
    rate_limit: RateLimitMode = "off"
    rate_limit_resources: tuple[tuple[str, int, int | None], ...] = ()
    pinned_memory_pool_byte_size: int = 268_435_456
    cuda_memory_pool_byte_sizes: tuple[tuple[int, int], ...] = ()
    cuda_virtual_address_sizes: tuple[tuple[int, int], ...] = ()
    allow_client_shm: bool = False
    max_region_count: int = 16_384
    allow_sent_code: bool = True
    worker_environment: tuple[str, ...] = ()
    allow_http: bool = True
    http_address: str = "0.0.0.0"
    http_port: int = 8000
    http_reuse_port: bool = False
    http_max_input_byte_size: int = 67_108_864
    http_max_connection_count: int = 0
    http_header_forward_pattern: str = ""
    http_restricted_apis: tuple[RestrictedCalls, ...] = ()
    https_certificate: str = ""
    https_key: str = ""
    http_access_log: str = ""
    allow_trtis_v1: bool = False
    allow_grpc: bool = True
    grpc_address: str = "0.0.0.0"
    grpc_port: int = 8001
    grpc_reuse_port: bool = False
    grpc_header_forward_pattern: str = ""
    grpc_restricted_protocols: tuple[RestrictedCalls, ...] = ()
    grpc_use_ssl: bool = False
    grpc_use_ssl_mutual: bool = False
    grpc_server_cert: str = ""
    grpc_server_key: str = ""
    grpc_root_cert: str = ""
    grpc_compression_level: CompressionLevel = "none"
    grpc_max_connection_count: int = 0
    grpc_max_concurrent_streams: int = 1024
    grpc_max_inflated_byte_size: int = 67_108_864
    grpc_keepalive_time_ms: int = 7_200_000
    grpc_keepalive_timeout_ms: int = 20_000
    grpc_keepalive_permit_without_calls: bool = False
    grpc_http2_max_pings_without_data: int = 2
    grpc_http2_min_recv_ping_interval_without_data_ms: int = 300_000
    grpc_http2_max_ping_strikes: int = 2
    grpc_max_connection_age_ms: int = 0
    grpc_max_connection_age_grace_ms: int = 0
    allow_metrics: bool = True
    metrics_address: str = "0.0.0.0"
    metrics_port: int = 8002
    allow_cpu_metrics: bool = True
    allow_gpu_metrics: bool = True
    metrics_interval_ms: float = 2000
    metrics_config: tuple[str, ...] = ()
    trace_config: tuple[tuple[str, str, str], ...] = ()
    max_inflight_byte_size: int = 1_073_741_824
    max_stream_response_count: int = 1024
    max_stream_byte_size: int = 67_108_864
    slow_client_timeout_s: float = 30
    idle_timeout_s: float = 600
    log_verbose: int = 0
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_format: LogFormat = "default"
    log_file: str = ""
