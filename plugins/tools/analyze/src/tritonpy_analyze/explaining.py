"""`corectl explain` with predictions: what a model's numbers say, and what would change them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from tritonpy.cli.explain_findings import Finding, findings
from tritonpy.cli.explain_text import describe
from tritonpy.cli.http_client import HttpClient, model_path
from tritonpy.errors import TritonError
from tritonpy_bench import BenchError, Concurrency, Load, Stability, measure
from tritonpy_bench.measurement import Measurement
from tritonpy_bench.report_json import measurement_json

from tritonpy_analyze.facts import LOOK_S, look, look_twice
from tritonpy_analyze.measured import (
    CHECKPOINT,
    Measured,
    measured_findings,
    measured_text,
    read_measured,
)
from tritonpy_analyze.outlook import (
    Outlook,
    further_findings,
    outlook,
    outlook_json,
    outlook_text,
    steps_text,
)
from tritonpy_analyze.progress import progress

JsonObject = dict[str, Any]  # Any: JSON

ANALYSIS = Path("analysis")
"""The folder in which `corectl analyze` writes unless it is told another."""


def explain(
    model: str,
    version: str,
    seconds: float,
    as_json: bool,
    url: str,
    timeout_s: float,
    load: int,
    analysis: Path | None = None,
) -> None:
    """Look, perhaps under a load of so many requests at once, and print.

    Args:
        model: what is explained.
        version: of it; "" for all that are loaded.
        seconds: between two looks; 0 for everything since the load.
        as_json: print JSON.
        url: of the server.
        timeout_s: for its answers.
        load: requests at once that are sent between the looks; 0 for none.
        analysis: the folder of an analysis; None for that in which `corectl analyze` writes, if it is there.

    Raises:
        click.ClickException: the server has no such model, or does not answer.
    """
    brought: list[Measurement] = []

    def bring(for_s: float) -> None:
        if load:
            place = client.url.partition("://")[2] if client.url.startswith("http://") else client.url
            wanted = Load(model=model, version=version, url=place, pace=Concurrency(load))
            window = Stability(window_s=for_s, windows=1, most_windows=1, warmup_s=0)
            try:
                brought.append(measure(wanted, window))
            except BenchError as exc:
                raise click.ClickException(str(exc)) from exc
        else:
            time.sleep(for_s)

    with closing(HttpClient(url, timeout_s)) as client, progress(f"explain {model}", None) as say:
        say(f"{load} requests at once" if load else "looking")
        wanted_s = seconds or (LOOK_S if load else 0.0)
        if load:
            _check_load(client, model, version)
        measured = _measured(client, model, analysis, load)  # refused before a load is brought
        found = look_twice(client, model, version, wanted_s, bring)
        steps = _steps(client, found)
    if as_json:
        click.echo(json.dumps([_json(facts, brought, load, measured) for facts in found], indent=2))
        return
    click.echo("\n\n".join(_text(facts, steps, brought, load, measured) for facts in found))


def _measured(client: HttpClient, model: str, folder: Path | None, load: int) -> Measured | None:
    """What an analysis has measured of the model, if one has."""

    def served(name: str) -> JsonObject:
        answer = client.send("GET", f"{model_path(name)}/config")
        config: JsonObject = answer.json() if answer.status == 200 else {}
        return config

    place = folder or ANALYSIS
    if folder is None and not (place / CHECKPOINT).is_file():
        return None
    try:
        return read_measured(place, model, served, load)
    except TritonError as exc:
        problem = exc.message
    except OSError as exc:
        problem = f"{CHECKPOINT}: {exc.strerror}"
    if folder is None:  # nobody asked for it
        click.echo(
            f"corectl explain: what corectl analyze measured is left out: {problem}; --analysis names "
            f"another folder",
            err=True,
        )
        return None
    raise click.ClickException(f"--analysis '{place}': {problem}")


def _check_load(client: HttpClient, model: str, version: str) -> None:
    policy = look(client, model, version)[0]["config"].get("model_transaction_policy") or {}
    if policy.get("decoupled"):
        raise click.ClickException(
            f"model '{model}' is decoupled, and --load sends requests that have one response: bring a load "
            f"with corectl bench --streaming, and explain the model with --seconds meanwhile"
        )


def _steps(client: HttpClient, found: Sequence[JsonObject]) -> list[JsonObject]:
    """The facts of the steps of an ensemble since their load."""
    settings = found[0]["scheduler"]["settings"] if found else {}
    names = dict.fromkeys(step["model_name"] for step in settings.get("step", ()))
    return [facts for name in names for facts in look_twice(client, name, "", 0.0)]


def _json(
    facts: JsonObject, brought: Sequence[Measurement], load: int, measured: Measured | None
) -> JsonObject:
    predicted = outlook(facts, load)
    told = {key: value for key, value in facts.items() if key != "config"}
    return {
        **told,
        "findings": _findings(facts, predicted, measured),
        "outlook": outlook_json(predicted) if predicted is not None else None,
        "analysis": measured.json() if measured is not None else None,
        "clients": [measurement_json(measurement) for measurement in brought],
    }


def _findings(facts: JsonObject, predicted: Outlook | None, measured: Measured | None) -> list[Finding]:
    """What was measured stands before what is predicted."""
    known = measured_findings(measured) if measured is not None else []
    return [*findings(facts), *known, *further_findings(facts, predicted)]


def _text(
    facts: JsonObject,
    steps: Sequence[JsonObject],
    brought: Sequence[Measurement],
    load: int,
    measured: Measured | None,
) -> str:
    predicted = outlook(facts, load)
    parts = [describe(facts, _findings(facts, predicted, measured))]
    if steps:
        parts.append(steps_text(steps))
    if measured is not None:
        parts.append(measured_text(measured))
    if predicted is not None:
        parts.append(outlook_text(predicted))
    for measurement in brought:
        server_us = facts["durations_ns"]["success"] / max(1, facts["requests"]["success"]) / 1000
        outside = max(0.0, measurement.latency_us() - server_us)
        parts.append(
            f"Clients sent {measurement.requests_per_s:.4g} requests a second, {measurement.load.pace}: mean "
            f"{measurement.latency_us() / 1000:.3g} ms, p99 {measurement.latency_us(99) / 1000:.3g} ms; "
            f"{outside:.0f} µs of the mean are outside of the model: protocol, network and the client."
        )
    return "\n\n".join(parts)
