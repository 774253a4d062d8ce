"""Whom the instances in workers tell what happens to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tritonpy.errors import TritonError
from tritonpy.model.execution import Instance
from tritonpy.request import InferRequest

OnIdle = Callable[[], None]
OnReschedule = Callable[[InferRequest], None]


@dataclass(frozen=True, slots=True)
class WorkerEvents:
    """Whom the instances of one model version tell; all of it on the loop.

    Attributes:
        on_down: an instance is dead and could not be restarted at once.
        on_restart: a worker was started again and executes.
        on_unanswered: a request has been open for long after its `execute` returned.
        on_death: a worker has died, and with it all that its model knew.
    """

    on_down: Callable[[TritonError], None]
    on_restart: Callable[[], None]
    on_unanswered: Callable[[], None] = lambda: None
    on_death: Callable[[Instance, TritonError], None] = lambda instance, error: None
