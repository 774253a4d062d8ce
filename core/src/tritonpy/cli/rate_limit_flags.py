"""The options of `corectl serve` that say which resources instances share."""

from __future__ import annotations

import click

from tritonpy.cli.flag_types import read_integer
from tritonpy.cli.flags import option, several

MODES = ("off", "execution_count")

Limit = tuple[str, int, int | None]


def read_mode(value: str) -> str:
    """Read one of `MODES`, in any case."""
    if value.lower() not in MODES:
        raise click.BadParameter(
            f"invalid argument for --rate-limit, got: {value}; expected {' or '.join(MODES)}"
        )
    return value.lower()


def read_resource(value: str | Limit) -> Limit:
    """Read `<resource_name>:<count>`, or `<resource_name>:<count>:<device>`."""
    if not isinstance(value, str):  # click reads its own results again
        return value
    name, *numbers = value.split(":")
    if not name or len(numbers) not in (1, 2):
        raise click.BadParameter(
            "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
            f"'<resource_name>:<count>'. Got {value}"
        )
    read = read_integer(0, 2**31 - 1)
    count, *devices = map(read, numbers)
    return name, count, devices[0] if devices else None


RATE_LIMITER: tuple[click.Option, ...] = (
    option(
        "--rate-limit",
        "rate_limit",
        "off|execution_count",
        "When instances execute: off: as soon as they are free; execution_count: when the resources that "
        "their rate_limiter names are free too, and first the one with the fewest executions, each counted "
        "as often as its priority says.",
        read_mode,
    ),
    several(
        "--rate-limit-resource",
        "rate_limit_resources",
        "NAME:COUNT[:DEVICE]",
        "How much there is of a resource, on one device or on each; the name in any case. Without this "
        "option there is as much as the instance that needs most.",
        read_resource,
    ),
)
