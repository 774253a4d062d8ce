"""The commands `corectl cluster …`: several servers on this machine, and a router before them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

_BOTH = ("--log-format", "--log-verbose", "--log-info", "--log-warning", "--log-error", "--exit-timeout-secs")
"""Flags that the router and the servers get."""
_name = click.option(
    "--name",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Of the fleet, where several run on this machine.",
)


@click.group(short_help="Run several servers on this machine as one.")
def cluster() -> None:
    """Run several servers on this machine as one."""


@cluster.command(short_help="Start servers and a router.", context_settings={"ignore_unknown_options": True})
@click.argument("count", type=click.IntRange(1))
@click.option("-r", "--model-repository", "--model-store", "repositories", multiple=True, metavar="PATH")
@_name
@click.option(
    "--no-router",
    is_flag=True,
    help="Have all servers listen on the same ports, and the system share connections out: for models "
    "without sequences, and many connections.",
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def local(
    ctx: click.Context,
    /,
    count: int,
    repositories: Sequence[str],
    name: str,
    no_router: bool,
    flags: Sequence[str],
) -> int:
    """Start COUNT servers and a router before them; a server that ends is started again.

    Options of `corectl route` are the router's: ports, log, policy. All others are those of `corectl serve`,
    for each server. Ctrl-C answers what is under way, and ends all.
    """
    from tritonpy.cli.serve import options_of

    from tritonpy_router.route_cli import route, router_options

    if not repositories:
        raise click.UsageError("--model-repository must be specified", ctx)
    for_router, for_servers = split_flags(ctx, flags)
    with route.make_context("route", ["--server=127.0.0.1", "--replicas-share-host", *for_router]) as inner:
        options = router_options(inner, inner.params)
    servers = [*(f"--model-repository={path}" for path in repositories), *for_servers]
    try:
        options_of(servers)
    except click.UsageError as exc:
        raise click.UsageError(exc.message, ctx) from None
    if options.ports.log_file:
        raise click.UsageError(
            "--log-file is not for fleets: the log of all is this program's standard error", ctx
        )
    from tritonpy_router.cluster_program import run

    return run(options, servers, count, name, has_router=not no_router)


@cluster.command(short_help="Show the servers of a fleet.")
@_name
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def status(name: str, watch: bool, as_json: bool) -> None:
    """Show the servers of a fleet that runs on this machine."""
    import json

    while True:
        rows = _ask(name, {"do": "status"})["servers"]
        if as_json:
            click.echo(json.dumps(rows))
        else:
            if watch:
                click.clear()
            click.echo(table(rows))
        if not watch:
            return
        time.sleep(1)


@cluster.command(short_help="Have more servers, or fewer.")
@click.argument("count", type=click.IntRange(1))
@_name
def scale(count: int, name: str) -> None:
    """Have COUNT servers; those that go answer what they have accepted."""
    _ask(name, {"do": "scale", "count": count})


@cluster.command(short_help="Replace the servers one by one.")
@_name
def update(name: str) -> None:
    """Replace each server by a new one, when that serves: with other code, or other configurations."""
    failure = _ask(name, {"do": "update"}).get("failure")
    if failure:
        raise click.ClickException(failure)


@cluster.command(short_help="End a fleet.")
@_name
def down(name: str) -> None:
    """End the servers and the router, which answer what they have accepted."""
    _ask(name, {"do": "down"})


def split_flags(ctx: click.Context, flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags of the router and those of servers, each with its value; some are both.

    Raises:
        click.UsageError: a word stands where a flag is expected.
    """
    from tritonpy_router.route_cli import PORT_FLAG, route

    own = {name for option in route.params if isinstance(option, click.Option) for name in option.opts}
    router: list[str] = []
    servers: list[str] = []
    targets: tuple[list[str], ...] = ()
    for word in flags:
        flag = word.partition("=")[0]
        if word.startswith("-"):
            is_port = bool(PORT_FLAG.fullmatch(flag))
            if flag in _BOTH:
                targets = router, servers
            else:
                targets = (router,) if is_port or flag in own else (servers,)
        elif not targets:
            raise click.UsageError(f"unexpected argument '{word}'", ctx)
        for target in targets:
            target.append(word)
    return router, servers


def table(rows: Sequence[dict[str, Any]]) -> str:  # Any: JSON
    """Rows of `Fleet.rows` for a terminal."""
    columns = ["name", "pid", "state", "http", "grpc", "metrics", "restarts"]
    if any("queue_ms" in row for row in rows):  # some have told
        columns += ["inflight", "pending", "queue_ms"]
    cells = [
        columns,
        *(tuple("-" if row.get(key) is None else str(row[key]) for key in columns) for row in rows),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(columns))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _ask(name: str, question: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    from tritonpy.errors import TritonError

    from tritonpy_router.cluster_control import ask, socket_path

    try:
        answer = ask(socket_path(name), question)
    except TritonError as exc:
        raise click.ClickException(exc.message) from None
    if "error" in answer:
        raise click.ClickException(str(answer["error"]))
    return answer
