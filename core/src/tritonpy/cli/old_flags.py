"""Deprecated flags of `corectl serve`, and what they mean in today's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tritonpy.cli.flag_values import Setting, checked_trace_setting, value_type
from tritonpy.options import Flag

_TRACE = (
    # flag, metavar, and the setting of --trace-config that says the same
    ("--trace-file", "PATH", "triton", "file"),
    ("--trace-level", "LEVEL", "", "level"),
    ("--trace-rate", "NUMBER", "", "rate"),
    ("--trace-count", "NUMBER", "", "count"),
    ("--trace-log-frequency", "NUMBER", "triton", "log-frequency"),
)


def _trace_type(mode: str, key: str) -> Callable[[str | Setting], Setting]:
    return lambda value: value if isinstance(value, tuple) else checked_trace_setting(mode, key, value)


STRICT_CONFIG = click.Option(
    ["--strict-model-config", "strict_model_config"],
    type=value_type(Flag("--strict-model-config", "BOOLEAN", "", kind="switch")),
    metavar="BOOLEAN",
    is_flag=False,
    flag_value="true",
    default=None,
    help="Deprecated: true is --disable-auto-complete-config.",
)

CACHE_SIZE = click.Option(
    ["--response-cache-byte-size", "response_cache_byte_size"],
    type=value_type(Flag("--response-cache-byte-size", "BYTES", "", kind="number", most=2**63 - 1)),
    metavar="BYTES",
    default=None,
    help="Deprecated: as --cache-config local,size=BYTES; 0 is no cache.",
)

TRACE: tuple[click.Option, ...] = tuple(
    click.Option(
        [flag],
        type=_trace_type(mode, key),
        multiple=True,
        metavar=metavar,
        help=f"Deprecated: --trace-config {f'{mode},' if mode else ''}{key}={metavar}.",
    )
    for flag, metavar, mode, key in _TRACE
)


def merge_old_flags(ctx: click.Context, given: dict[str, Any]) -> None:  # Any: one per option
    """Move the values of deprecated flags into the options that have replaced them.

    Raises:
        click.UsageError: one is given beside its successor, in Triton's words.
    """
    strict = given.pop("strict_model_config")
    if strict is not None:
        _tell("--strict-model-config", "--disable-auto-complete-config")
        given["auto_complete_config"] &= not strict
    _merge_cache_size(ctx, given)
    _merge_trace_flags(given)


def _merge_cache_size(ctx: click.Context, given: dict[str, Any]) -> None:  # Any: one per option
    byte_size = given.pop("response_cache_byte_size")
    if byte_size is None:
        return
    if given["cache_config"]:
        raise click.UsageError(
            "Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide "
            "one or the other.",
            ctx,
        )
    _tell("--response-cache-byte-size", "--cache-config local,size=BYTES")
    if byte_size:
        given["cache_config"] = (("local", "size", str(byte_size)),)


def _merge_trace_flags(given: dict[str, Any]) -> None:  # Any: one per option
    """Put the settings of the old flags before those of `--trace-config`, which override them."""
    new = {setting[:2] for setting in given["trace_config"]}
    old: list[Setting] = []
    for flag, metavar, mode, key in _TRACE:
        settings = given.pop(flag.removeprefix("--").replace("-", "_"))
        if settings:
            _tell(flag, f"--trace-config {f'{mode},{key}={metavar}'.lstrip(',')}")
            old += settings if (mode, key) not in new else ()
    given["trace_config"] = (*old, *given["trace_config"])


def _tell(flag: str, successor: str) -> None:
    click.echo(f"corectl serve: {flag} is deprecated, use {successor}", err=True)
