"""`corectl new`: the beginning of a plugin, copied from the templates of this distribution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click
from tritonpy.hookspecs import hookimpl  # `tritonpy.plugin` imports numpy, and this runs for `corectl --help`

STRATEGY_TEMPLATES = {
    "c": "strategy/c",
    "c++": "strategy/cpp",
    "cpp": "strategy/cpp",
    "python": "strategy/python",
}
BACKEND_TEMPLATES = {"c++": "backend/cpp", "cpp": "backend/cpp", "python": "backend/python"}


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


def _language(templates: Mapping[str, str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option with which one of these templates is taken."""
    return click.option(
        "--language",
        "--lang",
        type=click.Choice(tuple(templates)),
        default="python",
        show_default=True,
        help="The language to write it in.",
    )


@click.group(short_help="Begin a model or a plugin: source, build recipe, test, and a model that uses it.")
def new() -> None:
    """Begin a model or a plugin: a folder with source, a build recipe, a test and a model that uses it."""


@new.command()
@click.argument("name")
@_language(STRATEGY_TEMPLATES)
@_output
def strategy(name: str, language: str, output: Path | None) -> None:
    """Begin a batching strategy called NAME.

    C and C++ make a shared object, which Triton loads too; Python makes a distribution that pip installs.
    """
    _make(STRATEGY_TEMPLATES[language], name, output)


@new.command()
@click.argument("name")
@_language(BACKEND_TEMPLATES)
@_output
def backend(name: str, language: str, output: Path | None) -> None:
    """Begin a backend called NAME.

    It makes a distribution. A backend in C++ is a library that Triton loads too, which is compiled while a
    wheel is made.
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


@new.command()
@click.argument("name")
@_output
def model(name: str, output: Path | None) -> None:
    """Begin a model in Python called NAME.

    It makes a folder with a model repository, which Triton serves too, a test and type checks.
    """
    _make("model", name, output)


@new.command()
@click.argument("name")
@_output
def agent(name: str, output: Path | None) -> None:
    """Begin a repository agent called NAME.

    It makes a distribution with an agent, which acts on the files of a model before it is loaded.
    """
    _make("agent", name, output)


@new.command()
@click.argument("name")
@_output
def cache(name: str, output: Path | None) -> None:
    """Begin a response cache called NAME.

    It makes a distribution with a cache that keeps responses in files.
    """
    _make("cache", name, output)


@new.command()
@click.argument("name")
@_output
def frontend(name: str, output: Path | None) -> None:
    """Begin a frontend called NAME.

    It makes a distribution with a way into the server on a port of its own.
    """
    _make("frontend", name, output)


@new.command()
@click.argument("name")
@_output
def store(name: str, output: Path | None) -> None:
    """Begin a store called NAME.

    It makes a distribution with a place for model repositories: archives behind `NAME://`.
    """
    _make("store", name, output)


def _make(template: str, name: str, output: Path | None) -> None:
    from tritonpy_sdk.template import TemplateError, copy_template, next_steps

    folder = Path(name) if output is None else output
    try:
        files = copy_template(template, name, folder)
    except TemplateError as exc:
        raise click.ClickException(str(exc)) from exc
    for file in files:
        click.echo(f"made {file}")
    click.echo(f"{folder / 'README.md'} says how to test it and how a model uses it.")
    click.echo("Next:")
    for step in next_steps(folder):
        click.echo(f"  {step}")
