"""Options that commands about servers behind them share, such as `route` and `cluster envoy`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])  # Any: one argument per option
Decorator: TypeAlias = Callable[[Command], Command]


def _all_of(*options: Decorator[Any]) -> Decorator[Any]:
    """One decorator for several, the first on top."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


server_options = _all_of(
    click.option(
        "--server",
        "servers",
        multiple=True,
        metavar="[NAME=]HOST[:HTTP_PORT[:GRPC_PORT[:REPLICA_PORT]]]",
        help="A server; its ports are 8000 and 8001 unless it says others. May be repeated.",
    ),
    click.option(
        "--servers-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A file with one server to a line; a router reads it again when it changes.",
    ),
    click.option(
        "--servers-name",
        metavar="HOST[:HTTP_PORT[:GRPC_PORT]]",
        help="A name whose addresses are the servers, such as that of a headless service.",
    ),
)
"""Which servers there are: `servers`, `servers_file`, `servers_name`."""
replica_tls_options = _all_of(
    click.option("--replica-tls", is_flag=True, help="The ports of the servers are encrypted."),
    click.option(
        "--replica-ca", default="", metavar="PATH", help="Certificates that those of servers are checked by."
    ),
    click.option("--replica-cert", default="", metavar="PATH", help="The certificate to show to servers."),
    click.option("--replica-key", default="", metavar="PATH", help="Its private key."),
)
"""TLS towards them: `replica_tls`, `replica_ca`, `replica_cert`, `replica_key`."""
replica_header_option = _all_of(
    click.option(
        "--replica-header",
        "headers",
        multiple=True,
        metavar="NAME:VALUE",
        help="A header for questions that no client asks, such as whether a server is ready: a key that "
        "servers ask for. May be repeated.",
    ),
)
"""`headers`, for `read_headers`."""


def read_headers(ctx: click.Context, headers: Sequence[str]) -> dict[str, str]:
    """The values of `--replica-header` by name.

    Raises:
        click.UsageError: one has another form.
    """
    from tritonpy_router.header_names import is_header_name

    named: dict[str, str] = {}
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name:
            raise click.UsageError(f"--replica-header '{name}' is not understood; expected NAME:VALUE", ctx)
        name, value = name.strip(), value.strip()
        if not is_header_name(name):
            raise click.UsageError(
                f"--replica-header has the name '{name}'; expected that of an HTTP header: letters, digits "
                "and !#$%&'*+-.^_`|~",
                ctx,
            )
        if not value.isprintable():  # it may be a secret, so it is not shown
            raise click.UsageError(
                f"--replica-header '{name}' has a value with a control character; expected text on one line",
                ctx,
            )
        named[name] = value
    return named
