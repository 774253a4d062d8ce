"""`corectl models`: what a running server has loaded."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import click

from tritonpy.cli.http_client import DEFAULT_URL, HttpClient
from tritonpy.cli.table import format_table


@click.command()
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Where the server's HTTP port is.")
@click.option("--timeout", "timeout_s", type=float, default=10.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def models(url: str, timeout_s: float, as_json: bool) -> None:
    """List the models of a running server with their state, and why a model is not ready."""
    with closing(HttpClient(url, timeout_s)) as client:
        found = _index(client)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    keys = ("name", "version", "state", "reason")
    click.echo(format_table(keys, [[str(entry.get(key, "")) for key in keys] for entry in found]))


def _index(client: HttpClient) -> list[dict[str, Any]]:  # Any: JSON
    answer = client.send("POST", "/v2/repository/index", b"")
    if answer.status == 200:
        entries: list[dict[str, Any]] = answer.json()
        return entries
    # A server may keep its index to itself; what is ready can also be read from the statistics.
    stats = client.get_json("/v2/models/stats")
    return [
        {"name": entry["name"], "version": entry["version"], "state": "READY"}
        for entry in stats["model_stats"]
    ]
