"""The commands `env`, `example-add-sub`, `example-add-sub-script`, `examples` and `check`, the default."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from tritonpy_sdk.pytriton.check.add_sub import ask_here, ask_program
from tritonpy_sdk.pytriton.check.environment import facts

_LOG = "check.txt"


def _options(function: Callable[..., None]) -> Callable[..., None]:
    workspace = click.option(
        "--workspace",
        "-w",
        type=click.Path(path_type=Path),
        help="A directory for what is found out, which does not exist yet.",
    )
    packed = click.option("--zip/--no-zip", "is_packed", default=True, help="Also make a ZIP of it.")
    return workspace(packed(function))


def _run(
    workspace: Path | None, is_packed: bool, steps: Iterable[tuple[str, Callable[[], list[str]]]]
) -> None:
    """Do all steps, print and write down what they find; ends with status 1 where one fails."""
    if workspace is not None and workspace.exists():
        raise click.UsageError(f"--workspace: '{workspace}' exists already")
    place = workspace or Path(tempfile.mkdtemp(prefix="tritonpy-check-"))
    place.mkdir(parents=True, exist_ok=True)
    has_failed = False
    with (place / _LOG).open("w") as log:
        for title, step in steps:
            try:
                lines = step()
            except Exception as exc:  # the other steps say more about it
                has_failed = True
                lines = [f"FAILED: {type(exc).__name__}: {exc}"]
            for line in (f"== {title}", *lines, ""):
                click.echo(line)
                print(line, file=log)
    if is_packed:
        packed = shutil.make_archive(str(place.resolve()), "zip", place)
        click.echo(f"Look through {packed} before you send it to anybody.")
    else:
        click.echo(f"It is written down in {place / _LOG}.")
    if has_failed:
        raise SystemExit(1)


_ENVIRONMENT = ("environment", facts)
_HERE = ("example in this process", ask_here)
_PROGRAM = ("example in a process of its own", ask_program)


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Check this environment: its facts, and an example that is served and asked."""
    if context.invoked_subcommand is None:
        _run(None, True, (_ENVIRONMENT, _HERE, _PROGRAM))


@main.command()
@_options
def env(workspace: Path | None, is_packed: bool) -> None:
    """Write down versions, devices and packages."""
    _run(workspace, is_packed, (_ENVIRONMENT,))


@main.command("example-add-sub")
@_options
def example_add_sub(workspace: Path | None, is_packed: bool) -> None:
    """Serve the example in this process and ask it."""
    _run(workspace, is_packed, (_HERE,))


@main.command("example-add-sub-script")
@_options
def example_add_sub_script(workspace: Path | None, is_packed: bool) -> None:
    """Serve the example in a process of its own and ask it."""
    _run(workspace, is_packed, (_PROGRAM,))


@main.command()
@_options
def examples(workspace: Path | None, is_packed: bool) -> None:
    """Do both."""
    _run(workspace, is_packed, (_HERE, _PROGRAM))


@main.command()
@_options
def check(workspace: Path | None, is_packed: bool) -> None:
    """Do everything."""
    _run(workspace, is_packed, (_ENVIRONMENT, _HERE, _PROGRAM))


if __name__ == "__main__":
    main()
