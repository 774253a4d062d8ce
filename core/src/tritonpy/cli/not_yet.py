"""Options that tritonserver has and this version has not: refused, but by name."""

from __future__ import annotations

import click

NOT_YET = frozenset(
    [
        "--allow-client-shm",
        "--allow-cpu-metrics",
        "--allow-gpu-metrics",
        "--allow-sagemaker",
        "--allow-vertex-ai",
        "--buffer-manager-thread-count",
        "--cache-config",
        "--cache-directory",
        "--cuda-memory-pool-byte-size",
        "--cuda-virtual-address-size",
        "--enable-peer-access",
        "--grpc-header-forward-pattern",
        "--grpc-http2-max-ping-strikes",
        "--grpc-http2-max-pings-without-data",
        "--grpc-http2-min-recv-ping-interval-without-data",
        "--grpc-infer-allocation-pool-size",
        "--grpc-infer-response-compression-level",
        "--grpc-infer-thread-count",
        "--grpc-keepalive-permit-without-calls",
        "--grpc-keepalive-time",
        "--grpc-keepalive-timeout",
        "--grpc-max-connection-age",
        "--grpc-max-connection-age-grace",
        "--grpc-max-response-pool-size",
        "--grpc-restricted-protocol",
        "--grpc-root-cert",
        "--grpc-server-cert",
        "--grpc-server-key",
        "--grpc-use-ssl",
        "--grpc-use-ssl-mutual",
        "--host-policy",
        "--http-header-forward-pattern",
        "--http-restricted-api",
        "--http-thread-count",
        "--metrics-config",
        "--metrics-interval-ms",
        "--min-supported-compute-capability",
        "--model-config-name",
        "--model-load-gpu-limit",
        "--model-load-retry-count",
        "--model-load-thread-count",
        "--model-namespacing",
        "--pinned-memory-pool-byte-size",
        "--rate-limit",
        "--rate-limit-resource",
        "--repoagent-directory",
        "--repository-poll-secs",
        "--response-cache-byte-size",
        "--reuse-grpc-port",
        "--reuse-http-port",
        "--sagemaker-port",
        "--sagemaker-safe-port-range",
        "--sagemaker-thread-count",
        "--trace-config",
        "--trace-count",
        "--trace-file",
        "--trace-level",
        "--trace-log-frequency",
        "--trace-rate",
        "--vertex-ai-default-model",
        "--vertex-ai-port",
        "--vertex-ai-thread-count",
    ]
)


class ServeCommand(click.Command):
    """Says of an option it does not have whether tritonserver has it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as exc:
            if exc.option_name in NOT_YET:
                raise click.UsageError(
                    f"'{exc.option_name}' is an option of tritonserver that this version does not have yet; "
                    f"leave it out",
                    ctx,
                ) from exc
            raise
