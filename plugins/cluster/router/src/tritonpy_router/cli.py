"""The commands that this distribution adds to `corectl`; the rest of it is imported when they are called."""

from __future__ import annotations

import click
from tritonpy.hookspecs import hookimpl  # `tritonpy.plugin` imports numpy, and this runs for `corectl --help`

from tritonpy_router.cluster_cli import cluster
from tritonpy_router.route_cli import route


@hookimpl
def cli_commands(group: click.Group) -> None:
    """See `CliHooks`."""
    group.add_command(route)
    group.add_command(cluster)
