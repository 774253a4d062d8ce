"""A batching strategy asked hook by hook, where `open_strategy` would batch by its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tritonpy.handles import Batch, Batcher
from tritonpy.plugin_manager import Hook
from tritonpy.request import InferRequest
from tritonpy.scheduler.batcher import BoundStrategy


class Attempt:
    """An attempt at a batch, between the two hooks that frame it.

    Attributes:
        batch: what the hooks receive.
    """

    def __init__(self, bound: BoundStrategy, batcher: Batcher) -> None:
        self._include = _required(bound, "model_batch_include_request")
        self._admit = bound.bind("model_batcher_admit_request")
        self.batch = Batch(batcher, _required(bound, "model_batch_initialize")(batcher))

    def admit(self, request: InferRequest) -> None:
        """Let the strategy note what it wants of a request, as when it has entered the queue."""
        if self._admit is not None and request.batching_state is None:
            request.batching_state = self._admit(self.batch.batcher, request)

    def include(self, request: InferRequest) -> object:
        """The answer about one more request."""
        self.admit(request)
        answer: object = self._include(request, self.batch)
        return answer


class DrivenStrategy:
    """A strategy whose model is loaded; a context manager that begins it on entry and ends it on exit."""

    def __init__(self, bound: BoundStrategy) -> None:
        self._bound = bound
        self._batcher = Batcher(bound.model)

    def __enter__(self) -> DrivenStrategy:
        self._batcher.state = _required(self._bound, "model_batcher_initialize")(self._bound.model)
        return self

    def __exit__(self, *error: object) -> None:
        _required(self._bound, "model_batcher_finalize")(self._batcher)

    def hook(self, name: str) -> Hook | None:
        """The implementation of an optional hook, or None."""
        return self._bound.bind(name)

    @contextmanager
    def attempt(self) -> Iterator[Attempt]:
        """Begin an attempt at a batch, and end it."""
        attempt = Attempt(self._bound, self._batcher)
        yield attempt
        _required(self._bound, "model_batch_finalize")(attempt.batch)

    def answers(self, requests: Sequence[InferRequest]) -> list[bool]:
        """What it answers in one attempt, until it says no."""
        answers: list[bool] = []
        with self.attempt() as attempt:
            for request in requests:
                answers.append(bool(attempt.include(request)))
                if not answers[-1]:
                    break
        return answers


def _required(bound: BoundStrategy, name: str) -> Hook:
    hook = bound.bind(name)
    assert hook is not None  # checked when bound
    return hook
