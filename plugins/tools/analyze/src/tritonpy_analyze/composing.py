"""Models that other models call (BLS): found in traces, and by whose statistics grow while one is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from tritonpy.cli.http_client import HttpClient
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.tracing.summary import TracedRequest, read_trace

from tritonpy_analyze.servers import ServedTarget

JsonObject = dict[str, Any]  # Any: JSON

_TRACED = 200
"""So many requests are traced; they make few models known that a hundred would not."""


def trace_options(file: Path) -> list[str]:
    """Options of a server that traces requests into a file."""
    words = ("mode=triton", f"triton,file={file}", "level=TIMESTAMPS", "rate=1", f"count={_TRACED}")
    return [f"--trace-config={word}" for word in words]


def calls_in(*files: Iterable[TracedRequest]) -> dict[str, set[str]]:
    """By the name of a model, the models that requests to it have called.

    Args:
        files: the requests of each file. A request and those below it may be in two of them; where numbers
            come twice, those of the same file belong together.
    """
    of_files = [{request.id: request for request in requests} for requests in files]
    anywhere = {number: request for of_file in of_files for number, request in of_file.items()}
    calls: dict[str, set[str]] = {}
    for of_file in of_files:
        for request in of_file.values():
            parent = of_file.get(request.parent_id) or anywhere.get(request.parent_id)
            if request.parent_id and parent is not None:
                calls.setdefault(parent.model_name, set()).add(request.model_name)
    return calls


def called_by(asked: Sequence[str], calls: Mapping[str, set[str]]) -> list[str]:
    """The models that those call, and that these call in turn, without the first ones."""
    found: set[str] = set()
    waiting = list(asked)
    while waiting:
        new = calls.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return sorted(found - set(asked))


def traced_models(files: Sequence[Path], asked: Sequence[str]) -> list[str]:
    """The models that others call by what trace files have, of this server or of Triton.

    Args:
        files: of traces.
        asked: the models whose calls are sought.

    Raises:
        InvalidArg: a file is none of traces, or has no request to a model that is asked.
        OSError: a file cannot be read.
    """
    found = [read_trace(file.read_bytes(), str(file)) for file in files]
    traced = {request.model_name for requests in found for request in requests}
    if files and (unknown := [name for name in asked if name not in traced]):
        places = ", ".join(f"'{file}'" for file in files)
        raise InvalidArg(
            f"--trace-file {places}: it has no request to model '{unknown[0]}', but to "
            f"{', '.join(sorted(traced)) or 'none'}"
        )
    return called_by(asked, calls_in(*found))


def executed(url: str) -> dict[str, int]:
    """Executions of every model of a server so far, by name.

    Raises:
        Unavailable: it does not say.
    """
    client = HttpClient(f"http://{url}", 30.0)
    try:
        found: JsonObject = client.get_json("/v2/models/stats")
    except click.ClickException as exc:
        raise Unavailable(exc.message) from exc
    finally:
        client.close()
    counts: dict[str, int] = {}
    for entry in found["model_stats"]:
        counts[entry["name"]] = counts.get(entry["name"], 0) + int(entry.get("execution_count", 0))
    return counts


def called_models(target: ServedTarget, asked: Sequence[str], seconds: float) -> list[str]:
    """The models that are executed while others are asked, without those.

    Args:
        target: a server that has all models that might be called, and that nobody else asks.
        asked: what is asked, by the target's workload.
        seconds: for how long.

    Raises:
        Unavailable: nothing was answered.
    """
    before = executed(target.url)
    target.measure({"concurrency": 1}, seconds)
    grown = [name for name, count in executed(target.url).items() if count > before.get(name, 0)]
    return sorted(set(grown) - set(asked))
