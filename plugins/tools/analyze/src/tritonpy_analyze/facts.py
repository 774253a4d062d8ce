"""Facts of a model for `corectl explain`, also of a server that has statistics only, such as Triton."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
from tritonpy.cli.explain import difference
from tritonpy.cli.http_client import HttpClient, model_path

JsonObject = dict[str, Any]  # Any: JSON

_SCHEDULERS = ("ensemble_scheduling", "sequence_batching", "dynamic_batching")
_PHASES = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output")
LOOK_S = 5.0
"""How far apart two looks at a server are that does not say since when it counts."""


def look(client: HttpClient, model: str, version: str) -> list[JsonObject]:
    """The facts of the versions of a model, and their configuration as `config`.

    Raises:
        click.ClickException: there is none.
    """
    answer = client.send("GET", f"{model_path(model, version)}/explain")
    configured = client.send("GET", f"{model_path(model, version)}/config")
    config: JsonObject = configured.json() if configured.status == 200 else {}
    if answer.status == 200:
        found: list[JsonObject] = answer.json()["models"]
    else:
        statistics = client.send("GET", f"{model_path(model, version)}/stats")
        if statistics.status != 200:
            raise click.ClickException(f"{answer.error.rstrip()} (HTTP status {answer.status})")
        entries: list[JsonObject] = statistics.json()["model_stats"]
        found = [facts_of_statistics(entry, config) for entry in entries]
    return [facts | {"config": config} for facts in found]


def look_twice(
    client: HttpClient, model: str, version: str, seconds: float, wait: Callable[[float], object] = time.sleep
) -> list[JsonObject]:
    """What came between two looks; all since the load where `seconds` is 0 and the server says since when.

    Args:
        client: of the server.
        model: its name.
        version: of it; "" is all of them.
        seconds: between the looks.
        wait: what is done between them.

    Raises:
        click.ClickException: there is no such model, or nothing answers.
    """
    began = time.monotonic()
    before = look(client, model, version)
    if not seconds and all(facts["seconds"] is not None for facts in before):
        return before
    wait(seconds or LOOK_S)
    after = look(client, model, version)
    passed = time.monotonic() - began
    by_version = {facts["version"]: facts for facts in before}
    found = []
    for facts in after:
        earlier = by_version.get(facts["version"])
        if facts["seconds"] is None:
            facts["seconds"] = passed
            if earlier is not None:
                earlier["seconds"] = 0.0
        found.append(difference(earlier, facts) if earlier is not None else facts)
    return found


def facts_of_statistics(entry: JsonObject, config: JsonObject) -> JsonObject:
    """The facts of one version from its statistics and its configuration.

    Args:
        entry: of `model_stats`, as Triton's statistics extension has it.
        config: of the model.

    Returns:
        In the shape of `GET v2/models/<name>/explain`. What Triton does not say is empty: why batches left,
        which failures there were, what waits now; `seconds` is None.
    """
    told: JsonObject = entry.get("inference_stats", {})
    kind = next((each for each in _SCHEDULERS if config.get(each)), "default")
    sizes = {
        str(batch["batch_size"]): {
            "count": int(batch["compute_infer"]["count"]),
            "ns": sum(
                int(batch[phase]["ns"]) for phase in ("compute_input", "compute_infer", "compute_output")
            ),
        }
        for batch in entry.get("batch_stats", [])
    }
    return {
        "name": entry["name"],
        "version": str(entry["version"]),
        "scheduler": {"kind": kind, "settings": config.get(kind) or {}},
        "max_batch_size": int(config.get("max_batch_size", 0)),
        "strategy": None,
        "seconds": None,
        "closed": {},
        "batch_sizes": sizes,
        "requests": {phase: int(told.get(phase, {}).get("count", 0)) for phase in _PHASES},
        "durations_ns": {phase: int(told.get(phase, {}).get("ns", 0)) for phase in _PHASES},
        "inferences": int(entry.get("inference_count", 0)),
        "executions": int(entry.get("execution_count", 0)),
        "failures": {},
        "cache": {
            "hits": int(told.get("cache_hit", {}).get("count", 0)),
            "misses": int(told.get("cache_miss", {}).get("count", 0)),
        },
        "pending": 0,
        "instances": [
            {"name": f"{group.get('name', '')}_{index}", "is_ready": True, "executing": 0}
            for group in config.get("instance_group", [])
            for index in range(int(group.get("count", 1)) * max(1, len(group.get("gpus") or [])))
        ],
    }
