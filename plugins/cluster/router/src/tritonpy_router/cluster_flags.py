"""What commands for fleets are told: flags of routers and of servers, taken apart and checked."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from tritonpy_router.engines import FleetTls
    from tritonpy_router.options import RouterOptions

_BOTH = (
    *("--log-format", "--log-verbose", "--log-info", "--log-warning", "--log-error"),
    *("--exit-timeout-secs", "--trace-config"),
)
"""Flags that routers and servers get."""
_MEMBERS = ("--server", "--servers-file", "--servers-name", "--members", "--replica-service-port")
_TOWARDS_SERVERS = (
    "--replica-tls",
    "--replica-ca",
    "--replica-tls-name",
    "--replica-cert",
    "--replica-key",
    "--replica-token-file",
)
"""Flags of routers that have to go with what servers do, and so hold for as long as a fleet."""
_FILES = (
    "--https-certificate",
    "--https-key",
    "--https-client-ca",
    "--grpc-server-cert",
    "--grpc-server-key",
    "--grpc-root-cert",
    "--state-file",
)
"""Flags of routers that name files."""
REPLICA_FLAG = re.compile(r"(--frontend-config=)?replica(,|$)")
"""A word that sets up the service `Replica` of a server."""


class FleetFlags(NamedTuple):
    """What routers and servers on several machines are told.

    Attributes:
        router_flags: of `corectl route`, without what goes with servers.
        server_flags: of `corectl serve`, its repositories with them.
        router: what all flags of routers come to.
        exit_timeout_s: how long a router or a server may take to end, with its drain delay.
    """

    router_flags: list[str]
    server_flags: list[str]
    router: RouterOptions
    exit_timeout_s: float


def read_flags(ctx: click.Context, repositories: Sequence[str], flags: Sequence[str]) -> FleetFlags:
    """Take the flags of a fleet on several machines apart.

    Raises:
        click.UsageError: they are not understood, or not for fleets.
    """
    from tritonpy.cli.serve import options_of

    from tritonpy_router.route_cli import route, router_options

    for_routers, for_servers = split_flags(ctx, flags)
    for name in _names(for_routers):
        if name in _MEMBERS:
            raise click.UsageError(f"{name} is not for fleets: they know their servers", ctx)
    if any(REPLICA_FLAG.match(word) for word in for_servers):
        raise click.UsageError(
            "the frontend 'replica' is not for fleets, whose servers all have it: --replica-token-file sets "
            "its token, --server-cert encrypts it",
            ctx,
        )
    with route.make_context("route", ["--server=127.0.0.1", *for_routers]) as inner:
        router = router_options(inner, inner.params)
    servers = [*(f"--model-repository={_path(each)}" for each in repositories), *for_servers]
    try:
        server = options_of(servers if repositories else ["--model-repository=/", *servers])
    except click.UsageError as exc:
        raise click.UsageError(exc.message, ctx) from None
    if router.ports.log_file:
        raise click.UsageError("--log-file is not for fleets: the engine keeps the logs", ctx)
    if not router.ports.allow_metrics:
        raise click.UsageError(
            "--allow-metrics=false is not for fleets: routers tell there whom they know", ctx
        )
    own = _without(for_routers, _TOWARDS_SERVERS)
    return FleetFlags(
        _changed(own, _FILES, os.path.abspath),
        servers,
        router,
        max(server.exit_timeout_s + server.drain_delay_s, router.exit_timeout_s + router.drain_delay_s),
    )


def read_change(
    ctx: click.Context, repositories: Sequence[str], flags: Sequence[str]
) -> tuple[FleetFlags, bool]:
    """Take the flags of an update apart; returns whether there are any for routers, too.

    Raises:
        click.UsageError: they are not understood, or an update cannot change what they say.
    """
    for_routers, for_servers = split_flags(ctx, flags)
    for name in _names(for_routers):
        if name in _TOWARDS_SERVERS:
            raise click.UsageError(
                f"{name} is not for updates: it is told to corectl cluster up, and holds until `down`",
                ctx,
            )
    has_routers = bool(set(for_routers) - set(for_servers))
    own = set(for_servers) - set(for_routers) if has_routers else set(for_servers)
    if own and not repositories:
        first = next(word for word in flags if word in own)
        raise click.UsageError(
            f"got {first} without --model-repository: what new servers are told is told whole", ctx
        )
    return read_flags(ctx, repositories, flags), has_routers


def read_tls(
    ctx: click.Context, router: RouterOptions, certificate: str, key: str, client_ca: str
) -> FleetTls | None:
    """How routers and servers speak TLS with each other.

    Args:
        ctx: of the command.
        router: options of routers.
        certificate: a path, for servers; "" for none.
        key: likewise.
        client_ca: likewise.

    Raises:
        click.UsageError: something is missing.
    """
    from tritonpy_router.engines import FleetTls

    paths = (router.replica_ca, router.replica_certificate, router.replica_key)
    wants_tls = router.replica_tls or router.replica_tls_name or any(paths)
    if not (certificate or key or client_ca or wants_tls):
        return None
    if not certificate or not key:
        raise click.UsageError(
            "TLS between routers and servers needs the files of servers, --server-cert and --server-key",
            ctx,
        )
    if bool(router.replica_certificate) != bool(router.replica_key):
        raise click.UsageError("--replica-cert and --replica-key need each other", ctx)
    if client_ca and not router.replica_certificate:
        raise click.UsageError(
            "--server-client-ca needs --replica-cert and --replica-key, which routers show to servers", ctx
        )
    return FleetTls(
        server_certificate=os.path.abspath(certificate),
        server_key=os.path.abspath(key),
        server_client_ca=client_ca and os.path.abspath(client_ca),
        replica_ca=router.replica_ca and os.path.abspath(router.replica_ca),
        replica_name=router.replica_tls_name,
        replica_certificate=router.replica_certificate and os.path.abspath(router.replica_certificate),
        replica_key=router.replica_key and os.path.abspath(router.replica_key),
    )


def read_resources(ctx: click.Context, texts: Sequence[str]) -> dict[str, float]:
    """What each server needs, of texts as NAME=AMOUNT.

    Raises:
        click.UsageError: a text has another form.
    """
    found = {} if texts else {"cpu": 1.0}
    for text in texts:
        name, equals, amount = text.partition("=")
        try:
            number = float(amount)
        except ValueError:
            number = -1.0
        if not (name and equals and 0 <= number < float("inf")):
            raise click.UsageError(
                f"--resource '{text}' is not understood; expected NAME=AMOUNT, such as gpu=1", ctx
            )
        found[name] = number
    return found


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


def _path(repository: str) -> str:
    """A repository as it is called from other folders."""
    return repository if "://" in repository else os.path.abspath(repository)


def _names(words: Sequence[str]) -> Iterator[str]:
    """The flags among words, without their values."""
    return (word.partition("=")[0] for word in words if word.startswith("-"))


def _without(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Words without some flags, and the values that stand behind these."""
    kept: list[str] = []
    keeps = True
    for word in words:
        if word.startswith("-"):
            keeps = word.partition("=")[0] not in names
        if keeps:
            kept.append(word)
    return kept


def _changed(words: Sequence[str], names: Collection[str], change: Callable[[str], str]) -> list[str]:
    """Words in which the values of some flags are others."""
    changed: list[str] = []
    flag = ""
    for word in words:
        if word.startswith("-"):
            flag, has_value, value = word.partition("=")
            changed.append(f"{flag}={change(value)}" if has_value and flag in names else word)
        else:
            changed.append(change(word) if flag in names else word)
    return changed
