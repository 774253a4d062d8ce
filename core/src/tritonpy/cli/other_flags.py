"""Options of tritonserver that `corectl serve` has no use for: accepted without effect, or refused.

What tunes machinery that does not exist here is accepted, so that a command line written for tritonserver
goes on to work; what would change what clients see is refused with its reason.
"""

from __future__ import annotations

import click

_NO_THREADS = "one event loop serves all connections"
_NO_POOL = "memory is taken as it is needed"

_IGNORED = (
    # flag, its value, tritonserver's default, why it does nothing here
    ("--http-thread-count", "NUMBER", "8", _NO_THREADS),
    ("--grpc-infer-thread-count", "NUMBER", "2", _NO_THREADS),
    ("--grpc-infer-allocation-pool-size", "NUMBER", "8", "no request objects are kept for later"),
    ("--grpc-max-response-pool-size", "NUMBER", "2147483647", "no response objects are kept for later"),
    ("--buffer-manager-thread-count", "NUMBER", "0", "no threads copy tensors"),
    ("--pinned-memory-pool-byte-size", "NUMBER", "268435456", _NO_POOL),
    ("--cuda-memory-pool-byte-size", "DEVICE:NUMBER", "0:67108864", _NO_POOL),
    ("--cuda-virtual-address-size", "DEVICE:NUMBER", "0:1073741824", _NO_POOL),
    ("--enable-peer-access", "BOOLEAN", "true", "frameworks decide how devices reach each other"),
)

WITHOUT_EFFECT: tuple[click.Option, ...] = tuple(
    click.Option([flag], metavar=metavar, default=default, show_default=True, help=f"Nothing: {why}.")
    for flag, metavar, default, why in _IGNORED
)

REASONS = {flag: why for flag, _, _, why in _IGNORED}
"""Why a flag of `WITHOUT_EFFECT` does nothing."""

_TRACING = "tracing is not there yet"
_CACHE = "there is no response cache yet"
_RATE = "there is no rate limiter yet: instances run as soon as they are free"
_SAGEMAKER = "the SageMaker frontend is not there yet"
_VERTEX = "the Vertex AI frontend is not there yet"

REFUSED = {
    "--allow-cpu-metrics": "metrics of the machine are not there yet; a node exporter has them",
    "--allow-gpu-metrics": "metrics of GPUs are not there yet; a GPU exporter has them",
    "--allow-sagemaker": _SAGEMAKER,
    "--allow-vertex-ai": _VERTEX,
    "--cache-config": _CACHE,
    "--cache-directory": _CACHE,
    "--host-policy": "binding instances to cores and NUMA nodes is not there yet; taskset and numactl do it",
    "--metrics-config": "latency summaries and histograms are not there yet",
    "--metrics-interval-ms": "nothing is sampled yet: counters are read when the page is asked for",
    "--min-supported-compute-capability": "instances on GPUs are not there yet",
    "--model-config-name": "a model's configuration is always its config.pbtxt",
    "--model-load-gpu-limit": "instances on GPUs are not there yet",
    "--model-load-retry-count": "a load that failed is not tried again by itself; `corectl models load` does",
    "--model-load-thread-count": "how many models load at once cannot be set yet",
    "--model-namespacing": "models of equal names in several repositories are not there yet",
    "--rate-limit": _RATE,
    "--rate-limit-resource": _RATE,
    "--repoagent-directory": "repository agents are not there yet",
    "--repository-poll-secs": "the model control mode poll is not there yet; --reload follows changes",
    "--response-cache-byte-size": _CACHE,
    "--sagemaker-port": _SAGEMAKER,
    "--sagemaker-safe-port-range": _SAGEMAKER,
    "--sagemaker-thread-count": _SAGEMAKER,
    "--trace-config": _TRACING,
    "--trace-count": _TRACING,
    "--trace-file": _TRACING,
    "--trace-level": _TRACING,
    "--trace-log-frequency": _TRACING,
    "--trace-rate": _TRACING,
    "--vertex-ai-default-model": _VERTEX,
    "--vertex-ai-port": _VERTEX,
    "--vertex-ai-thread-count": _VERTEX,
}
"""Flags of tritonserver that are refused, and why."""
