"""Usage of a cache, as far as it tells: Triton's own makes metrics of that, with a server's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tritonpy.abi_host import MetricFamily
from tritonpy.plugin import CacheUsage

from tritonpy_abi.metrics import read_metrics
from tritonpy_abi.shim import Shim

_PREFIX = "nv_cache_"


def read_usage(shim: Shim) -> CacheUsage | None:
    """The usage that the library's metrics show; None where it makes none."""
    values = {
        family.name.removeprefix(_PREFIX): family.samples[0].value
        for family in read_metrics(shim)
        if family.name.startswith(_PREFIX)
    }
    try:
        return CacheUsage(int(values["num_entries"]), int(values["num_evictions"]), values["util"])
    except KeyError:
        return None


def without_usage(families: Iterable[MetricFamily]) -> Iterator[MetricFamily]:
    """Metrics that the server has not: it counts itself what the others of these names say."""
    return (family for family in families if not family.name.startswith(_PREFIX))
