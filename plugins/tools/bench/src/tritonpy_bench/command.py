"""What `corectl bench` does: loads from options, one after the other, and reports."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from tritonpy_bench.errors import BenchError
from tritonpy_bench.load import Inputs, Load, SequenceShape, SharedMemory, Stability
from tritonpy_bench.measurement import Measurement, Window
from tritonpy_bench.paces import (
    Concurrency,
    Pace,
    PeriodicConcurrency,
    Rate,
    read_intervals,
    read_replay,
)
from tritonpy_bench.progress import Say, live_line
from tritonpy_bench.ranges import numbers
from tritonpy_bench.report_csv import csv_report
from tritonpy_bench.report_html import html_report
from tritonpy_bench.report_json import measurement_json
from tritonpy_bench.report_text import text_report
from tritonpy_bench.run import OnWindow, measure
from tritonpy_bench.tls import TlsFiles


def run(
    *,
    model: str,
    model_version: str,
    protocol: Literal["http", "grpc"],
    url: str | None,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    http_url: str | None,
    concurrencies: tuple[int, int, int],
    growing: tuple[int, int, int] | None,
    request_period: int,
    rates: tuple[float, float, float] | None,
    distribution: Literal["constant", "poisson"],
    intervals: Path | None,
    replay: Path | None,
    replay_speed: float,
    processes: int,
    batch_size: int,
    sources: Sequence[str],
    shapes: Sequence[str],
    string_length: int,
    string_data: str | None,
    window_ms: int,
    stability_percentage: float,
    max_trials: int,
    percentile: float | None,
    warmup_s: float,
    request_count: int,
    threshold_ms: float | None,
    binary_search: bool,
    streaming: bool,
    endpoint: Literal["infer", "generate", "generate_stream"],
    shared_memory: SharedMemory,
    cuda_device: int,
    output_byte_size: int,
    tokens: str,
    sequence_length: int | None,
    sequence_variation: float,
    sequence_count: int,
    first_id: int,
    id_count: int,
    headers: Sequence[str],
    parameters: Sequence[str],
    timeout_s: float,
    csv: Path | None,
    html: Path | None,
    as_json: bool,
) -> int:
    """Measure, and print; the options are those of the command."""
    load = Load(
        model=model,
        version=model_version,
        protocol=protocol,
        url=url or ("localhost:8000" if protocol == "http" else "localhost:8001"),
        http_url=http_url,
        batch_size=batch_size,
        inputs=Inputs(_source(sources), dict(map(_shape, shapes)), string_length, string_data),
        headers=dict(map(_header, headers)),
        parameters=dict(map(_parameter, parameters)),
        endpoint="stream" if streaming else endpoint,
        sequences=SequenceShape(
            length=sequence_length,
            variation=sequence_variation / 100,
            count=sequence_count,
            first_id=first_id,
            id_count=id_count,
        ),
        shared_memory=shared_memory,
        cuda_device=cuda_device,
        output_byte_size=output_byte_size,
        tokens=tokens,
        tls=TlsFiles(ca, certificate, key),
        timeout_s=timeout_s,
    )
    stability = Stability(
        window_s=window_ms / 1000,
        windows=min(3, max_trials),
        most_windows=max_trials,
        spread=stability_percentage / 100,
        percentile=percentile,
        warmup_s=warmup_s,
        request_count=request_count,
    )
    ways = {
        "--periodic-concurrency-range": growing,
        "--request-rate-range": rates,
        "--request-intervals": intervals,
        "--replay": replay,
    }
    if len(chosen := [way for way, value in ways.items() if value is not None]) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
    try:
        paces: list[Pace]
        if growing:
            paces = [PeriodicConcurrency(*growing, request_period)]
        elif rates:
            paces = [Rate(per_s, distribution) for per_s in numbers(*rates)]
        elif intervals:
            paces = [read_intervals(intervals)]
        elif replay:
            paces = [read_replay(replay, model, replay_speed)]
        else:
            paces = [Concurrency(requests) for requests in numbers(*concurrencies)]
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    if binary_search and threshold_ms is None:
        raise click.UsageError("--binary-search wants a --latency-threshold")
    order = halving(paces) if binary_search else ascending(paces)
    measured = _measure_all(load, order, stability, processes, threshold_ms)
    for path, report in ((csv, csv_report), (html, html_report)):
        if path is not None:
            _write(path, report(measured))
    if as_json:
        click.echo(json.dumps([*map(measurement_json, measured)], indent=2))
    else:
        click.echo(text_report(measured))
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise click.ClickException(f"'{path}': {error.strerror}") from None


def _measure_all(
    load: Load,
    order: Generator[Pace, bool, None],
    stability: Stability,
    processes: int,
    threshold_ms: float | None,
) -> list[Measurement]:
    """Measure one pace after the other; one that cannot be measured, after others, is the last."""
    measured: list[Measurement] = []
    with live_line(f"{load.model}") as say:
        pace: Pace | None = next(order)
        while pace is not None:
            try:
                one = measure(
                    replace(load, pace=pace), stability, processes=processes, on_window=_telling(say, pace)
                )
            except BenchError as error:
                if not measured:
                    raise click.ClickException(str(error)) from None
                click.echo(f"corectl bench: {pace}: {error}", err=True)
                break
            except KeyboardInterrupt:
                if not measured:
                    raise
                break
            measured.append(one)
            is_quick = threshold_ms is None or one.latency_us(stability.percentile) <= threshold_ms * 1000
            try:
                pace = order.send(is_quick)
            except StopIteration:
                pace = None
    return measured


def ascending(paces: Sequence[Pace]) -> Generator[Pace, bool, None]:
    """One pace after the other, up to the first that was not quick enough."""
    for pace in paces:
        if not (yield pace):
            return


def halving(paces: Sequence[Pace]) -> Generator[Pace, bool, None]:
    """The middle of the paces that are left, until the last that is quick enough is found."""
    low, high = 0, len(paces)
    while low < high:
        middle = (low + high) // 2
        if (yield paces[middle]):
            low = middle + 1
        else:
            high = middle


def _telling(say: Say, pace: Pace) -> OnWindow:
    count = 0

    def tell(window: Window) -> None:
        nonlocal count
        count += 1
        p99_us = window.latency_ns.percentile(99) / 1000
        failed = f", {window.error_count} failed" if window.error_count else ""
        say(f"{pace}, window {count}: {window.requests_per_s:.0f} requests/s, p99 {p99_us:.0f} µs{failed}")

    return tell


def _source(sources: Sequence[str]) -> str | tuple[Path, ...]:
    made_up = [source for source in sources if source in ("random", "zero")]
    if len(sources) == 1 and made_up:
        return made_up[0]
    if made_up:
        raise click.UsageError(f"--input-data {made_up[0]} goes with no other --input-data")
    return tuple(map(Path, sources))


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition(":")
    try:
        shape = tuple(int(size) for size in sizes.split(","))
    except ValueError:
        shape = ()
    if not name or not shape or min(shape) < 0:
        raise click.UsageError(f"--shape '{text}': expected NAME:SIZES, such as INPUT0:3,224,224")
    return name, shape


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"--header '{text}': expected NAME:VALUE")
    return name.strip(), value.strip()


def _parameter(text: str) -> tuple[str, str | int | float | bool]:
    name, _, rest = text.partition(":")
    value, _, kind = rest.rpartition(":")
    try:
        if name and kind == "bool" and value.lower() in ("true", "false"):
            return name, value.lower() == "true"
        if name and kind == "int":
            return name, int(value)
        if name and kind == "double":
            return name, float(value)
        if name and kind == "string":
            return name, value
    except ValueError:
        pass
    raise click.UsageError(
        f"--request-parameter '{text}': expected NAME:VALUE:TYPE with a type of bool, int, double or string"
    )
