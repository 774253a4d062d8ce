"""`corectl new`: the beginning of a plugin, copied from the templates of this distribution."""

from __future__ import annotations

from pathlib import Path

import click
from tritonpy.hookspecs import hookimpl  # `tritonpy.plugin` imports numpy, and this runs for `corectl --help`

LANGUAGES = ("c", "cpp", "python")


@hookimpl
def cli_commands(group: click.Group) -> None:
    """See `CliHooks`."""
    group.add_command(new)


@click.group(short_help="Begin a plugin: source, build recipe, test, and a model that uses it.")
def new() -> None:
    """Begin a plugin: a folder with its source, a build recipe, a test and a model that uses it."""


@new.command()
@click.argument("name")
@click.option("--lang", type=click.Choice(LANGUAGES), required=True, help="The language to write it in.")
@click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder to make.  [default: NAME]",
)
def strategy(name: str, lang: str, output: Path | None) -> None:
    """Begin a batching strategy called NAME.

    C and C++ make a shared object, which Triton loads too; Python makes a distribution that pip installs.
    """
    from tritonpy_sdk.template import TemplateError, copy_template

    folder = Path(name) if output is None else output
    try:
        files = copy_template(f"strategy/{lang}", name, folder)
    except TemplateError as exc:
        raise click.ClickException(str(exc)) from exc
    for file in files:
        click.echo(f"made {file}")
    click.echo(f"{folder / 'README.md'} says how to test it and how a model uses it.")
