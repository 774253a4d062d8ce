"""The command `corectl cluster envoy`: what Envoy has to be told to stand before several servers."""

from __future__ import annotations

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
    from tritonpy_router.replica import Place

_PORT = click.IntRange(0, 65535)


@click.command(short_help="Write a configuration of Envoy.")
@server_options
@click.option(
    "--address",
    default="0.0.0.0",
    show_default=True,
    metavar="ADDRESS",
    help="On which Envoy listens.",
)
@click.option("--http-port", type=_PORT, default=8000, show_default=True, metavar="PORT", help="For HTTP.")
@click.option(
    "--grpc-port",
    type=_PORT,
    default=8001,
    show_default=True,
    metavar="PORT",
    help="For gRPC; the same as --http-port for both on one.",
)
@click.option(
    "--admin-port",
    type=_PORT,
    metavar="PORT",
    help="For Envoy's own pages, on 127.0.0.1; without it there are none.",
)
@click.option(
    "--probe-interval-secs",
    type=click.FloatRange(0.01, 1_000_000_000),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often each server is asked whether it is ready.",
)
@click.option(
    "--sequence-header",
    default="x-sequence-id",
    show_default=True,
    metavar="NAME",
    help="Requests that have this header go to one server for each value of it; '' for none.",
)
@click.option("--tls-cert", default="", metavar="PATH", help="The certificate to show to clients.")
@click.option("--tls-key", default="", metavar="PATH", help="Its private key.")
@click.option(
    "--tls-client-ca",
    default="",
    metavar="PATH",
    help="Have clients show a certificate that this has signed.",
)
@replica_tls_options
@replica_header_option
@click.pass_context
def envoy(  # Any: one per option
    ctx: click.Context,
    /,
    servers: Sequence[str],
    servers_file: Path | None,
    servers_name: str | None,
    **given: Any,
) -> None:
    """Write a configuration of Envoy to standard output, as YAML.

    For traffic that needs none of what `corectl route` does: Envoy does not know which server has which
    model, sequences only by a header, and no loads and unloads for all. Files are named as they lie where
    Envoy runs. With --servers-file its servers are those of now: write it anew when they change.
    """
    import json

    import yaml
    from tritonpy.errors import TritonError

    from tritonpy_router.envoy import EnvoyPlan, configuration

    if given["replica_tls"] != bool(given["replica_ca"]):
        has, lacks = ("tls", "ca") if given["replica_tls"] else ("ca", "tls")
        raise click.UsageError(
            f"got --replica-{has} without --replica-{lacks}: Envoy knows no certificates of the system", ctx
        )
    try:
        plan = EnvoyPlan(
            places=_places(ctx, servers, servers_file, servers_name),
            address=given["address"],
            http_port=given["http_port"],
            grpc_port=given["grpc_port"],
            admin_port=given["admin_port"],
            probe_interval_s=given["probe_interval_secs"],
            sequence_header=given["sequence_header"],
            certificate=given["tls_cert"],
            key=given["tls_key"],
            client_ca=given["tls_client_ca"],
            replica_ca=given["replica_ca"],
            replica_certificate=given["replica_cert"],
            replica_key=given["replica_key"],
            replica_headers=read_headers(ctx, given["headers"]),
        )
    except TritonError as exc:
        raise click.UsageError(exc.message, ctx) from None
    plain = json.loads(json.dumps(configuration(plan)))  # without references from part to part
    text = yaml.safe_dump(plain, sort_keys=False, width=120)
    click.echo(f"# Made by corectl {ctx.command_path.partition(' ')[2]}.\n{text}", nl=False)


def _places(
    ctx: click.Context, servers: Sequence[str], file: Path | None, name: str | None
) -> Sequence[Place]:
    from tritonpy_router.membership import check_names, read_place, read_places

    if (bool(servers), file is not None, name is not None).count(True) != 1:
        raise click.UsageError("expected one of --server, --servers-file and --servers-name", ctx)
    if file is not None:
        try:
            return read_places(file.read_text())
        except (OSError, ValueError) as exc:
            raise click.UsageError(f"--servers-file '{file}' cannot be read: {exc}", ctx) from None
    places = [read_place(text) for text in (servers or (name or "",))]
    check_names(places)
    return places
