"""`corectl explain`: what a model's scheduler does with its requests, and what could be done about it."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any
from urllib.parse import quote

import click

from tritonpy.cli.explain_findings import findings
from tritonpy.cli.explain_text import describe
from tritonpy.cli.http_client import DEFAULT_URL, HttpClient

JsonObject = dict[str, Any]  # Any: JSON

_COUNTED = (
    "closed",
    "batch_sizes",
    "requests",
    "durations_ns",
    "failures",
    "cache",
    "inferences",
    "executions",
)


@click.command()
@click.argument("model")
@click.option("--model-version", default="", help="Only this version.  [default: all that are loaded]")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Look twice, so far apart, and tell of what came between.  [default: everything since the load]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the numbers, and what was found in them.")
@click.option("--url", default=DEFAULT_URL, show_default=True, help="Where the server's HTTP port is.")
@click.option(
    "--timeout", "timeout_s", type=float, default=10.0, show_default=True, help="Seconds to wait for it."
)
def explain(
    model: str, model_version: str, seconds: float, as_json: bool, url: str, timeout_s: float
) -> None:
    """Say why the batches of a model have the sizes they have, and where its requests spend their time."""
    with closing(HttpClient(url, timeout_s)) as client:
        found = _ask(client, model, model_version)
        if seconds:
            time.sleep(seconds)
            found = [
                difference(before, after)
                for after in _ask(client, model, model_version)
                for before in found
                if before["version"] == after["version"]
            ]
    if as_json:
        click.echo(json.dumps([facts | {"findings": findings(facts)} for facts in found], indent=2))
        return
    click.echo("\n\n".join(describe(facts, findings(facts)) for facts in found))


def difference(before: JsonObject, after: JsonObject) -> JsonObject:
    """The counts and durations between two looks at a version; all of the later look after a reload."""
    seconds = after["seconds"] - before["seconds"]
    if seconds <= 0:
        return after
    between = {key: _less(after[key], before[key]) for key in _COUNTED}
    sizes = {size: batch for size, batch in between["batch_sizes"].items() if batch["count"]}
    closed = {reason: count for reason, count in between["closed"].items() if count}
    return after | between | {"seconds": seconds, "batch_sizes": sizes, "closed": closed}


def _less(after: Any, before: Any) -> Any:  # Any: numbers, and objects of them
    if not isinstance(after, dict):
        return after - (before or 0)
    return {key: _less(value, (before or {}).get(key)) for key, value in after.items()}


def _ask(client: HttpClient, model: str, version: str) -> list[JsonObject]:
    path = f"/v2/models/{quote(model, safe='')}"
    if version:
        path += f"/versions/{quote(version, safe='')}"
    answer = client.send("GET", f"{path}/explain")
    if answer.status != 200:
        raise click.ClickException(f"{answer.error.rstrip()} (HTTP status {answer.status})")
    found: list[JsonObject] = answer.json()["models"]
    return found
