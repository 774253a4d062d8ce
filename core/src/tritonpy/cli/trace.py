"""`corectl trace`: what trace files say, in a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from tritonpy.cli.table import format_table
from tritonpy.errors import InvalidArg
from tritonpy.tracing.summary import PHASES, ModelSummary, TracedRequest, read_trace, summarize


@click.group()
def trace() -> None:
    """Read trace files, of this server or of a real Triton."""


@trace.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--model", "model", metavar="NAME", default=None, help="Show requests to this model only.")
@click.option("--requests", "shows_requests", is_flag=True, help="Show each request, step by step.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with times in nanoseconds.")
def summary(files: Sequence[str], model: str | None, shows_requests: bool, as_json: bool) -> None:
    """Show where the time of traced requests went.

    There are means for each model, in microseconds. TOTAL is the whole time in the server, of which P99
    is what 99 of 100 requests do not exceed. OVERHEAD is what none of the other columns is: parsing,
    checking, and passing on. Requests that a model or an ensemble has made stand in rows of their own,
    with `model` under FROM.
    """
    # Numbers are those of one server: what several files have in common need not be one request.
    by_file = [_read(file) for file in files]
    wanted = [[one for one in requests if model in (None, one.model_name)] for requests in by_file]
    if shows_requests:
        _show_requests(wanted, as_json=as_json)
        return
    rows = summarize(one for requests in wanted for one in requests)
    if as_json:
        click.echo(json.dumps([_described(row) for row in rows], indent=2))
        return
    header = ("MODEL", "VERSION", "FROM", "COUNT", "TOTAL", "P99", *(phase.upper() for phase in PHASES))
    click.echo(format_table(header, map(_row, rows)))


def _read(file: str) -> list[TracedRequest]:
    try:
        return read_trace(Path(file).read_bytes(), file)
    except OSError as exc:
        raise click.ClickException(f"cannot read '{file}': {exc.strerror}") from None
    except (InvalidArg, KeyError, TypeError, ValueError) as exc:
        text = exc.message if isinstance(exc, InvalidArg) else f"'{file}' is no trace file: {exc!r}"
        raise click.ClickException(text) from None


def _row(row: ModelSummary) -> list[str]:
    times = (row.mean_ns, row.percentile_ns(99), *(row.phases_ns[phase] for phase in PHASES))
    return [row.model_name, str(row.model_version), row.origin, str(row.count), *map(_us, times)]


def _us(ns: float) -> str:
    return f"{ns / 1000:.1f}" if ns < 99_950 else f"{ns / 1000:.0f}"


def _described(row: ModelSummary) -> dict[str, Any]:  # Any: JSON
    return {
        "model_name": row.model_name,
        "model_version": row.model_version,
        "from": row.origin,
        "count": row.count,
        "total_ns": {
            "mean": round(row.mean_ns),
            "p50": row.percentile_ns(50),
            "p99": row.percentile_ns(99),
            "max": row.total_ns[-1],
        },
        "mean_ns": {phase: round(row.phases_ns[phase]) for phase in PHASES},
    }


def _show_requests(by_file: Iterable[Sequence[TracedRequest]], *, as_json: bool) -> None:
    if as_json:
        described = [_described_request(one) for requests in by_file for one in requests]
        click.echo(json.dumps(described, indent=2))
        return
    for requests in by_file:
        known = {one.id for one in requests}
        for one in requests:
            if one.parent_id not in known:
                _show(one, requests, "")


def _show(one: TracedRequest, requests: Sequence[TracedRequest], indent: str) -> None:
    about = f", request id {one.request_id}" if one.request_id else ""
    click.echo(
        f"{indent}{one.id}  {one.model_name} version {one.model_version}, from {one.origin}{about}: "
        f"{_us(one.total_ns)} us"
    )
    for name, ns in one.steps():
        click.echo(f"{indent}    {_us(ns):>10}  {name}")
    for other in requests:
        if other.parent_id == one.id:
            _show(other, requests, indent + "    ")


def _described_request(one: TracedRequest) -> dict[str, Any]:  # Any: JSON
    return {
        "id": one.id,
        "parent_id": one.parent_id,
        "model_name": one.model_name,
        "model_version": one.model_version,
        "request_id": one.request_id,
        "from": one.origin,
        "total_ns": one.total_ns,
        "phases_ns": one.phases_ns(),
        "steps": [{"name": name, "ns": ns} for name, ns in one.steps()],
    }
