"""`corectl plugins`: what is installed, whether it can be used, and why not."""

from __future__ import annotations

import json

import click

from tritonpy.cli.table import format_table
from tritonpy.plugin_manager import KINDS, PluginInfo, PluginManager


@click.command()
@click.option("--load", is_flag=True, help="Import every plugin, which may take a while, to see its hooks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def plugins(load: bool, as_json: bool) -> None:
    """List the plugins installed here.

    A plugin is imported when the first model needs it; until then its hooks are unknown and its state is
    `available`.
    """
    found: list[PluginInfo] = []
    for kind in KINDS:
        manager = PluginManager(kind)
        if load:
            manager.load_all()
        found += manager.info()
    if as_json:
        click.echo(json.dumps([_as_json(info) for info in found], indent=2))
        return
    header = ("name", "kind", "version", "distribution", "state", "hooks")
    click.echo(
        format_table(
            header,
            [
                (info.name, info.kind, info.version, info.distribution, info.state, " ".join(info.hooks))
                for info in found
            ],
        )
    )
    for info in found:
        if info.state == "failed":
            click.echo(f"\n{info.kind}:{info.name} of {info.distribution} failed:\n{info.error.rstrip()}")


def _as_json(info: PluginInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "kind": info.kind,
        "version": info.version,
        "distribution": info.distribution,
        "state": info.state,
        "hooks": info.hooks,
        "error": info.error,
    }
