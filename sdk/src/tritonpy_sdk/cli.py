"""`corectl new`: the beginning of a plugin, copied from the templates of this distribution."""

from __future__ import annotations

from pathlib import Path

import click
from tritonpy.hookspecs import hookimpl  # `tritonpy.plugin` imports numpy, and this runs for `corectl --help`

LANGUAGES = ("c", "cpp", "python")
BACKEND_TEMPLATES = {"c++": "backend/cpp", "cpp": "backend/cpp"}


@hookimpl
def cli_commands(group: click.Group) -> None:
    """See `CliHooks`."""
    group.add_command(new)


_output = click.option(
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder to make.  [default: NAME]",
)


@click.group(short_help="Begin a plugin: source, build recipe, test, and a model that uses it.")
def new() -> None:
    """Begin a plugin: a folder with its source, a build recipe, a test and a model that uses it."""


@new.command()
@click.argument("name")
@click.option(
    "--lang", "--language", type=click.Choice(LANGUAGES), required=True, help="The language to write it in."
)
@_output
def strategy(name: str, lang: str, output: Path | None) -> None:
    """Begin a batching strategy called NAME.

    C and C++ make a shared object, which Triton loads too; Python makes a distribution that pip installs.
    """
    _make(f"strategy/{lang}", name, output)


@new.command()
@click.argument("name")
@click.option(
    "--language",
    "--lang",
    type=click.Choice(tuple(BACKEND_TEMPLATES)),
    required=True,
    help="The language to write it in.",
)
@_output
def backend(name: str, language: str, output: Path | None) -> None:
    """Begin a backend called NAME.

    It makes a distribution with a backend in C++, as a library that Triton loads too, which is compiled while
    a wheel is made.
    """
    _make(BACKEND_TEMPLATES[language], name, output)


@new.command()
@click.argument("name")
@_output
def ops(name: str, output: Path | None) -> None:
    """Begin a package of custom operators called NAME.

    It makes a distribution with an operator in C++ for PyTorch and for TensorFlow, each of which may be left
    out. Who installs it can serve models that call the operator.
    """
    _make("ops", name, output)


def _make(template: str, name: str, output: Path | None) -> None:
    from tritonpy_sdk.template import TemplateError, copy_template

    folder = Path(name) if output is None else output
    try:
        files = copy_template(template, name, folder)
    except TemplateError as exc:
        raise click.ClickException(str(exc)) from exc
    for file in files:
        click.echo(f"made {file}")
    click.echo(f"{folder / 'README.md'} says how to test it and how a model uses it.")
