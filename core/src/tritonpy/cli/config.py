"""`corectl config`: what is wrong with configurations, what becomes of them, and their three forms."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tritonpy.cli.flag_values import value_type
from tritonpy.options import Flag

if TYPE_CHECKING:
    from tritonpy.config.write import ConfigForm

FORM_NAMES = ("pbtxt", "json", "yaml")

strict_option = click.option(
    "--strict",
    "is_strict",
    is_flag=True,
    help="As with --disable-auto-complete-config: nothing is filled in by the model's backend.",
)
name_option = click.option(
    "--model-config-name",
    "config_name",
    default="",
    metavar="NAME",
    help="Take configs/NAME.pbtxt of models that have one.",
)


@click.group()
def config() -> None:
    """Check, show and convert configurations of models, without a server.

    Configurations may be in protobuf text format, JSON or YAML; a file's name tells which.
    """


@config.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@strict_option
@name_option
def check(paths: Sequence[Path], is_strict: bool, config_name: str) -> int:
    """Say what is wrong with configurations, with file, line and column.

    PATH is a model's directory, a repository with all its models, or a configuration file. Checked is
    everything that a server checks before it asks the model's backend; whether the configuration fits the
    model's file is seen by `corectl config show`. Ends with status 1 when something is wrong; a warning is
    not. With --strict a configuration has to be there and to name inputs and outputs, too.
    """
    from tritonpy.cli.config_check import check_config, find_targets
    from tritonpy.errors import TritonError

    error_count = target_count = 0
    for path in paths:
        try:
            targets = find_targets(path)
        except TritonError as error:
            raise click.UsageError(error.message) from error
        for target in targets:
            target_count += 1
            for finding in check_config(target, is_strict=is_strict, config_name=config_name):
                click.echo(str(finding))
                error_count += not finding.is_warning
    checked = "1 configuration" if target_count == 1 else f"{target_count} configurations"
    errors = {0: "no error", 1: "1 error"}.get(error_count, f"{error_count} errors")
    click.echo(f"{checked} checked: {errors}", err=True)
    return 1 if error_count else 0


@config.command()
@click.argument("directory", metavar="MODEL_DIR", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORM_NAMES),
    default="json",
    show_default=True,
    help="How to print it. JSON has every field, as the server's answer does; the others what is set.",
)
@click.option(
    "--no-backend", is_flag=True, help="Do not ask the model's backend, which may not be installed."
)
@strict_option
@name_option
@click.option(
    "--backend-config",
    multiple=True,
    type=value_type(Flag("--backend-config", "", "", kind="backend setting")),
    metavar="<string>,<string>=<string>",
    help="As for `corectl serve`, such as default-max-batch-size=8. May be repeated.",
)
@click.option(
    "--backend-directory",
    default=None,
    metavar="DIRECTORY",
    help="As for `corectl serve`: where backends lie that are files.",
)
def show(
    directory: Path,
    form: ConfigForm,
    no_backend: bool,
    is_strict: bool,
    config_name: str,
    backend_config: Sequence[tuple[str, str, str]],
    backend_directory: str | None,
) -> None:
    """Print the configuration that a model would be served with, as GET /v2/models/NAME/config shows it.

    It is the newest version's that would be served. Names that follow from the files, and defaults, are
    filled in. Then the model's backend completes it as in a load: it may read the model's file, and the
    `auto_complete_config` of a Python model runs. Nothing is initialized or executed; whether the model
    works is seen only when it is loaded. Where the backend is not asked (--no-backend, --strict), what it
    would fill in is missing. Standard error says whether it was asked.
    """
    from tritonpy.cli.config_preview import settled_preview
    from tritonpy.devices.gpus import Gpus
    from tritonpy.errors import TritonError
    from tritonpy.lifecycle.loading.loader import LoaderSettings

    if not directory.is_dir():
        raise click.UsageError(f"'{directory}' is no directory; expected that of a model")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    gpus = Gpus()
    gpus.discover()
    settings = LoaderSettings(
        auto_complete_config=not is_strict, backend_config=tuple(backend_config), gpus=gpus
    )
    if backend_directory is not None:
        settings = replace(settings, backend_directory=backend_directory)
    try:
        document = settled_preview(directory, settings, asks_backend=not no_backend, config_name=config_name)
    except TritonError as error:
        raise click.ClickException(error.message) from error
    except OSError as exc:
        raise click.ClickException(f"'{exc.filename or directory}': {exc.strerror}") from exc
    by = "not asked" if no_backend or is_strict else "asked, as in a load"
    if "ensemble_scheduling" in document:
        click.echo("an ensemble has no backend; whether it fits its models is seen in a load", err=True)
    else:
        click.echo(f"backend '{document['backend']}' was {by}", err=True)
    click.echo(_written(document, form), nl=False)


@config.command()
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    type=click.Choice(FORM_NAMES),
    default=None,
    help="The form to write; else as OUT's name says.",
)
@click.option(
    "-o",
    "--output",
    default=None,
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="Write this file instead of printing.",
)
def convert(source: Path, form: ConfigForm | None, output: Path | None) -> None:
    """Write a configuration in another form: protobuf text format, JSON or YAML.

    Every field of the configuration stays; comments do not. Nothing is filled in and nothing is judged but
    the form: a field that does not exist is an error.
    """
    from tritonpy.config.load import FORMS, load_config
    from tritonpy.config.write import write_config
    from tritonpy.errors import TritonError

    if form is None:
        form = FORMS.get(output.suffix) if output is not None else None
    if form is None:
        raise click.UsageError(
            f"say with --to what to write: {', '.join(FORM_NAMES)}; or name a file that ends so with -o"
        )
    try:
        text = write_config(load_config(source), form)
    except TritonError as error:
        raise click.ClickException(error.message) from error
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise click.ClickException(f"cannot write '{output}': {exc.strerror}") from exc


def _written(document: dict[str, object], form: ConfigForm) -> str:
    if form == "json":
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    from tritonpy.config.read import read_document
    from tritonpy.config.write import write_config

    return write_config(read_document(document), form)
