"""Findings in the numbers of a model, each with one line of advice; pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

JsonObject = dict[str, Any]  # Any: JSON

_NOTABLE = 0.1
"""Reasons below this part of all batches are not spoken of."""
_BUSY = 0.8
_LONG_US = 1000
"""What waits less than this waits for its turn on the event loop."""
_TRIED_DELAY_US = 1000
_MEANS_SOMETHING = 10
"""Of fewer requests the times are chance: the first one also pays for what is set up once."""

_FAILURES = {
    "REJECTED": "waited longer than their queue allows: raise default_timeout_microseconds, or add instances",
    "CANCELED": "were cancelled by their clients, or by what waits for them: look at their timeouts",
    "BACKEND": "failed in the model: the log names each, with its request id",
    "OTHER": "failed in the server: it stopped, the model was unloaded, or a step of the ensemble failed",
}


class Finding(TypedDict):
    """One thing that stands out, and what to do about it ("" for nothing)."""

    finding: str
    advice: str


def findings(facts: JsonObject) -> list[Finding]:
    """The findings, the most important first.

    Args:
        facts: as `GET v2/models/<name>/explain` gives them for one version.
    """
    if not facts["executions"] and not facts["requests"]["fail"]:
        return [Finding(finding="Nothing was executed.", advice="Send requests, and ask again.")]
    return [
        *_of_instances(facts),
        *_of_batches(facts),
        *_of_queue(facts),
        *_of_failures(facts),
    ]


def mean_rows(facts: JsonObject) -> float:
    """Rows of an execution, on the average."""
    sizes = facts["batch_sizes"]
    count = sum(batch["count"] for batch in sizes.values())
    rows: int = sum(int(size) * batch["count"] for size, batch in sizes.items())
    return rows / count if count else 0.0


def busy_part(facts: JsonObject) -> float | None:
    """The part of the time in which an instance executed, on the average; None where there is none."""
    count = len(facts["instances"])
    if not count or not facts["seconds"]:
        return None
    busy_ns: int = sum(batch["ns"] for batch in facts["batch_sizes"].values())
    seconds: float = facts["seconds"]
    return min(1.0, busy_ns / 1e9 / seconds / count)


def mean_us(facts: JsonObject, *phases: str) -> float:
    """The mean time of a request in the given phases together, in microseconds."""
    requests, durations = facts["requests"], facts["durations_ns"]
    total: float = sum(durations[phase] / requests[phase] for phase in phases if requests[phase])
    return total / 1000


def _of_instances(facts: JsonObject) -> Iterator[Finding]:
    down = [instance["name"] for instance in facts["instances"] if not instance["is_ready"]]
    if down:
        yield Finding(
            finding=f"{len(down)} of {len(facts['instances'])} instances take no batches: {', '.join(down)}.",
            advice="The log says why each has ended, and when it is started again.",
        )


def _of_batches(facts: JsonObject) -> Iterator[Finding]:
    kind, most = facts["scheduler"]["kind"], facts["max_batch_size"]
    if kind == "ensemble_scheduling":
        steps = dict.fromkeys(step["model_name"] for step in facts["scheduler"]["settings"].get("step", ()))
        yield Finding(
            finding="An ensemble has no batches of its own: each step is batched by its model.",
            advice=f"Ask for the steps: {', '.join(f'corectl explain {step}' for step in steps)}.",
        )
        return
    closed = facts["closed"]
    total = sum(closed.values())
    for reason, count in sorted(closed.items(), key=lambda item: -item[1]):
        if count >= _NOTABLE * total:
            yield _of_reason(facts, reason, count / total, most)


def _of_reason(facts: JsonObject, reason: str, part: float, most: int) -> Finding:
    settings = facts["scheduler"]["settings"]
    batching = settings.get("oldest", settings)
    delay_us = batching.get("max_queue_delay_microseconds", 0)
    share = f"{part:.0%} of the batches"
    match reason:
        case "single":
            return _of_single(share, most)
        case "queue empty":
            return Finding(
                finding=f"{share} left because the queue was empty: an instance was free, and nothing else "
                f"waited.",
                advice=_joining(facts, most, _TRIED_DELAY_US, "max_queue_delay_microseconds: {} would"),
            )
        case "delay":
            return Finding(
                finding=f"{share} left because the oldest request had waited for {delay_us} µs "
                f"(max_queue_delay_microseconds).",
                advice=_joining(facts, most, delay_us, "Another delay of {} µs would"),
            )
        case "shape":
            return Finding(
                finding=f"{share} left because the next request had inputs of other shapes.",
                advice="Pad inputs to few lengths, or set allow_ragged_batch where the model takes them.",
            )
        case "strategy":
            return Finding(
                finding=f"{share} left because the batching strategy '{facts['strategy']}' refused the next "
                f"request.",
                advice="Its limit decides: give it a higher one if instances have room for more.",
            )
        case "utilization":
            return Finding(
                finding=f"{share} left because as many slots had a request as minimum_slot_utilization asks "
                f"for.",
                advice="A higher one waits for more sequences, up to max_queue_delay_microseconds.",
            )
        case "full":
            return _of_full(facts, share, most)
        case "preferred":
            sizes = ", ".join(map(str, batching.get("preferred_batch_size", ())))
            return Finding(finding=f"{share} left at a preferred size ({sizes}).", advice="")
        case _:
            return Finding(finding=f"{share} left for the reason '{reason}'.", advice="")


def _of_single(share: str, most: int) -> Finding:
    if most > 1:
        return Finding(
            finding=f"{share} were one request each: the model has no dynamic_batching, though its "
            f"max_batch_size is {most}.",
            advice="Add dynamic_batching { } to its configuration, and requests that wait go together.",
        )
    return Finding(
        finding=f"{share} were one request each: the model does not batch (max_batch_size: {most}).",
        advice="If it can take several rows at once, give it a max_batch_size and dynamic_batching { }.",
    )


def _of_full(facts: JsonObject, share: str, most: int) -> Finding:
    queue_us = mean_us(facts, "queue")
    compute_us = mean_us(facts, "compute_input", "compute_infer", "compute_output")
    advice = ""
    if queue_us > compute_us:
        advice = f"Requests wait longer than they are computed: try a max_batch_size above {most}."
    return Finding(finding=f"{share} left as large as they may be.", advice=advice)


def _joining(facts: JsonObject, most: int, delay_us: int, beginning: str) -> str:
    """The number of further requests that a delay would let join, at the rate at which they come."""
    rate = (facts["requests"]["success"] + facts["requests"]["fail"]) / facts["seconds"]
    more = rate * delay_us / 1e6
    if most <= 1:
        return "The model takes one row at a time: batches cannot grow."
    if not rate or more < _NOTABLE:
        return (
            f"{rate:.3g} requests come in a second: a delay would make them wait without company. Small "
            f"batches cost nothing here."
        )
    full_ms = max(0.0, most - mean_rows(facts)) / rate * 1000
    return (
        f"{beginning.format(delay_us)} let them grow: about {more:.2g} more requests come in that time, and "
        f"a batch of {most} needs {full_ms:.3g} ms."
    )


def _of_queue(facts: JsonObject) -> Iterator[Finding]:
    busy = busy_part(facts)
    if busy is None or facts["requests"]["success"] < _MEANS_SOMETHING:
        return
    count = len(facts["instances"])
    queue_us = mean_us(facts, "queue")
    compute_us = mean_us(facts, "compute_input", "compute_infer", "compute_output")
    if busy >= _BUSY and queue_us > compute_us:
        yield Finding(
            finding=f"Instances are busy {busy:.0%} of the time, and a request waits {queue_us:.0f} µs where "
            f"it is computed for {compute_us:.0f} µs.",
            advice=f"More instances would shorten the queue, if the machine has room: instance_group "
            f"{{ count: {count + 1} }}.",
        )
    elif queue_us > max(compute_us, _LONG_US) and busy < _BUSY and facts["scheduler"]["kind"] != "default":
        yield Finding(
            finding=f"A request waits {queue_us:.0f} µs where it is computed for {compute_us:.0f} µs, though "
            f"instances are busy only {busy:.0%} of the time.",
            advice="It waits for company or comes in bursts: a shorter max_queue_delay_microseconds answers "
            "sooner.",
        )


def _of_failures(facts: JsonObject) -> Iterator[Finding]:
    total = facts["requests"]["success"] + facts["requests"]["fail"]
    for reason, count in facts["failures"].items():
        if count:
            yield Finding(
                finding=f"{count} of {total} requests ({count / total:.1%}) failed: {reason}.",
                advice=f"They {_FAILURES.get(reason, 'failed')}.",
            )
