"""The link to a server's metrics, without a process in between."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry
from triton_python_backend_utils import MetricFamily, TritonModelException
from triton_python_backend_utils._server_metrics import flush_metrics
from tritonpy.errors import TritonError
from tritonpy.metrics.custom import CustomMetrics
from tritonpy.metrics.exposition import render


class Caller:
    instance = "net_0_0"


class MetricsServer:
    """What a worker asks and tells, done at once."""

    def __init__(self):
        self.registry = CollectorRegistry()
        self.told = []
        self._metrics = CustomMetrics(self.registry)
        self._caller = Caller()

    def ask(self, what, *args):
        try:
            return asyncio.run(self._metrics.ask(self._caller, what.removeprefix("metrics."), args))
        except TritonError as exc:
            raise TritonModelException(exc.message) from None

    def tell(self, what, *args):
        self.told.append((what, args))
        self._metrics.tell(self._caller, what.removeprefix("metrics."), args)

    def text(self):
        flush_metrics()
        self._metrics.take()
        return render(self.registry).decode()


def family(kind=MetricFamily.COUNTER, name="tokens"):
    return MetricFamily(name, "Tokens", kind)
