"""How an option of `corectl serve` is declared: its flag, the field it fills, how its value is read.

Defaults are those of `ServerOptions`, so that a server that is embedded and one that is started from a
command line behave alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from tritonpy.cli.flag_types import read_bool, read_integer
from tritonpy.options import ServerOptions

Read = Callable[[Any], object]
"""From a word of the command line, or a default, to a value. Any: click hands both to it."""

DEFAULTS = {field.name: field.default for field in fields(ServerOptions)}


def option(flag: str, field: str, metavar: str, help: str, read: Read = str) -> click.Option:
    """An option whose value is read by `read`, or taken as it is."""
    default = DEFAULTS[field]
    return click.Option(
        [flag, field], type=read, metavar=metavar, default=default, show_default=default != "", help=help
    )


def number(flag: str, field: str, help: str, *, least: int = 0, most: int = 2**31 - 1) -> click.Option:
    """An option whose value is a whole number from 0, or from `least`."""
    return option(flag, field, "NUMBER", help, read_integer(least, most))


def port(flag: str, field: str, service: str) -> click.Option:
    """An option whose value is a port to listen on."""
    return number(flag, field, f"Port for {service}; 0 lets the system choose.", most=65535)


def switch(flag: str, field: str, help: str) -> click.Option:
    """An option that is true or false, and true when it stands without a value."""
    return click.Option(
        [flag, field],
        type=read_bool,
        metavar="BOOLEAN",
        is_flag=False,
        flag_value="true",
        default="true" if DEFAULTS[field] else "false",
        show_default=True,
        help=help,
    )


def several(flags: str, field: str, metavar: str, help: str, read: Read = str) -> click.Option:
    """An option that may stand several times; `flags` are separated by blanks."""
    return click.Option(
        [*flags.split(), field], multiple=True, type=read, metavar=metavar, help=f"{help} May be repeated."
    )
