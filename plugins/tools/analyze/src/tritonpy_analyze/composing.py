"""Models that other models call (BLS): found by asking one and looking at whose statistics grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from tritonpy.cli.http_client import HttpClient
from tritonpy.errors import Unavailable

from tritonpy_analyze.servers import ServedTarget

JsonObject = dict[str, Any]  # Any: JSON


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
        target: a server that has all models that might be called.
        asked: what is asked, by the target's workload.
        seconds: for how long.

    Raises:
        Unavailable: nothing was answered.
    """
    before = executed(target.url)
    target.measure({"concurrency": 1}, seconds)
    grown = [name for name, count in executed(target.url).items() if count > before.get(name, 0)]
    return sorted(set(grown) - set(asked))
