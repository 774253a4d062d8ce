"""`corectl models`: what a running server has loaded, and loading and unloading it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import click

from tritonpy.cli.http_client import DEFAULT_URL, Answer, HttpClient, repository_path
from tritonpy.cli.models_watch import (
    IndexWatch,
    index_table,
    read_index,
    unknown_model_hint,
    watch_action,
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]  # Any: click passes one keyword per option

_LOAD_TIMEOUT_S = 600.0


def timeout_option(seconds: float) -> Decorator:
    """The option `--timeout`: seconds to wait for an answer."""
    return click.option(
        "--timeout", "timeout_s", type=float, default=seconds, show_default=True, help="Seconds to wait."
    )


# None in a command of the group: then the group's is taken, which may stand before the command.
url_option = click.option(
    "--url", default=None, help=f"Where the server's HTTP port is.  [default: {DEFAULT_URL}]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
watch_option = click.option(
    "--watch",
    is_flag=True,
    help="Show the states as they change, until they change no more; Ctrl-C ends only that.",
)
names_argument = click.argument("names", metavar="MODEL...", nargs=-1, required=True)


@click.group(invoke_without_command=True)
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Where the server's HTTP port is.")
@timeout_option(10.0)
@json_option
@click.pass_context
def models(ctx: click.Context, url: str, timeout_s: float, as_json: bool) -> None:
    """List the models of a running server with their state, and why a model is not ready.

    The commands below load and unload models; the server must run with --model-control-mode=explicit.
    """
    ctx.obj = url
    if ctx.invoked_subcommand is None:
        _show_index(url, timeout_s, as_json=as_json, ready=False)


@models.command()
@url_option
@timeout_option(10.0)
@json_option
@click.option("--ready", is_flag=True, help="Only versions that take requests.")
@watch_option
@click.pass_obj
def index(server: str, /, url: str | None, timeout_s: float, as_json: bool, ready: bool, watch: bool) -> None:
    """List models, as `corectl models` alone does."""
    if watch:
        if as_json or ready:
            raise click.UsageError("--watch shows all states as they change; leave out --json and --ready")
        with closing(HttpClient(url or server, timeout_s)) as client:
            IndexWatch(client).run()
        return
    _show_index(url or server, timeout_s, as_json=as_json, ready=ready)


@models.command()
@names_argument
@click.option(
    "--config",
    default=None,
    metavar="JSON|@FILE",
    help="The model's configuration as JSON, or the file that has it, instead of its config.pbtxt.",
)
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="PATH=FILE",
    help="A file to send, such as 1/model.py=model.py; needs --config. The model then has no other files.",
)
@watch_option
@url_option
@timeout_option(_LOAD_TIMEOUT_S)
@click.pass_obj
def load(
    server: str,
    /,
    names: Sequence[str],
    config: str | None,
    files: Sequence[str],
    watch: bool,
    url: str | None,
    timeout_s: float,
) -> int:
    """Load models, and wait until they serve.

    A model that serves is loaded anew if its files have changed, and goes on to serve meanwhile.
    """
    parameters = {}
    if config is not None:
        parameters["config"] = _read_config(config)
    for given in files:
        path, content = _read_file(given)
        parameters[f"file:{path}"] = content
    if parameters and len(names) > 1:
        raise click.UsageError("--config and --file are for one model; name only one")
    return _each(url or server, timeout_s, names, "load", parameters, "loaded", watch=watch)


@models.command()
@names_argument
@watch_option
@url_option
@timeout_option(_LOAD_TIMEOUT_S)
@click.pass_obj
def reload(server: str, /, names: Sequence[str], watch: bool, url: str | None, timeout_s: float) -> int:
    """Load models anew even if their files have not changed.

    The old ones serve until the new ones do. What an earlier load sent with it is dropped.
    """
    return _each(url or server, timeout_s, names, "load", {"force": True}, "reloaded", watch=watch)


@models.command()
@names_argument
@click.option("--unload-dependents", is_flag=True, help="For an ensemble, also the models it is made of.")
@watch_option
@url_option
@timeout_option(10.0)
@click.pass_obj
def unload(
    server: str,
    /,
    names: Sequence[str],
    unload_dependents: bool,
    watch: bool,
    url: str | None,
    timeout_s: float,
) -> int:
    """Take models out of service.

    Requests that they have accepted are still answered.
    """
    parameters = {"unload_dependents": unload_dependents}
    return _each(url or server, timeout_s, names, "unload", parameters, "unloaded", watch=watch)


def _show_index(url: str, timeout_s: float, *, as_json: bool, ready: bool) -> None:
    with closing(HttpClient(url, timeout_s)) as client:
        found = read_index(client, ready=ready)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    click.echo(index_table(found))


def _each(
    url: str,
    timeout_s: float,
    names: Sequence[str],
    action: str,
    parameters: dict[str, Any],  # Any: JSON
    done: str,
    *,
    watch: bool,
) -> int:
    """Ask for each model in turn; returns the exit status, 1 when one of them was refused."""
    outcomes = _ask(url, timeout_s, names, action, parameters)
    if watch:  # the outcomes are printed after the last redraw
        outcomes = watch_action(url, timeout_s, names, partial(list, outcomes))
    status = 0
    for name, answer in outcomes:
        if answer.status == 200:
            click.echo(f"{done} {name}")
        else:
            hint = _hint(url, timeout_s, name, answer)
            click.echo(f"Error: {answer.error.rstrip()} (HTTP status {answer.status}){hint}", err=True)
            status = 1
    return status


def _hint(url: str, timeout_s: float, name: str, answer: Answer) -> str:
    if "explicit model load / unload is not allowed" in answer.error:
        return "; start the server with --model-control-mode=explicit"
    if "failed to poll from model repository" not in answer.error:
        return ""
    with closing(HttpClient(url, timeout_s)) as client:
        return unknown_model_hint(client, name)


def _ask(
    url: str,
    timeout_s: float,
    names: Sequence[str],
    action: str,
    parameters: dict[str, Any],  # Any: JSON
) -> Iterable[tuple[str, Answer]]:
    body = json.dumps({"parameters": parameters}).encode()
    with closing(HttpClient(url, timeout_s)) as client:
        for name in names:
            yield name, client.send("POST", repository_path(name, action), body)


def _read_config(given: str) -> str:
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise click.BadParameter(f"cannot read '{given[1:]}': {exc}", param_hint="--config") from exc


def _read_file(given: str) -> tuple[str, str]:
    path, separator, file = given.partition("=")
    if not separator or not path or not file:
        raise click.BadParameter(
            f"got '{given}', expected the path in the model and the file to send, such as "
            f"1/model.py=model.py",
            param_hint="--file",
        )
    try:
        return path, base64.b64encode(Path(file).read_bytes()).decode()
    except OSError as exc:
        raise click.BadParameter(f"cannot read '{file}': {exc.strerror}", param_hint="--file") from exc
