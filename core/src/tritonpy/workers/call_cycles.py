"""Detection of cycles of calls: calls to other models that can never be answered.

An instance whose model calls another one and waits takes nothing else meanwhile. When every instance that
could answer waits, directly or through others, for an instance that waits for this very call, the call would
never end, as in Triton. It is found when it is made, by following what each waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tritonpy.errors import Internal
from tritonpy.model.execution import Execution
from tritonpy.request import InferRequest


@runtime_checkable
class WaitingInstance(Protocol):
    """An instance, as far as others wait for it; see `Instance`."""

    name: str
    depth: int
    concurrency: int

    def running_executions(self) -> Sequence[tuple[Execution, Sequence[InferRequest]]]:
        """The executions now, each with the unanswered calls that it waits for."""


@runtime_checkable
class Instantiated(Protocol):
    """A model with instances; a `LoadedModel`."""

    @property
    def instances(self) -> Sequence[WaitingInstance]:
        """Its execution slots."""


@runtime_checkable
class WaitingRun(Protocol):
    """A request to an ensemble, as far as it waits for others; see `EnsembleRun`."""

    @property
    def open_requests(self) -> Sequence[InferRequest]:
        """The requests to its models that are not answered."""


class Called(Protocol):
    """A model that is called; a `LoadedModel`."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def instances(self) -> Sequence[WaitingInstance]:
        """Its execution slots."""


def refuse_cycle(
    request: InferRequest, execution: Execution, target: Called, model: str, instance: str
) -> None:
    """Note the executions that wait for a call, and refuse it if they form a cycle.

    Args:
        request: to the called model.
        execution: that makes it, and waits for it.
        target: the called model.
        model: that executes.
        instance: of it, that does.

    Raises:
        Internal: the call would wait for itself; says along which path.
    """
    chain: tuple[object, ...] = (execution,)
    for parent in execution.requests:
        chain += tuple(waiting for waiting in parent.ticket.chain if waiting not in chain)
    request.ticket.chain = chain
    path = path_to_caller(target.instances, chain)
    if path is not None:
        waits = " waits for ".join(f"'{name}'" for name in (instance, *path))
        raise Internal(
            f"model '{model}' cannot call '{target.name}': the call would wait for itself for ever "
            f"({waits}). Give '{target.name}' more instances (instance_group count) or break the cycle"
        )


def path_to_caller(instances: Sequence[WaitingInstance], chain: Sequence[object]) -> list[str] | None:
    """The path by which the instances of a called model depend on the callers that wait for the call.

    Args:
        instances: of the called model.
        chain: the executions that wait for the call.

    Returns:
        None when one of the instances will be free; else names of instances, each of which waits for
        the next one; the last one waits for the call.
    """
    path: list[str] | None = None
    for instance in instances:
        path = _path(instance, chain)
        if path is None:
            return None
    return path


def _path(instance: WaitingInstance, chain: Sequence[object]) -> list[str] | None:
    if instance.depth < instance.concurrency:
        return None  # it takes the call at once
    path: list[str] | None = None
    for execution, calls in instance.running_executions():
        path = _path_of_execution(execution, calls, chain)
        if path is None:
            return None  # it will be over in the end, and then there is room
    return [instance.name, *path] if path is not None else None


def _path_of_execution(
    execution: Execution, calls: Sequence[InferRequest], chain: Sequence[object]
) -> list[str] | None:
    if execution in chain:
        return []
    for request in calls:
        path = _path_of_request(request, (*chain, execution))
        if path is not None:
            return path
    return None


def _path_of_request(request: InferRequest, chain: Sequence[object]) -> list[str] | None:
    holder = request.ticket.on_cancel
    if isinstance(holder, WaitingInstance):  # it has been sent there already
        return _path(holder, chain)
    if isinstance(holder, WaitingRun):
        paths = (_path_of_request(step, chain) for step in holder.open_requests)
        return next((path for path in paths if path is not None), None)
    model = request.ticket.owner
    return path_to_caller(model.instances, chain) if isinstance(model, Instantiated) else None
