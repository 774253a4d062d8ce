"""Decisions of a batching policy, and the reasons a batch closes.

A policy waits for nothing and reads no clock: requests and the time go in, one of these comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from tritonpy.errors import TritonError
from tritonpy.model.execution import BatchOwner, Instance
from tritonpy.request import InferRequest


class Closed(StrEnum):
    """The reason why a batch left with the size it has."""

    SINGLE = "single"
    """The model's scheduler does not batch."""
    FULL = "full"
    """No size larger than this is wanted, or the next request would exceed max_batch_size."""
    PREFERRED = "preferred"
    """A preferred size was reached."""
    SHAPE = "shape"
    """The next request's inputs have other shapes, or it carries other inputs."""
    STRATEGY = "strategy"
    """The batching strategy refused the next request."""
    UTILIZATION = "utilization"
    """As many slots have a request as the direct strategy of sequences asks for."""
    DELAY = "delay"
    """The oldest request has waited for the queue delay."""
    QUEUE_EMPTY = "queue empty"
    """An instance was free, nothing else was queued, and no delay is configured."""


@dataclass(slots=True)  # one is made for each batch, and to freeze it would cost more than to make it
class Dispatch:
    """Give these requests to an instance, now.

    Attributes:
        requests: the batch, in queue order.
        batch_size: its rows.
        closed: why it has this size.
        null_count: how many of the requests are null requests.
        owner: notified of the batch's end, where the policy needs to know.
    """

    requests: list[InferRequest]
    batch_size: int
    closed: Closed
    null_count: int = 0
    owner: BatchOwner | None = None


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Ask again at this time of the monotonic clock, or when a request arrives before."""

    deadline_ns: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Ask again when a request arrives."""


IDLE = Idle()

Decision: TypeAlias = Dispatch | WaitUntil | Idle


Refusal: TypeAlias = tuple[InferRequest, TritonError, str]
"""A request, why it fails, and the reason it is counted under (one of `stats.REASONS`)."""


class BatchingPolicy(Protocol):
    """Holds the requests that wait and decides which of them go together.

    Attributes:
        is_lazy: whether the driver should look only once per turn of the loop, so that everything that
            arrived in that turn is seen together.
        may_expire: whether `expire` ever has something to do.
    """

    is_lazy: bool
    may_expire: bool

    @property
    def waiting_count(self) -> int:
        """Requests held."""
        ...

    def add(self, request: InferRequest) -> None:
        """Put a request into the queue, where its priority says.

        Raises:
            TritonError: the queue is full.
        """

    def remove(self, request: InferRequest) -> bool:
        """Take a request out; False when it is not (any more) in the queue."""

    def decide(self, now_ns: int, instance: Instance) -> Decision:
        """Say what to do while this instance could take a batch."""

    def has_batch(self, now_ns: int, instance: Instance) -> bool:
        """True if `decide` would have a batch for it; asked while the instance may have to wait for it."""
        ...

    def is_settled(self, now_ns: int) -> bool:
        """True if `decide` has a batch that nothing which comes later would change.

        Asked of lazy policies.
        """
        ...

    def expire(self, now_ns: int) -> int:
        """Refuse the requests that have waited too long; returns when the next one will have, 0 for never."""
        ...

    def take_refused(self) -> list[Refusal]:
        """Requests that left the queue with an error since the last call."""

    def take_all(self) -> list[InferRequest]:
        """Empty the queue."""


class SequencePolicy(BatchingPolicy, Protocol):
    """A policy whose requests have to go to a certain instance: the one with the state of their sequence.

    It is asked instance by instance, and hears of the end of a batch as its owner.

    Attributes:
        is_iterative: a model continues a sequence by rescheduling its request.
        on_late_end: called when a sequence may go on though no batch has ended: its model has answered a
            request after the execution.
    """

    is_iterative: bool
    on_late_end: Callable[[], None]

    @property
    def instances(self) -> Sequence[Instance]:
        """Those that are fed: the ones in use, and those that have sequences to end first."""
        ...

    @property
    def open_count(self) -> int:
        """Sequences that have begun and are not over."""
        ...

    def stop_starting(self, error: TritonError) -> None:
        """Refuse new sequences from now on."""

    def use(self, instances: Sequence[Instance]) -> None:
        """New sequences go to these from now on."""

    def lose(self, instance: Instance, error: TritonError) -> None:
        """End the sequences of an instance that has lost what it knew of them."""

    def add_again(self, request: InferRequest) -> None:
        """Take back a request that the model has executed and wants to execute again.

        Raises:
            TritonError: it cannot be.
        """
