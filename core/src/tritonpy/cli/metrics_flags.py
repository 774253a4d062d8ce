"""The options of `corectl serve` that say what the metrics page shows."""

from __future__ import annotations

import re

import click

from tritonpy.cli.flags import option, port, several, switch


def read_interval(value: str | float) -> float:
    """Read a number of milliseconds; below 10 nothing is sampled more often."""
    text = str(value)
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise click.BadParameter(
            f"Invalid option value. Got {value}; expected a number of milliseconds from 0"
        )
    return float(text)


def read_metrics_setting(value: str) -> str:
    """Read `<setting>=<value>`; see `tritonpy.metrics.settings`."""
    from tritonpy.errors import InvalidArg
    from tritonpy.metrics.settings import read_settings

    try:
        read_settings((value,))
    except InvalidArg as error:
        raise click.BadParameter(error.message) from None
    return value


METRICS: tuple[click.Option, ...] = (
    switch("--allow-metrics", "allow_metrics", "Serve metrics."),
    switch("--allow-cpu-metrics", "allow_cpu_metrics", "Show the machine's processors and memory."),
    switch("--allow-gpu-metrics", "allow_gpu_metrics", "Show the GPUs that the server uses."),
    click.Option(
        ["--metrics-address", "metrics_address"],
        metavar="ADDRESS",
        help="Address for metrics.  [default: the HTTP address]",
    ),
    port("--metrics-port", "metrics_port", "metrics"),
    option(
        "--metrics-interval-ms",
        "metrics_interval_ms",
        "NUMBER",
        "How old what is shown of processors, memory and GPUs may be.",
        read_interval,
    ),
    several(
        "--metrics-config",
        "metrics_config",
        "SETTING=VALUE",
        "Which latencies of models are kept: counter_latencies (true), summary_latencies (false), "
        "histogram_latencies (false), and summary_quantiles=QUANTILE:ERROR,… for the summaries.",
        read_metrics_setting,
    ),
)
