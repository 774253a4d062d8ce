"""`corectl plugins`: what is installed, whether it can be used, and why not."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from tritonpy.cli.table import format_table
from tritonpy.hookspecs import API_VERSION
from tritonpy.plugin_faults import version_text
from tritonpy.plugin_manager import KINDS, PluginInfo, PluginManager


@click.group(invoke_without_command=True)
@click.option("--load", is_flag=True, help="Import every plugin, which may take a while, to see its hooks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_context
def plugins(context: click.Context, load: bool, as_json: bool) -> None:
    """List the plugins installed here.

    A plugin is imported when the first model needs it; until then its hooks are unknown and its state is
    `available`. One that is a library has its path instead of hooks. Behind the table stands the version of
    the plugin interface that this server has, which in JSON each plugin has as `server_api_version` beside
    its own.
    """
    if context.invoked_subcommand is not None:
        return
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
                (
                    *(info.name, info.kind, info.version, info.distribution, info.state),
                    info.library or " ".join(info.hooks),
                )
                for info in found
            ],
        )
    )
    click.echo(f"plugin interface: {version_text(API_VERSION)}")
    for info in found:
        for text in info.deprecated:
            click.echo(f"\n{info.kind}:{info.name} of {info.distribution}: {text}")
        if info.state == "failed":
            click.echo(f"\n{info.kind}:{info.name} of {info.distribution} failed:\n{info.error.rstrip()}")
            if info.error != info.reason:
                click.echo(info.reason)


@plugins.command()
@click.argument("names", metavar="[KIND:NAME]...", nargs=-1)
def check(names: Sequence[str]) -> int:
    """Say which plugins cannot be used, and why.

    Checked are those that are named, such as `backends:onnxruntime`, or all. Each is imported in a process of
    its own; a backend is initialised, which opens what it needs, and finalised; a library is opened. Ends
    with status 1 when one of them cannot be used.
    """
    from tritonpy.cli.plugin_check import check_plugin

    installed = {f"{info.kind}:{info.name}": info for kind in KINDS for info in PluginManager(kind).info()}
    for name in names:
        if name not in installed:
            raise click.UsageError(f"no plugin '{name}' is installed; installed: {', '.join(installed)}")
    fault_count = 0
    for name in names or installed:
        info = installed[name]
        trial = check_plugin(info.kind, info.name)
        fault_count += bool(trial.fault)
        click.echo(f"{name} of {info.distribution} {info.version}: {trial.fault or 'can be used'}")
        for text in trial.deprecated:
            click.echo(f"  {text}")
    return 1 if fault_count else 0


def _as_json(info: PluginInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "kind": info.kind,
        "version": info.version,
        "distribution": info.distribution,
        "state": info.state,
        "hooks": info.hooks,
        "library": info.library,
        "api_version": info.api_version,
        "server_api_version": API_VERSION,
        "deprecated": info.deprecated,
        "reason": info.reason,
        "error": info.error,
    }
