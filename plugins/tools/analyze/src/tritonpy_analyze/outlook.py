"""What would change a model's latency, in numbers: predictions from its facts, and their findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tritonpy.cli.explain_findings import Finding, mean_rows, mean_us
from tritonpy.cli.table import format_table

from tritonpy_analyze.queueing import (
    Prediction,
    ServiceTime,
    Settings,
    Traffic,
    calibrated,
    changes,
    fit,
    predict,
)

JsonObject = dict[str, Any]  # Any: JSON

_LEAST_REQUESTS = 30
"""Of fewer the times are chance."""
_NOTABLE = 0.03
"""Changes that change less are not shown."""
_MOST_APART = 1.6
"""A factor between what was measured and what the model says of it; beyond it nothing is predicted."""
_COMPUTE = ("compute_input", "compute_infer", "compute_output")


@dataclass(frozen=True, slots=True)
class Outlook:
    """Predictions.

    Attributes:
        traffic: of now, which they are for.
        service: the time of executions, as it was measured.
        queue_us, compute_us, rows: that were measured.
        now: what the model says of the settings of now.
        others: what would be written into the configuration, and what would come of it, the best first.
        clients: that ask again when they are answered; 0 where nobody knows of any. So many requests are
            always under way, and each takes at least as long as the instances need for all of them.
    """

    traffic: Traffic
    service: ServiceTime
    queue_us: float
    compute_us: float
    rows: float
    now: Prediction
    others: Sequence[tuple[str, Prediction]]
    clients: int = 0

    @property
    def fits(self) -> bool:
        """True if the model describes what was measured well enough to be believed about other settings."""
        measured = self.queue_us + self.compute_us
        if math.isinf(self.now.latency_us):
            return self.queue_us > self.compute_us
        return (
            1 / _MOST_APART < self.now.latency_us / max(1e-9, measured) < _MOST_APART
            and 1 / _MOST_APART < self.now.rows / self.rows < _MOST_APART
        )


def outlook(facts: JsonObject, clients: int = 0) -> Outlook | None:
    """Predictions for one version; None where its queue is of another kind, or too little was measured.

    Args:
        facts: about the version.
        clients: as many as have sent all of its requests, each again when it was answered; 0 for others.
    """
    kind, scheduler = facts["scheduler"]["kind"], facts["scheduler"]["settings"]
    ready = [instance for instance in facts["instances"] if instance["is_ready"]]
    served = facts["requests"]["success"]
    if (
        kind not in ("default", "dynamic_batching")
        or not ready
        or served < _LEAST_REQUESTS
        or not facts["seconds"]
    ):
        return None
    service = fit(
        {
            int(size): (batch["count"], batch["ns"] / batch["count"] / 1000)
            for size, batch in facts["batch_sizes"].items()
            if batch["count"]
        }
    )
    if service is None or not facts["executions"]:
        return None
    batches = kind == "dynamic_batching"
    settings = Settings(
        len(ready),
        max(1, facts["max_batch_size"]),
        float(scheduler.get("max_queue_delay_microseconds", 0)) if batches else 0.0,
        batches,
    )
    executed = max(1, facts["requests"]["compute_infer"])  # what the cache answers waits for no instance
    rows = max(1.0, facts["inferences"] / served)
    queue_us, compute_us = mean_us(facts, "queue"), mean_us(facts, *_COMPUTE)
    traffic = calibrated(service, Traffic(executed / facts["seconds"], rows), settings, queue_us)
    now = predict(service, traffic, settings)
    predicted = []
    for text, each in changes(settings, service):
        grows = (each.batches, each.most_rows) > (settings.batches, settings.most_rows)
        if service.is_of_one_size and (grows or each.delay_us > settings.delay_us):
            predicted.append((f"{text}, at best", predict(service.at_best, traffic, each)))
        else:
            predicted.append((text, predict(service, traffic, each)))
    clients = 0 if facts["cache"]["hits"] else clients  # what it answers is quicker than instances are
    predicted = [(text, _of_clients(each, clients * traffic.rows)) for text, each in predicted]
    notable = [(text, each) for text, each in predicted if _differs(each, now)]
    notable.sort(key=lambda each: (each[1].latency_us, -each[1].most_rows_per_s))
    return Outlook(traffic, service, queue_us, compute_us, mean_rows(facts), now, notable, clients)


def _of_clients(each: Prediction, rows: float) -> Prediction:
    """With so many rows always under way, of which the most a second bounds the time (Little's law)."""
    least_us = rows / each.most_rows_per_s * 1e6
    return replace(each, queue_us=max(each.queue_us, least_us - each.compute_us))


def _differs(one: Prediction, now: Prediction) -> bool:
    if math.isinf(one.latency_us) or math.isinf(now.latency_us):
        return one.latency_us != now.latency_us or one.most_rows_per_s > now.most_rows_per_s * (1 + _NOTABLE)
    return (
        abs(one.latency_us - now.latency_us) > _NOTABLE * now.latency_us
        or abs(one.most_rows_per_s - now.most_rows_per_s) > _NOTABLE * now.most_rows_per_s
    )


def further_findings(facts: JsonObject, found: Outlook | None) -> Iterator[Finding]:
    """What the numbers say beside what `corectl explain` says of them without this distribution."""
    yield from _of_phases(facts)
    yield from _of_cache(facts)
    yield from _of_limits(facts)
    if found is None or not found.others or not found.fits:
        return
    text, best = found.others[0]
    gained = found.now.latency_us - best.latency_us
    if math.isinf(found.now.latency_us) and not math.isinf(best.latency_us):
        yield Finding(
            finding=f"At {found.traffic.requests_per_s:.3g} requests a second the instances have no room "
            f"left: they do at most {found.now.most_rows_per_s:.3g} rows a second.",
            advice=f"{text} could do {best.most_rows_per_s:.3g}.",
        )
    elif gained > 0.1 * found.now.latency_us:
        yield Finding(
            finding=f"A request would take {_time(best.latency_us)} instead of {_time(found.now.latency_us)} "
            f"with {text}, by the queueing model below.",
            advice=_caution(found, best),
        )


def _of_phases(facts: JsonObject) -> Iterator[Finding]:
    if facts["requests"]["success"] < _LEAST_REQUESTS:
        return
    copied, compute = mean_us(facts, "compute_input", "compute_output"), mean_us(facts, *_COMPUTE)
    if compute and copied > 0.3 * compute:
        yield Finding(
            finding=f"Of {_time(compute)} of computing, {_time(copied)} bring tensors in and out.",
            advice="Send fewer bytes, ask for fewer outputs, or put tensors into shared memory.",
        )


def _of_cache(facts: JsonObject) -> Iterator[Finding]:
    hits, misses = facts["cache"]["hits"], facts["cache"]["misses"]
    if hits + misses >= _LEAST_REQUESTS and hits < 0.05 * (hits + misses):
        yield Finding(
            finding=f"The cache had the answer of {hits} of {hits + misses} requests: they hardly "
            f"ever repeat, and each is looked up.",
            advice="Leave response_cache out of this model.",
        )


def _of_limits(facts: JsonObject) -> Iterator[Finding]:
    groups = facts.get("config", {}).get("instance_group") or []
    names = sorted(
        {
            resource["name"]
            for group in groups
            for resource in (group.get("rate_limiter") or {}).get("resources", [])
        }
    )
    queue_us, compute_us = mean_us(facts, "queue"), mean_us(facts, *_COMPUTE)
    busy_ns = sum(batch["ns"] for batch in facts["batch_sizes"].values())
    busy = busy_ns / 1e9 / max(1e-9, facts["seconds"] or 0.0) / max(1, len(facts["instances"]))
    if names and busy < 0.8 and queue_us > compute_us and facts["requests"]["success"] >= _LEAST_REQUESTS:
        yield Finding(
            finding=f"Requests wait {_time(queue_us)} though instances are busy only {busy:.0%} of the time, "
            f"and they need the resources {', '.join(names)}.",
            advice="Other models may have them: raise --rate-limit-resource, or lower what instances need.",
        )


def _caution(found: Outlook, best: Prediction) -> str:
    least, most = found.service.sizes
    if best.settings.instances > found.now.settings.instances:
        return "That holds if the machine has cores, or the GPU room, for them; corectl analyze tries it."
    if best.settings.most_rows > most or best.settings.batches > found.now.settings.batches:
        seen = f"{least} to {most} rows" if least < most else f"{most} {'row' if most == 1 else 'rows'}"
        return f"Batches of {seen} were seen, and what larger ones take is a guess; corectl analyze tries it."
    return "corectl analyze tries it."


def outlook_text(found: Outlook) -> str:
    """The predictions as a table."""
    measured = found.queue_us + found.compute_us
    if not found.fits:
        return (
            f"What would change cannot be told: a queueing model of requests that come by chance says\n"
            f"{_time(found.now.latency_us)} in batches of {found.now.rows:.1f} rows, and measured were "
            f"{_time(measured)} in batches of {found.rows:.1f}. Few clients that wait for\n"
            f"their answers, bursts, or a server without free cores do that. corectl analyze tries changes."
        )
    rows = [
        [
            "as it is, measured",
            *map(_time, (found.queue_us, found.compute_us, measured)),
            f"{found.rows:.1f}",
            "",
            "",
        ],
        _row("as it is, predicted", found.now),
        *(_row(text, each) for text, each in found.others),
    ]
    lines = [
        f"What would change, at {found.traffic.requests_per_s:.3g} requests a second, by a queueing model",
        format_table(["change", "waits", "computes", "takes", "rows", "busy", "most rows/s"], rows),
    ]
    if any(text.endswith("at best") for text, _ in found.others):
        size = found.service.sizes[0]
        seen = f"{size} {'row' if size == 1 else 'rows'}"
        lines.append(f"Only batches of {seen} were seen: 'at best' is if further rows cost nothing.")
    if found.clients:
        lines.append(
            f"With {found.clients} requests always under way, no change gets below what the most rows a "
            f"second need for {found.clients}."
        )
    if found.traffic.factor > 2:
        lines.append(
            f"Requests come in bursts: they wait {found.traffic.factor:.1f} times as long as by chance."
        )
    return "\n".join(lines)


def _row(text: str, each: Prediction) -> list[str]:
    times = map(_time, (each.queue_us, each.compute_us, each.latency_us))
    return [text, *times, f"{each.rows:.1f}", f"{each.busy:.0%}", f"{each.most_rows_per_s:.4g}"]


def _time(us: float) -> str:
    if math.isinf(us):
        return "ever longer"
    return f"{us / 1000:.3g} ms" if us >= 1000 else f"{us:.0f} µs"


def outlook_json(found: Outlook) -> JsonObject:
    """The predictions as JSON; null is a time without an end."""

    def shown(text: str, each: Prediction) -> JsonObject:
        times = {"queue_us": each.queue_us, "compute_us": each.compute_us, "latency_us": each.latency_us}
        return {
            "change": text,
            **{key: None if math.isinf(value) else value for key, value in times.items()},
            "rows": each.rows,
            "busy": each.busy,
            "most_rows_per_s": each.most_rows_per_s,
        }

    return {
        "requests_per_s": found.traffic.requests_per_s,
        "factor": found.traffic.factor,
        "fits": found.fits,
        "service_time_us": {"base": found.service.base_us, "row": found.service.row_us},
        "now": shown("", found.now),
        "changes": [shown(text, each) for text, each in found.others],
    }


def steps_text(steps: Sequence[JsonObject]) -> str:
    """Where the time of an ensemble goes: its steps, the one that takes longest first."""
    rows = []
    ordered = sorted(steps, key=lambda facts: -mean_us(facts, "queue", *_COMPUTE))
    for facts in ordered:
        queue, compute = mean_us(facts, "queue"), mean_us(facts, *_COMPUTE)
        rows.append([facts["name"], _time(queue), _time(compute), _time(queue + compute)])
    lines = ["Where its steps spend their time", format_table(["step", "waits", "computes", "takes"], rows)]
    if ordered and mean_us(ordered[0], "queue", *_COMPUTE):
        lines.append(f"The longest is '{ordered[0]['name']}': corectl explain {ordered[0]['name']}")
    return "\n".join(lines)
