"""All flags of `corectl serve` in the groups of its help, made from the fields of `ServerOptions`."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import click

from tritonpy.cli import old_flags
from tritonpy.cli.flag_values import value_type
from tritonpy.cli.other_flags import WITHOUT_EFFECT
from tritonpy.options import Flag, ServerOptions

FLAGS: dict[str, Flag] = {
    field.name: field.metadata["flag"] for field in fields(ServerOptions) if "flag" in field.metadata
}
"""By field."""


def _made(name: str, flag: Flag, default: object) -> click.Option:
    if flag.kind == "mark":
        return click.Option([*flag.names.split(), name], is_flag=True, help=flag.help)
    alone: dict[str, Any] = {"flag_value": flag.alone} if flag.alone else {}  # Any: None is a value to click
    is_repeated = isinstance(default, tuple) or default is MISSING
    return click.Option(
        [*flag.names.split(), name],
        type=value_type(flag),
        metavar=flag.value,
        multiple=is_repeated,
        is_flag=False,
        **alone,
        default=None if is_repeated or flag.follows else str(default).lower() if flag.alone else default,
        show_default=not (is_repeated or flag.follows or default in ("", None)),
        help=flag.help + (" May be repeated." if is_repeated else ""),
    )


def _restriction_file(name: str, flag: str, help: str) -> click.Option:
    return _made(name, Flag(flag, "PATH", help, kind="restriction file"), ())


_BESIDE: dict[str, tuple[click.Option, ...]] = {
    "strict_readiness": (
        _made(
            "malloc",
            Flag(
                "--malloc",
                "NAME",
                "Allocate memory with tcmalloc or jemalloc, which must be installed, instead of the system's "
                "allocator; Linux only.",
                kind="choice",
                choices=("tcmalloc", "jemalloc"),
            ),
            None,
        ),
        click.Option(
            ["--show-config", "show_config"],
            is_flag=True,
            help="Print each value and where it came from, and end.",
        ),
    ),
    "reload": (
        click.Option(
            ["--disable-auto-complete-config", "disable_auto_complete_config"],
            is_flag=True,
            help="Take configurations as they are written, without filling in what a model's files say.",
        ),
        old_flags.STRICT_CONFIG,
    ),
    "http_restricted_apis": (
        _restriction_file(
            "http_restricted_api_files",
            "--http-restricted-api-file",
            "A file whose lines are as --http-restricted-api takes them: command lines can be read by "
            "everybody.",
        ),
    ),
    "grpc_restricted_protocols": (
        _restriction_file(
            "grpc_restricted_protocol_files",
            "--grpc-restricted-protocol-file",
            "A file whose lines are as --grpc-restricted-protocol takes them.",
        ),
    ),
    "cache_timeout_ms": (old_flags.CACHE_SIZE,),
    "trace_config": old_flags.TRACE,
}
"""What only a command line has, behind the field that it stands beside in the help."""


def _groups() -> dict[str, tuple[click.Option, ...]]:
    groups: dict[str, list[click.Option]] = {}
    group: list[click.Option] = []
    for field in fields(ServerOptions):
        if flag := FLAGS.get(field.name):
            group = groups.setdefault(flag.heading, []) if flag.heading else group
            group += (_made(field.name, flag, field.default), *_BESIDE.get(field.name, ()))
    return {heading: tuple(options) for heading, options in groups.items()}


GROUPS = {**_groups(), "Accepted, without effect": WITHOUT_EFFECT}
"""Options by the heading they stand under; every option of the command is in exactly one."""
