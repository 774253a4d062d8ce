"""All options of `corectl serve`, in the groups that `--help` shows."""

from __future__ import annotations

import click

from tritonpy.cli import flow_flags, port_flags
from tritonpy.cli.cache_flags import CACHE
from tritonpy.cli.flag_types import (
    read_backend_setting,
    read_bool,
    read_choice,
    read_config_name,
    read_fraction,
    read_gpu_bytes,
    read_gpu_limit,
    read_host_policy,
    read_integer,
    read_plugin_name,
    read_repository,
    read_seconds,
    read_timeout,
    read_verbosity,
)
from tritonpy.cli.flags import number, option, several, switch
from tritonpy.cli.metrics_flags import METRICS
from tritonpy.cli.other_flags import WITHOUT_EFFECT
from tritonpy.cli.rate_limit_flags import RATE_LIMITER
from tritonpy.cli.trace_flags import TRACING

SERVER: tuple[click.Option, ...] = (
    option("--id", "server_id", "TEXT", "Name of the server in its metadata."),
    number(
        "--exit-timeout-secs", "exit_timeout_s", "How long a stopping server waits for requests in flight."
    ),
    switch("--exit-on-error", "exit_on_error", "End with status 1 when a model cannot be loaded at start."),
    switch("--strict-readiness", "strict_readiness", "Be ready only when every model is ready."),
    click.Option(
        ["--malloc", "malloc"],
        type=read_choice("--malloc", "tcmalloc", "jemalloc"),
        metavar="NAME",
        default=None,
        help="Allocate memory with tcmalloc or jemalloc, which must be installed, instead of the system's "
        "allocator; Linux only.",
    ),
    click.Option(
        ["--show-config", "show_config"],
        is_flag=True,
        help="Print each value and where it came from, and end.",
    ),
)

MODELS: tuple[click.Option, ...] = (
    several(
        "--model-repository --model-store",
        "model_repositories",
        "PATH",
        "Directory with models, or s3://, gs:// or as:// with a place in an object store; required.",
        read_repository,
    ),
    option(
        "--model-control-mode",
        "model_control_mode",
        "MODE",
        "Who decides what is loaded: none: everything, at start; poll: everything, and again what changes; "
        "explicit: what is asked for.",
        read_choice("--model-control-mode", "none", "poll", "explicit"),
    ),
    option(
        "--repository-poll-secs",
        "repository_poll_s",
        "SECONDS",
        "How long mode poll waits between two looks at the repositories; 0: never again after the start.",
        read_seconds,
    ),
    option(
        "--repository-timeout-secs",
        "repository_timeout_s",
        "SECONDS",
        "How long one call to an object store may take, with its retries, from 1.",
        read_timeout,
    ),
    several(
        "--load-model", "load_models", "NAME", "Load this model at start, in mode explicit; * alone for all."
    ),
    option(
        "--model-config-name",
        "model_config_name",
        "NAME",
        "Read configs/NAME.pbtxt (or .json, .yaml) of models that have it instead of their config.pbtxt.",
        read_config_name,
    ),
    switch(
        "--model-namespacing",
        "model_namespacing",
        "Serve models of equal names in several repositories side by side.",
    ),
    option(
        "--model-load-thread-count",
        "model_load_thread_count",
        "NUMBER",
        "How many models load at once.",
        read_integer(1, 2**31 - 1),
    ),
    number(
        "--model-load-retry-count",
        "model_load_retry_count",
        "How often a version whose load failed is tried again.",
    ),
    click.Option(
        ["--reload", "reload"],
        is_flag=True,
        help="Load models anew when their files change, without a pause; for development.",
    ),
    click.Option(
        ["--disable-auto-complete-config", "disable_auto_complete_config"],
        is_flag=True,
        help="Take configurations as they are written, without filling in what a model's files say.",
    ),
    click.Option(
        ["--strict-model-config", "strict_model_config"],
        type=read_bool,
        metavar="BOOLEAN",
        is_flag=False,
        flag_value="true",
        default=None,
        help="Deprecated: true is --disable-auto-complete-config.",
    ),
    several(
        "--debug-model",
        "debugged_models",
        "NAME",
        "Run one instance of this model on a thread of the server, without time limits: breakpoint() and "
        "debuggers work.",
    ),
)

PLUGINS: tuple[click.Option, ...] = (
    option("--backend-directory", "backend_directory", "PATH", "Where shared-object backends lie."),
    option(
        "--repoagent-directory", "repo_agent_directory", "PATH", "Where repository agents lie that are files."
    ),
    several(
        "--backend-config",
        "backend_config",
        "[BACKEND,]KEY=VALUE",
        "Setting of one backend or, without its name, of all.",
        read_backend_setting,
    ),
    several(
        "--disable-plugin", "disabled_plugins", "KIND:NAME", "Do not load this plugin.", read_plugin_name
    ),
)

