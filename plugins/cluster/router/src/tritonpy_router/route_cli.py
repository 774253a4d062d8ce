"""The command `corectl route`; the rest of the distribution is imported when it is called."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritonpy_router.replica_cli import (
    read_headers,
    replica_header_option,
    replica_tls_options,
    server_options,
)

if TYPE_CHECKING:
    from tritonpy.options import ServerOptions

    from tritonpy_router.membership import Membership
    from tritonpy_router.options import RouterOptions

PORT_FLAG = re.compile(
    r"--((https?|grpc|log)-[\w-]+|metrics-(address|port)|allow-(http|grpc|metrics)|max-inflight-bytes|idle-timeout"
    r"|reuse-(http|grpc|metrics)-port|exit-timeout-secs|drain-delay-s(ecs)?|trace-config)"
)
_LOGGER = "tritonpy.router"


@click.command(
    short_help="Stand before several servers as one.",
    context_settings={"ignore_unknown_options": True},
)
@server_options
@click.option(
    "--members",
    metavar="SCHEME://REST",
    help="What tells which servers there are: k8s://NAMESPACE/SERVICE, or what another distribution brings.",
)
@click.option(
    "--policy",
    type=click.Choice(("two-choices", "least-busy", "round-robin")),
    default="two-choices",
    show_default=True,
    help="Which of the servers that have a model gets a request.",
)
@click.option(
    "--max-replica-inflight",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="COUNT",
    help="Requests of this router under way at one server, above which they wait here; 0: any number.",
)
@click.option(
    "--max-queued",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    metavar="COUNT",
    help="Requests that may wait.",
)
@click.option(
    "--queue-timeout-secs",
    type=click.FloatRange(0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a request may wait.",
)
@click.option(
    "--probe-interval-secs",
    type=click.FloatRange(0.01),
    default=0.25,
    show_default=True,
    metavar="SECONDS",
    help="How often each server is asked whether it is ready.",
)
@click.option(
    "--load-timeout-secs",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a server may take to load a model that a client asks for.",
)
@click.option(
    "--await-servers-secs",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    metavar="SECONDS",
    help="Listen when all servers take requests, or after so long; for a router that shares the ports of one "
    "that it replaces.",
)
@click.option(
    "--state-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file, on a volume of all routers, in which they keep together what clients have loaded through "
    "them; a router that is started anew takes it up.",
)
@click.option(
    "--replicas-share-host",
    is_flag=True,
    help="The servers run on this machine, so that clients may send tensors in shared memory.",
)
@replica_tls_options
@click.option(
    "--replica-tls-name",
    default="",
    metavar="NAME",
    help="The name that certificates of servers are for, where it is not the host by which one is reached.",
)
@click.option(
    "--replica-service-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    metavar="PORT",
    help="Where servers that have the frontend 'replica' offer it, unless --server says another port; 0: "
    "they are asked over HTTP.",
)
@click.option(
    "--replica-token-file",
    type=click.Path(dir_okay=False),
    help="A file with the token that the frontend 'replica' of servers asks for.",
)
@replica_header_option
@click.argument("port_flags", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def route(  # Any: one per option
    ctx: click.Context,
    /,
    servers: Sequence[str],
    servers_file: Path | None,
    servers_name: str | None,
    members: str | None,
    **given: Any,
) -> int:
    """Stand before several servers as one: HTTP and gRPC, the models of all of them.

    Those of `corectl serve`'s options that are about its ports, its log and its traces mean the same here:
    --http-..., --https-..., --grpc-..., --metrics-..., --allow-http, --allow-grpc, --allow-metrics,
    --max-inflight-bytes, --idle-timeout, --drain-delay-secs, --exit-timeout-secs, --log-..., and
    --trace-config in mode opentelemetry.
    """
    from tritonpy.cli.serve import SWITCH_INTERVAL_S
    from tritonpy.errors import TritonError

    from tritonpy_router.program import run

    options = router_options(ctx, given)
    try:
        membership = _membership(ctx, servers, servers_file, servers_name, members)
    except TritonError as exc:
        raise click.UsageError(exc.message, ctx) from None
    return run(options, membership, SWITCH_INTERVAL_S)


def router_options(ctx: click.Context, given: dict[str, Any]) -> RouterOptions:  # Any: as in `route`
    """The router's settings from the options of `route` that do not say which servers there are.

    Raises:
        click.UsageError: they do not go together.
    """
    from tritonpy.errors import TritonError

    from tritonpy_router.dispatcher import QueueLimits
    from tritonpy_router.options import RouterOptions
    from tritonpy_router.secrets import read_token

    ports = _ports(ctx, given["port_flags"])
    token_file = given["replica_token_file"]
    try:
        token = "" if token_file is None else read_token(token_file, "--replica-token-file")
    except TritonError as exc:
        raise click.UsageError(exc.message, ctx) from None
    return RouterOptions(
        ports=ports,
        policy=given["policy"],
        limits=QueueLimits(given["max_replica_inflight"], given["max_queued"], given["queue_timeout_secs"]),
        probe_interval_s=given["probe_interval_secs"],
        load_timeout_s=given["load_timeout_secs"],
        exit_timeout_s=ports.exit_timeout_s,
        drain_delay_s=ports.drain_delay_s,
        await_servers_s=given["await_servers_secs"],
        state_file=given["state_file"],
        shares_host=given["replicas_share_host"],
        replica_tls=given["replica_tls"],
        replica_ca=given["replica_ca"],
        replica_tls_name=given["replica_tls_name"],
        replica_certificate=given["replica_cert"],
        replica_key=given["replica_key"],
        replica_service_port=given["replica_service_port"],
        replica_token=token,
        replica_headers=read_headers(ctx, given["headers"]),
    )


def _ports(ctx: click.Context, flags: Sequence[str]) -> ServerOptions:
    from tritonpy.cli.serve import options_of

    expects_value = False
    for word in flags:
        flag = word.partition("=")[0]
        if not word.startswith("-") and expects_value:
            expects_value = False
        elif PORT_FLAG.fullmatch(flag):
            expects_value = "=" not in word
        else:
            raise click.UsageError(f"unrecognized option '{flag}'", ctx)
    try:
        return options_of(["--model-repository=/", *flags])
    except click.UsageError as exc:
        raise click.UsageError(exc.message, ctx) from None


def _membership(
    ctx: click.Context, servers: Sequence[str], file: Path | None, name: str | None, members: str | None
) -> Membership:
    import logging
    import os

    from tritonpy_router.membership import MembershipOptions, open_membership

    given = [
        *([f"static://{','.join(servers)}"] if servers else []),
        *([f"file://{file}"] if file is not None else []),
        *([f"dns://{name}"] if name is not None else []),
        *([members] if members is not None else []),
    ]
    if len(given) != 1:
        raise click.UsageError("expected one of --server, --servers-file, --servers-name and --members", ctx)
    return open_membership(given[0], MembershipOptions(os.environ, logging.getLogger(_LOGGER).warning))
