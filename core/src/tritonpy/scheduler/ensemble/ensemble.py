"""The scheduler of an ensemble: it has no instances, only models that answer its steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tritonpy.errors import TritonError
from tritonpy.model.execution import Instance
from tritonpy.request import InferRequest
from tritonpy.scheduler.ensemble.open_step import StepLimits
from tritonpy.scheduler.ensemble.plan import Plan
from tritonpy.scheduler.ensemble.run import EnsembleRun
from tritonpy.stats import ModelStats


class EnsembleScheduler:
    """Answers requests by running the steps of a plan; satisfies `RequestScheduler`. On the loop only.

    A `RunOwner`, too.

    Args:
        plan: the steps, bound to the models that serve.
        stats: where requests are counted.

    Attributes:
        name: the ensemble.
        is_decoupled: it may answer any number of times.
        stats: as given.
        limits: how many requests each step may have open, if there is a limit.
    """

    def __init__(self, plan: Plan, stats: ModelStats) -> None:
        self.name = plan.name
        self.is_decoupled = plan.is_decoupled
        self.stats = stats
        self.limits = StepLimits(plan.max_open_count, plan.step_count) if plan.max_open_count else None
        self._plan = plan
        self._runs: set[EnsembleRun] = set()
        self._refusal: TritonError | None = None

    def enqueue(self, request: InferRequest) -> None:
        """See `RequestScheduler`.

        Raises:
            TritonError: it is closed.
        """
        if self._refusal is not None:
            raise self._refusal
        request.queue_start_ns = time.monotonic_ns()
        run = EnsembleRun(self, request)
        request.ticket.on_cancel = run
        self._runs.add(run)
        run.start(self._plan.course(request.requested_outputs))

    def use(self, instances: Sequence[Instance]) -> None:
        """See `RequestScheduler`; there are none."""

    def refuse(self, error: TritonError | None) -> None:
        self._refusal = error
        if error is not None:
            for run in tuple(self._runs):
                run.abandon(error)

    def close(self, error: TritonError) -> None:
        self.refuse(error)

    def run_ended(self, run: EnsembleRun) -> None:
        self._runs.discard(run)
