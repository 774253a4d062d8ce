"""The options of `corectl serve` that concern the response cache."""

from __future__ import annotations

from typing import Any

import click

from tritonpy.cli.flag_types import read_integer
from tritonpy.cli.flags import number, option, several

CacheSetting = tuple[str, str, str]

_FORMAT = "--cache-config option format is"


def read_cache_setting(value: str | CacheSetting) -> CacheSetting:
    """Read `<cache>,<key>=<value>`."""
    if not isinstance(value, str):  # click reads its own results again
        return value
    name, comma, setting = value.partition(",")
    key, equals, text = setting.partition("=")
    if not comma or not name:
        raise click.BadParameter(f"No cache specified. {_FORMAT} <cache name>,<setting>=<value>. Got {value}")
    if not equals or not key or not text:
        raise click.BadParameter(f"{_FORMAT} '<cache name>,<setting>=<value>'. Got {value}")
    return name, key, text


CACHE: tuple[click.Option, ...] = (
    several(
        "--cache-config",
        "cache_config",
        "CACHE,KEY=VALUE",
        "Setting of the response cache, which models with response_cache { enable: true } use: "
        "local,size=BYTES keeps responses in memory.",
        read_cache_setting,
    ),
    option("--cache-directory", "cache_directory", "PATH", "Where caches lie that are files."),
    number(
        "--cache-timeout-ms",
        "cache_timeout_ms",
        "How long a request waits for a cache that is not in memory before it goes on without; from 1.",
        least=1,
    ),
    click.Option(
        ["--response-cache-byte-size", "response_cache_byte_size"],
        type=read_integer(0, 2**63 - 1),
        metavar="BYTES",
        default=None,
        help="Deprecated: as --cache-config local,size=BYTES; 0 is no cache.",
    ),
)


def take_old_size(ctx: click.Context, given: dict[str, Any]) -> None:  # Any: see `serve`
    """Put the deprecated option into `cache_config`.

    Raises:
        click.UsageError: both are given, in Triton's words.
    """
    byte_size = given.pop("response_cache_byte_size")
    if byte_size is None:
        return
    if given["cache_config"]:
        raise click.UsageError(
            "Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide "
            "one or the other.",
            ctx,
        )
    click.echo(
        "corectl serve: --response-cache-byte-size is deprecated, use --cache-config local,size=BYTES",
        err=True,
    )
    if byte_size:
        given["cache_config"] = (("local", "size", str(byte_size)),)
