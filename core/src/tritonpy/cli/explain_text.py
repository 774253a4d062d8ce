"""A model's scheduler, batches and times as lines of text, for `corectl explain`; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tritonpy.cli.explain_findings import Finding, busy_part, mean_rows, mean_us

JsonObject = dict[str, Any]  # Any: JSON

_BAR = 30


def describe(facts: JsonObject, findings: Sequence[Finding]) -> str:
    """The text about one version."""
    lines = [
        f"{facts['name']} version {facts['version']}, {facts['seconds']:.1f} seconds",
        "",
        f"Scheduler   {_scheduler(facts)}",
        f"Instances   {_instances(facts)}",
        f"Requests    {_requests(facts)}",
        f"Times       {_times(facts)}",
        *_section("Why batches left", facts["closed"]),
        *_section("Rows of a batch", {size: batch["count"] for size, batch in facts["batch_sizes"].items()}),
        *_section("Failures", {reason: count for reason, count in facts["failures"].items() if count}),
        "",
        "Findings",
    ]
    for found in findings:
        lines.append(f"* {found['finding']}")
        if found["advice"]:
            lines.append(f"  {found['advice']}")
    return "\n".join(lines)


def _scheduler(facts: JsonObject) -> str:
    kind, settings = facts["scheduler"]["kind"], facts["scheduler"]["settings"]
    most = facts["max_batch_size"]
    match kind:
        case "dynamic_batching":
            return f"dynamic batching, up to {max(1, most)} rows; {_batching(facts, settings)}"
        case "sequence_batching":
            return _sequences(facts, settings, most)
        case "ensemble_scheduling":
            steps = " → ".join(step["model_name"] for step in settings.get("step", ()))
            return f"ensemble of {steps}"
        case _:
            return f"default: one request at a time, of up to {max(1, most)} rows"


def _sequences(facts: JsonObject, settings: JsonObject, most: int) -> str:
    idle_us = settings.get("max_sequence_idle_microseconds", 0)
    if settings.get("iterative_sequence"):
        strategy = "iterative sequences"
    elif "oldest" in settings:
        slots = settings["oldest"].get("max_candidate_sequences", 0) or max(1, most)
        strategy = f"sequences, the oldest first, {slots} at once for each instance"
    else:
        strategy = f"sequences in slots of their own, {max(1, most)} for each instance"
    text = f"{strategy}; idle ones end after {idle_us} µs" if idle_us else strategy
    return f"{text}; {_batching(facts, settings['oldest'])}" if "oldest" in settings else text


def _batching(facts: JsonObject, settings: JsonObject) -> str:
    parts = []
    delay_us = settings.get("max_queue_delay_microseconds", 0)
    parts.append(f"requests wait up to {delay_us} µs for company" if delay_us else "no delay")
    preferred = settings.get("preferred_batch_size", [])
    if preferred and preferred != [facts["max_batch_size"]]:  # the default
        parts.append(f"preferred: {', '.join(map(str, preferred))}")
    if levels := settings.get("priority_levels"):
        parts.append(f"{levels} priority levels")
    policy = settings.get("default_queue_policy", {})
    if size := policy.get("max_queue_size"):
        parts.append(f"at most {size} wait")
    if timeout_us := policy.get("default_timeout_microseconds"):
        action = "later" if policy.get("timeout_action") == "DELAY" else "refused"
        parts.append(f"{action} after {timeout_us} µs in the queue")
    if settings.get("preserve_ordering"):
        parts.append("answered in the order of arrival")
    if facts["strategy"]:
        parts.append(f"strategy '{facts['strategy']}'")
    return "; ".join(parts)


def _instances(facts: JsonObject) -> str:
    instances = facts["instances"]
    if not instances:
        return "none of its own"
    busy = busy_part(facts)
    executing = sum(1 for instance in instances if instance["executing"])
    text = f"{len(instances)}, {executing} executing now"
    return text if busy is None else f"{text}, busy {busy:.0%} of the time"


def _requests(facts: JsonObject) -> str:
    requests = facts["requests"]
    total = requests["success"] + requests["fail"]
    rate = total / facts["seconds"] if facts["seconds"] else 0
    parts = [f"{requests['success']} succeeded", f"{requests['fail']} failed", f"{rate:.3g} in a second"]
    hits = facts["cache"]["hits"]
    if hits or facts["cache"]["misses"]:
        parts.append(f"{hits} answered from the cache")
    parts.append(f"{facts['pending']} waiting now")
    rows = f"{mean_rows(facts):.3g}"
    executions = f"{facts['executions']} {'execution' if facts['executions'] == 1 else 'executions'}"
    return f"{', '.join(parts)}; {executions} of {rows} {'row' if rows == '1' else 'rows'}"


def _times(facts: JsonObject) -> str:
    phases = ("queue", "compute_input", "compute_infer", "compute_output")
    parts = [f"{phase.replace('_', ' ')} {mean_us(facts, phase):.0f} µs" for phase in phases]
    return f"a request takes {mean_us(facts, 'success'):.0f} µs: {', '.join(parts)}"


def _section(title: str, counts: JsonObject) -> Iterator[str]:
    if not counts:
        return
    total = sum(counts.values()) or 1
    width = max(len(str(name)) for name in counts)
    yield ""
    yield title
    for name, count in counts.items():
        bar = "█" * round(_BAR * count / total)
        yield f"  {name:>{width}}  {count:>9}  {count / total:>6.1%}  {bar}".rstrip()
