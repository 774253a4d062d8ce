"""The load that a language model reports with its answers, for load balancers that speak ORCA."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

import orjson

_log = logging.getLogger("tritonpy.http")

REQUEST_HEADER = b"endpoint-load-metrics-format"
FAMILY = "nv_trt_llm_kv_cache_block_metrics"
_TYPE = "kv_cache_block_type"

Series = Iterable[tuple[tuple[tuple[str, str], ...], float]]
"""Labels and values of one family of metrics."""


def load_header(wanted: bytes, series: Series) -> bytes | None:
    """The header line for a client that asked for one; None when the metrics are not there.

    Args:
        wanted: what the request header says: `json` or `text`.
        series: of the family `FAMILY`, which backends of language models keep.
    """
    blocks = {text: value for labels, value in series for name, text in labels if name == _TYPE}
    per_block, used, most = (blocks.get(kind, -1.0) for kind in ("tokens_per", "used", "max"))
    if not all(0 <= value < math.inf for value in (per_block, used, most)):
        _log.debug(
            "a client asks for %s, but metric '%s' has no numbers for %s tokens_per, used and max: %s",
            REQUEST_HEADER.decode(),
            FAMILY,
            _TYPE,
            blocks,
        )
        return None
    utilization = used / most if most else 0.0
    capacity = int(most * per_block)
    if wanted == b"json":
        metrics = {"kv_cache_utilization": utilization, "max_token_capacity": capacity}
        said = b"JSON " + orjson.dumps({"named_metrics": metrics})
    elif wanted == b"text":
        said = b"TEXT named_metrics.kv_cache_utilization=%f, named_metrics.max_token_capacity=%d" % (
            utilization,
            capacity,
        )
    else:
        _log.debug("%s is '%s', expected json or text", REQUEST_HEADER.decode(), wanted.decode("latin-1"))
        return None
    return b"endpoint-load-metrics: " + said + b"\r\n"
