"""The commands `corectl cluster …`: several servers as one, on this machine or on those of an engine."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tritonpy_router.cluster_flags import read_change, read_flags, read_resources, read_tls, split_flags
from tritonpy_router.envoy_cli import envoy

if TYPE_CHECKING:
    from tritonpy_router.engines import Engine

T = TypeVar("T")

_name = click.option(
    "--name",
    default="default",
    show_default=True,
    metavar="NAME",
    help="Of the fleet, where several run on this machine, or in a cluster.",
)
_engine = click.option(
    "--engine",
    metavar="ENGINE",
    help="What the servers were started with, such as ray; without it: corectl cluster local, here.",
)
_address = click.option(
    "--address",
    default="auto",
    show_default=True,
    metavar="ADDRESS",
    help="Of the engine's cluster, in its own form.",
)


@click.group(short_help="Run several servers as one.")
def cluster() -> None:
    """Run several servers as one: on this machine with `local`, on several with `up`."""


cluster.add_command(envoy)


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
    for each server; all get --log-... and --trace-config. Ctrl-C answers what is under way, and ends all.
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


@cluster.command(
    short_help="Start servers and routers on several machines.",
    context_settings={"ignore_unknown_options": True},
)
@click.option("--engine", required=True, metavar="ENGINE", help="What starts them, and keeps them: ray.")
@_address
@click.option("-r", "--model-repository", "--model-store", "repositories", multiple=True, metavar="PATH")
@_name
@click.option(
    "--replicas",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="Servers; the fewest, with --max-replicas.",
)
@click.option(
    "--max-replicas",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Have more servers while requests wait for longer than they should, up to so many.",
)
@click.option(
    "--target-queue-ms",
    type=click.FloatRange(0, min_open=True),
    default=50.0,
    show_default=True,
    metavar="MS",
    help="How long requests may wait on average, with --max-replicas.",
)
@click.option(
    "--spare",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="COUNT",
    help="Servers beyond those, which serve like the others: that many may be lost at once.",
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME=AMOUNT",
    help="What each server needs of its machine: cpu, gpu, or a name that the engine knows; cpu=1 where "
    "nothing is said. May be repeated.",
)
@click.option(
    "--start-timeout-secs",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a server may take to serve.",
)
@click.option("--no-router", is_flag=True, help="Start servers alone.")
@click.option(
    "--scale-up-secs",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="With --max-replicas: over which waiting is averaged, and between one server more and the next.",
)
@click.option(
    "--scale-down-secs",
    type=click.FloatRange(0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="With --max-replicas: between a change of the number of servers and one server less.",
)
@click.option(
    "--server-cert",
    default="",
    metavar="PATH",
    help="The certificate that servers show to routers, which then speak TLS with them; a file on each "
    "machine, as those of --replica-ca, --replica-cert and --replica-key.",
)
@click.option("--server-key", default="", metavar="PATH", help="Its private key, on each machine.")
@click.option(
    "--server-client-ca",
    default="",
    metavar="PATH",
    help="Certificates that servers check those of routers by, on each machine.",
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def up(
    ctx: click.Context,
    /,
    engine: str,
    address: str,
    repositories: Sequence[str],
    name: str,
    replicas: int,
    max_replicas: int | None,
    target_queue_ms: float,
    spare: int,
    resources: Sequence[str],
    start_timeout_secs: float,
    no_router: bool,
    scale_up_secs: float,
    scale_down_secs: float,
    server_cert: str,
    server_key: str,
    server_client_ca: str,
    flags: Sequence[str],
) -> None:
    """Start servers on the machines of a cluster, and a router on each machine; returns when they serve.

    Options of `corectl route` are the routers': ports, log, policy. All others are those of `corectl serve`,
    for each server; all get --log-... and --trace-config. Repositories must be what all machines can read.
    The file of --replica-token-file is read here; without it the fleet has a token of its own.
    """
    from tritonpy_router.engines import FleetPlan

    if not repositories:
        raise click.UsageError("--model-repository must be specified", ctx)
    if max_replicas is not None and max_replicas < replicas:
        raise click.UsageError(f"--max-replicas {max_replicas} is less than --replicas {replicas}", ctx)
    found = read_flags(ctx, repositories, flags)
    plan = FleetPlan(
        server_flags=tuple(found.server_flags),
        router_flags=None if no_router else tuple(found.router_flags),
        tls=read_tls(ctx, found.router, server_cert, server_key, server_client_ca),
        replica_token=found.router.replica_token,
        replica_count=replicas,
        most_replicas=max_replicas or replicas,
        target_queue_ms=target_queue_ms,
        scale_up_s=scale_up_secs,
        scale_down_s=scale_down_secs,
        spare_count=spare,
        resources=read_resources(ctx, resources),
        start_timeout_s=start_timeout_secs,
        exit_timeout_s=found.exit_timeout_s,
    )

    def start(engine: Engine) -> Sequence[Mapping[str, Any]]:  # Any: JSON
        engine.up(name, plan)
        return engine.status(name)

    click.echo(table(_told(engine, address, start)))


@cluster.command(short_help="Show the servers of a fleet.")
@_name
@_engine
@_address
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def status(name: str, engine: str | None, address: str, watch: bool, as_json: bool) -> None:
    """Show the servers of a fleet, and its routers where it has several."""
    import json

    out = sys.stdout  # what engines print is kept out of it

    def show(rows: Callable[[], Sequence[Mapping[str, Any]]]) -> None:  # Any: JSON
        while True:
            found = rows()
            if as_json:
                click.echo(json.dumps(found), file=out)
            else:
                if watch and out.isatty():
                    click.echo("\033[2J\033[H", nl=False, file=out)
                click.echo(table(found), file=out)
            if not watch:
                return
            time.sleep(1)

    if engine is None:
        show(lambda: _ask(name, {"do": "status"})["servers"])
    else:
        _told(engine, address, lambda found: show(lambda: found.status(name)))


@cluster.command(short_help="Have more servers, or fewer.")
@click.argument("count", type=click.IntRange(1))
@_name
@_engine
@_address
def scale(count: int, name: str, engine: str | None, address: str) -> None:
    """Have COUNT servers; those that go answer what they have accepted."""
    if engine is None:
        _ask(name, {"do": "scale", "count": count})
    else:
        _told(engine, address, lambda found: found.scale(name, count))


@cluster.command(
    short_help="Replace servers and routers one by one.", context_settings={"ignore_unknown_options": True}
)
@_name
@_engine
@_address
@click.option(
    "-r",
    "--model-repository",
    "--model-store",
    "repositories",
    multiple=True,
    metavar="PATH",
    help="With --engine: of the new servers, which then have the options of `corectl serve` that stand here.",
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def update(
    ctx: click.Context,
    /,
    name: str,
    engine: str | None,
    address: str,
    repositories: Sequence[str],
    flags: Sequence[str],
) -> None:
    """Replace each server by a new one, when that serves: with other code, or other configurations.

    With --engine, routers are replaced after that. New ones have the options of `corectl route` that stand
    here, or those of the old ones where none stands here.
    """
    if engine is None:
        if repositories:
            raise click.UsageError(
                "--model-repository needs --engine: servers of this machine keep theirs", ctx
            )
        if flags:
            raise click.UsageError(f"{flags[0]} needs --engine: servers of this machine keep theirs", ctx)
        failure = _ask(name, {"do": "update"}).get("failure")
        if failure:
            raise click.ClickException(failure)
        return
    from tritonpy_router.engines import FleetChange

    found, has_routers = read_change(ctx, repositories, flags)
    change = FleetChange(
        server_flags=tuple(found.server_flags) if repositories else None,
        router_flags=tuple(found.router_flags) if has_routers else None,
        exit_timeout_s=found.exit_timeout_s,
    )
    _told(engine, address, lambda connected: connected.update(name, change))


@cluster.command(short_help="End a fleet.")
@_name
@_engine
@_address
def down(name: str, engine: str | None, address: str) -> None:
    """End the servers and the routers, which answer what they have accepted."""
    if engine is None:
        _ask(name, {"do": "down"})
    else:
        _told(engine, address, lambda found: found.down(name))


def _told(engine: str, address: str, do: Callable[[Engine], T]) -> T:
    """Do something with an engine; what it refuses is an error of the command.

    Engines and their libraries may print at any time: that goes to standard error; programs read the rest.
    """
    from tritonpy.errors import TritonError

    from tritonpy_router.engines import find_engine

    try:
        with contextlib.redirect_stdout(sys.stderr):
            return do(find_engine(engine, address))
    except TritonError as exc:
        raise click.ClickException(exc.message) from None


def table(rows: Sequence[Mapping[str, Any]]) -> str:  # Any: JSON
    """Rows of a fleet for a terminal, with the columns that some have."""
    columns = list(dict.fromkeys(key for row in rows for key in row)) or ["name", "state"]
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