DEVICES: tuple[click.Option, ...] = (
    several(
        "--host-policy",
        "host_policies",
        "POLICY,SETTING=VALUE",
        "Where instances of groups with this host policy run: numa-node=NODE whose memory they take, "
        "cpu-cores=FIRST-LAST[,…] they keep to. Groups that name none have gpu_<id>, cpu or model.",
        read_host_policy,
    ),
    option(
        "--min-supported-compute-capability",
        "min_compute_capability",
        "NUMBER",
        "GPUs below this CUDA compute capability are not used.",
        read_fraction("--min-supported-compute-capability", 1000.0),
    ),
    several(
        "--model-load-gpu-limit",
        "model_load_gpu_limits",
        "DEVICE:FRACTION",
        "Start no instance on a GPU whose memory is used beyond this part when it would be started.",
        read_gpu_limit,
    ),
    number(
        "--pinned-memory-pool-byte-size",
        "pinned_memory_pool_byte_size",
        "Shown in the table of options, nothing else: the server holds tensors in ordinary memory, and "
        "frameworks pin what they copy to GPUs.",
        most=2**63 - 1,
    ),
    several(
        "--cuda-memory-pool-byte-size",
        "cuda_memory_pool_byte_sizes",
        "DEVICE:BYTES",
        "Shown in the table of options, nothing else: the server takes no memory of GPUs, frameworks do.",
        read_gpu_bytes,
    ),
    several(
        "--cuda-virtual-address-size",
        "cuda_virtual_address_sizes",
        "DEVICE:BYTES",
        "Nothing yet: sequences keep no state on GPUs.",
        read_gpu_bytes,
    ),
)

LIMITS: tuple[click.Option, ...] = (
    number(
        "--max-inflight-bytes",
        "max_inflight_byte_size",
        "Bytes of requests held at once; above it HTTP clients wait and gRPC calls are refused. 0: no limit.",
        most=2**63 - 1,
    ),
    number(
        "--max-model-config-bytes",
        "max_model_config_byte_size",
        "Largest configuration of a model, as a file or in a load request.",
    ),
    switch("--allow-client-shm", "allow_client_shm", "Let clients register regions of shared memory."),
    number("--max-shm-regions", "max_region_count", "Regions of shared memory that may be registered."),
    switch(
        "--allow-sent-code",
        "allow_sent_code",
        "Take files with requests to load a model. Their senders run code of their own here.",
    ),
    several(
        "--worker-environment",
        "worker_environment",
        "NAME",
        "Let workers of models see this variable although it holds a secret of the server, such as a key of "
        "an object store; * for all.",
    ),
    option(
        "--strategy-path-policy",
        "strategy_path_policy",
        "any|strict",
        "What a model may name as its batching strategy: anything, or (strict) an installed one or a file in "
        "its own directory.",
        read_choice("--strategy-path-policy", "any", "strict"),
    ),
)

LOGGING: tuple[click.Option, ...] = (
    click.Option(
        ["--log-verbose", "log_verbose"],
        type=read_verbosity,
        metavar="LEVEL",
        is_flag=False,
        flag_value="1",
        default="0",
        show_default=True,
        help="Verbose lines up to this level; 0 for none.",
    ),
    switch("--log-info", "log_info", "Write informational lines."),
    switch("--log-warning", "log_warning", "Write warnings."),
    switch("--log-error", "log_error", "Write errors."),
    option(
        "--log-format",
        "log_format",
        "default|ISO8601|json",
        "Shape of a log line.",
        read_choice("--log-format", "default", "ISO8601", "json"),
    ),
    option("--log-file", "log_file", "PATH", "Write the log there; standard error without it."),
)

GROUPS: dict[str, tuple[click.Option, ...]] = {
    "Server": SERVER,
    "Models": MODELS,
    "Backends and plugins": PLUGINS,
    "Devices": DEVICES,
    "HTTP": port_flags.HTTP,
    "gRPC": port_flags.GRPC,
    "Metrics": METRICS,
    "Limits and access": (*LIMITS, *flow_flags.FLOW),
    "Rate limiter": RATE_LIMITER,
    "Response cache": CACHE,
    "Logging": LOGGING,
    "Tracing": TRACING,
    "Accepted, without effect": WITHOUT_EFFECT,
}
"""Options by the heading they stand under; every option of the command is in exactly one."""
