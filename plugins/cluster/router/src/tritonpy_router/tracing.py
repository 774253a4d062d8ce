"""Tracing by the router itself: which requests it notes, and where its spans go."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from tritonpy.tracing.configuration import TraceWord, read_configuration
from tritonpy.tracing.output import TraceDestination, TraceOutput, collector_destination
from tritonpy.tracing.settings import TraceLevel, TraceOrigin, TraceSettings
from tritonpy.tracing.trace import new_context, read_context
from tritonpy.tracing.tracing import Sampler

from tritonpy_router.request_spans import RequestSpans

_log = logging.getLogger("tritonpy.router")

_ORIGIN = TraceOrigin("tritonpy-router", "tritonpy-router")

TRACE_HEADERS = frozenset((b"traceparent", b"tracestate"))
"""Headers that an attempt has of its own where its request is traced."""


class RouterTracing:
    """Says which requests are traced, and takes their spans; on the loop only.

    Args:
        settings: what is traced.
        destination: where spans go.
        clock: gives the time in nanoseconds.
    """

    def __init__(
        self,
        settings: TraceSettings,
        destination: TraceDestination,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._sampler = Sampler(settings, needs_file=False)
        self._output = TraceOutput(destination)
        self._clock = clock

    def begin(
        self, headers: Iterable[tuple[bytes, bytes]], begun_ns: int, attributes: Mapping[str, str]
    ) -> RequestSpans | None:
        """The spans of a request that has come; None when it is not traced.

        A client that says whether it traces the request decides; of all others one in `rate` is traced.

        Args:
            headers: of the request, or the metadata of the call; their names in small letters.
            begun_ns: when it began to arrive; 0 for now.
            attributes: say how it came.
        """
        found: dict[bytes, str] = {}
        for name, value in headers:
            if name in TRACE_HEADERS:
                found.setdefault(name, value.decode("latin-1"))
        context = read_context(found.get(b"traceparent"), found.get(b"tracestate"))
        if context is None:
            if not self._sampler.wants():
                return None
            context = new_context()
        elif not context.is_sampled:
            return None
        return RequestSpans(context, self._output.put, self._clock, begun_ns or self._clock(), attributes)

    def close(self) -> None:
        """Send all spans, and wait for that; a collector that hangs is left behind after some seconds."""
        self._output.close()


def open_tracing(words: Iterable[TraceWord]) -> RouterTracing | None:
    """The tracing that the words of `--trace-config` ask for; None for none.

    Raises:
        InvalidArg: a word is wrong, or what sends spans is not installed.
    """
    configuration = read_configuration(words)
    settings = configuration.settings
    if not settings.level & TraceLevel.TIMESTAMPS:
        return None
    if configuration.mode != "opentelemetry":
        _log.warning(
            "the router traces nothing: its traces go to a collector, --trace-config mode=opentelemetry; "
            "files of mode '%s' are those of servers",
            configuration.mode,
        )
        return None
    return RouterTracing(settings, collector_destination(configuration.collector, _ORIGIN))
