"""Metrics of a model's own."""

import gc

import triton_python_backend_utils as pb_utils

Family = pb_utils.MetricFamily
KEPT = {}


def outcome(function):
    """What a call returns, or the type and text of what it raises."""
    try:
        return function()
    except Exception as exc:
        return [type(exc).__name__, str(exc)]


def counter(request, name):
    family = KEPT[name] = Family(name=name, description="Counts things.", kind=Family.COUNTER)
    one = KEPT[name, 1] = family.Metric(labels={"model": "cases", "version": "1"})
    two = KEPT[name, 2] = family.Metric(labels={"model": "cases", "version": "2"})
    one.increment(1)
    one.increment(2.5)
    two.increment(0)
    return [one.value(), two.value()]


def gauge(request, name):
    family = KEPT[name] = Family(name, "Goes up and down.", Family.GAUGE)
    metric = KEPT[name, 1] = family.Metric(labels={"a": "b"})
    seen = []
    for step, value in (("set", 5), ("increment", 2.5), ("increment", -4), ("set", -1)):
        getattr(metric, step)(value)
        seen.append(metric.value())
    return seen


def histogram(request, name):
    family = KEPT[name] = Family(name, "How long.", Family.HISTOGRAM)
    metric = KEPT[name, 1] = family.Metric(labels={"a": "b"}, buckets=[0.1, 1, 10])
    for value in (0.05, 0.5, 1, 5, 50):
        metric.observe(value)


def wrong(request, name, kind, step, *args):
    """Something that a metric of this kind does not do."""
    family = Family(name, "Wrong.", getattr(Family, kind))
    buckets = {"buckets": [1]} if kind == "HISTOGRAM" else {}
    metric = family.Metric(labels={"a": "b"}, **buckets)
    return outcome(lambda: getattr(metric, step)(*args))


def duplicates(request, name):
    """Two families of one name share the metrics of equal labels, which share their value."""
    first = KEPT[name] = Family(name, "Shared.", Family.COUNTER)
    second = KEPT[name, "second"] = Family(name, "Shared.", Family.COUNTER)
    one = KEPT[name, 1] = first.Metric(labels={"a": "b"})
    other = KEPT[name, 2] = first.Metric(labels={"a": "b"})
    third = KEPT[name, 3] = second.Metric(labels={"a": "b"})
    one.increment(1)
    other.increment(1)
    third.increment(1)
    return [one.value(), other.value(), third.value()]


def same_name_other_kind(request, name):
    KEPT[name] = Family(name, "A counter.", Family.COUNTER)
    return outcome(lambda: type(Family(name, "A gauge.", Family.GAUGE)).__name__)


def same_name_other_description(request, name):
    KEPT[name] = Family(name, "One.", Family.COUNTER)
    return outcome(lambda: type(Family(name, "Two.", Family.COUNTER)).__name__)


def refused(request, name, what):
    """The type and text of what making a certain metric raises."""
    family = Family(name, "Plain.", Family.COUNTER)
    timings = Family(name + "_h", "Timings.", Family.HISTOGRAM)
    attempts = {
        "labels are a list": lambda: family.Metric(labels=["a"]),
        "a label is a number": lambda: family.Metric(labels={"a": 1}),
        "a counter with buckets": lambda: family.Metric(labels={}, buckets=[1]),
        "a histogram without buckets": lambda: timings.Metric(labels={}),
        "buckets are text": lambda: timings.Metric(labels={}, buckets="12"),
        "buckets hold text": lambda: timings.Metric(labels={}, buckets=["a"]),
        "buckets fall": lambda: timings.Metric(labels={}, buckets=[2, 1]),
        "value is text": lambda: family.Metric(labels={}).increment("1"),
        "kind is text": lambda: Family(name + "_k", "Kind.", "COUNTER"),
        "no kind": lambda: Family(name + "_k", "Kind."),
    }
    return outcome(lambda: str(attempts[what]()))


def bad_names(request):
    found = {}
    for name in ("", "with space", "1digit", "dash-ed", "colon:ed", "nv_inference_request_success"):
        found[name] = outcome(lambda name=name: type(Family(name, "Odd.", Family.COUNTER)).__name__)
    return found


def bad_labels(request, name):
    family = KEPT[name] = Family(name, "Odd labels.", Family.GAUGE)
    metric = KEPT[name, 1] = family.Metric(labels={"text": 'quote " backslash \\ line\n \u00e9'})
    metric.set(1)
    return outcome(lambda: str(type(family.Metric(labels={"with-dash": "x"}))))


def without_labels(request, name):
    family = KEPT[name] = Family(name=name, description="No labels.", kind=Family.COUNTER)
    metric = KEPT[name, 1] = family.Metric()
    metric.increment(1)
    return metric.value()


def dropped_metric(request, name):
    family = KEPT[name] = Family(name, "Dropped.", Family.COUNTER)
    metric = family.Metric(labels={"a": "b"})
    metric.increment(3)
    del metric
    gc.collect()


def dropped_family(request, name):
    """The family goes before its metric."""
    family = Family(name, "Dropped.", Family.COUNTER)
    metric = KEPT[name, 1] = family.Metric(labels={"a": "b"})
    metric.increment(3)
    del family
    gc.collect()
    return outcome(metric.value)


def forget(request, name):
    for key in [key for key in KEPT if key == name or key[0] == name]:
        if key != name:
            del KEPT[key]
    KEPT.pop(name, None)
    gc.collect()


def increment_again(request, name):
    KEPT[name, 1].increment(1)
    return KEPT[name, 1].value()
