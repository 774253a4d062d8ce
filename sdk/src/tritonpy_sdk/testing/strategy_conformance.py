"""The tests that every batching strategy has to pass."""

from __future__ import annotations

import gc
import inspect
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import ClassVar

import pytest
from tritonpy.errors import ErrorCode, TritonError
from tritonpy.request import InferRequest

from tritonpy_sdk.testing.driven_strategy import DrivenStrategy
from tritonpy_sdk.testing.rules import rule
from tritonpy_sdk.testing.strategy import OpenStrategy, WaitingRequest, find_strategy, open_strategy
from tritonpy_sdk.testing.traces import check_no_growth, nothing_printed

_PAGE = "how-to/write-a-batching-strategy.md"
_HOOKS = "reference/hooks.md"
_LONGEST_ANSWER_US = 1000.0
_BATCHES = 50
_LENGTH = 12


class StrategyConformance:
    """Subclass this in a test module and every rule of the batching hooks is tested with your strategy.

    ```python
    class TestXyz(StrategyConformance, strategy="xyz", parameters={"LIMIT": "96"}): ...
    ```

    Class arguments:
        strategy: the name of an installed one, a module or object, or the `Path` of a file: `.py`, or a
            shared object, which needs tritonpy-abi. A function that returns one will do, too.
        parameters: of the model's configuration.
        wrong_parameters: parameters that the strategy has to refuse.
        max_batch_size: of the model.
        has_memory: earlier batches change what it answers; it is then not asked the same again.

    Override `make_requests` for a strategy that reads more than shapes, and `may_go_together` to have its
    batches compared with what you want.
    """

    strategy: ClassVar[str | os.PathLike[str] | object]
    parameters: ClassVar[Mapping[str, str]]
    wrong_parameters: ClassVar[Sequence[Mapping[str, str]]]
    max_batch_size: ClassVar[int]
    has_memory: ClassVar[bool]

    def __init_subclass__(
        cls,
        *,
        strategy: str | os.PathLike[str] | object = "",
        parameters: Mapping[str, str] | None = None,
        wrong_parameters: Sequence[Mapping[str, str]] = (),
        max_batch_size: int = 64,
        has_memory: bool = False,
        **rest: object,
    ) -> None:
        super().__init_subclass__(**rest)
        if strategy:
            cls.strategy = staticmethod(strategy) if inspect.isfunction(strategy) else strategy
            cls.parameters = dict(parameters or {})
            cls.wrong_parameters = wrong_parameters
            cls.max_batch_size = max_batch_size
            cls.has_memory = has_memory

    def make_requests(self) -> Sequence[WaitingRequest]:
        """A dozen requests as clients send them, of which the strategy refuses none for an empty batch."""
        return [WaitingRequest((1, size), "UINT8", id=str(size)) for size in range(1, _LENGTH + 1)]

    def may_go_together(self, requests: Sequence[WaitingRequest]) -> bool | None:
        """Whether these, in this order, may be one batch; None where nobody says.

        Sizes of batches are the batcher's business and need not be looked at.
        """
        return None

    # Beginning and end.

    @rule(
        "a strategy begins when its model is loaded, and its finalizing hooks raise nothing",
        "look at the exception; what can fail belongs into model_batcher_initialize, with words for the user",
        _PAGE,
    )
    def test_it_begins_and_ends_with_its_model(self) -> None:
        with self._open() as strategy:
            strategy.batches(self.make_requests())
        with self._open():
            pass  # a model that never got a request

    @rule(
        "model_batcher_initialize refuses parameters that it does not understand by an error for the user",
        "raise InvalidArg, or NotFound for one that is missing, and name the parameter and what was expected",
        _PAGE,
    )
    def test_wrong_parameters_are_refused_with_words(self) -> None:
        if not self.wrong_parameters:
            pytest.skip("the suite names no wrong_parameters")
        for parameters in self.wrong_parameters:
            error = self._refusal(parameters)
            assert error is not None, f"took the parameters {dict(parameters)}"
            assert error.code is not ErrorCode.INTERNAL, f"refused {dict(parameters)} by {error}"
            words = [word for item in parameters.items() for word in item]
            assert not words or any(word in str(error) for word in words), (
                f"refused {dict(parameters)} with a text that names none of them: {error}"
            )

    @rule(
        "what a strategy holds for a model is given back in model_batcher_finalize",
        "close files, end threads and drop what was kept there; keep nothing in globals",
        _HOOKS,
    )
    def test_nothing_is_left_when_the_model_is_gone(self) -> None:
        driven, requests = self._begun(), self._built()

        def live() -> None:
            with driven:
                driven.answers(requests)

        check_no_growth(live, "each load of a model")

    # Answers.

    @rule(
        "every request leaves in a batch, unless the strategy raises: then that request fails with words",
        "answer False to close the batch, and raise InvalidArg for a request that is wrong, nothing else",
        _PAGE,
    )
    def test_every_request_leaves(self) -> None:
        requests = self.make_requests()
        with self._open() as strategy:
            batches = strategy.batches(requests)

        assert not strategy.failed, f"failed {strategy.failed[0][0]}: {strategy.failed[0][1]}"
        assert [each for batch in batches for each in batch] == list(requests), (
            "changed the order of requests"
        )

    @rule(
        "model_batch_include_request returns True or False",
        "end each way through the function with `return True` or `return False`",
        _HOOKS,
    )
    def test_answers_are_true_or_false(self) -> None:
        with self._begun() as begun, begun.attempt() as attempt:
            for request in self._built():
                answer = attempt.include(request)
                assert isinstance(answer, bool | int), f"answered {answer!r} about a request"
                if not answer:
                    break

    @rule(
        "a request that is refused for an empty batch runs alone, so the first answer of an attempt is True",
        "answer True as long as the batch is empty, or refuse the request by an exception",
        _PAGE,
    )
    def test_an_empty_batch_takes_any_request(self) -> None:
        with self._begun() as begun:
            for request in self._built():
                assert begun.answers([request]) == [True], f"refused {request} for an empty batch"

    @rule(
        "batches are those that the suite's may_go_together describes, each as long as it can be",
        "look at what the strategy counts: the first request, the limit itself, what a new batch begins with",
        _PAGE,
    )
    def test_batches_are_the_wanted_ones(self) -> None:
        requests = list(self.make_requests())
        if self.may_go_together(requests[:1]) is None:
            pytest.skip("the suite does not say which requests may go together")
        with self._open() as strategy:
            batches = strategy.batches(requests)
        ahead = 0
        for batch in batches:
            ids = [request.id or request.shape for request in batch]
            assert self.may_go_together(batch), f"put together what may not go together: {ids}"
            ahead += len(batch)
            if ahead < len(requests) and sum(request.shape[0] for request in batch) < self.max_batch_size:
                longer = [*batch, requests[ahead]]
                assert not self.may_go_together(longer), f"closed a batch too early: {ids}"

    @rule(
        "an attempt that is begun anew for the same requests gets the same answers",
        "keep what belongs to one attempt in batch.state only, which model_batch_initialize returns",
        _PAGE,
    )
    def test_an_attempt_begun_anew_gets_the_same_answers(self) -> None:
        self._skip_with_memory()
        requests = self._built()
        with self._begun() as begun:
            first = begun.answers(requests)
            for given_up in (0, 1, len(requests)):
                begun.answers(requests[:given_up])
                again = begun.answers(requests)
                assert again == first, f"answered {again}, and {first} when it was asked first"

    @rule(
        "each model has a state of its own, and each attempt of it",
        "keep nothing in globals or class attributes: return it from model_batcher_initialize and "
        "model_batch_initialize",
        _HOOKS,
    )
    def test_models_do_not_share_state(self) -> None:
        self._skip_with_memory()
        strategy = self._new()
        requests = self._built()
        with self._begun(strategy) as one:
            alone = one.answers(requests)
            with self._begun(strategy) as other, one.attempt() as attempt, other.attempt() as another:
                for request, expected in zip(requests, alone, strict=False):
                    another.include(request)
                    answer = bool(attempt.include(request))
                    assert answer == expected, (
                        f"answered {answer} about {request} where another model was asked too, {expected} "
                        f"where it was not"
                    )

    @rule(
        "model_batch_include_requests gives the answers that asking one by one gives, whatever the runs",
        "make both hooks call the same function, and count on from batch.state",
        _HOOKS,
    )
    def test_asking_for_a_run_is_asking_one_by_one(self) -> None:
        self._skip_with_memory()
        requests = self._built()
        with self._begun() as begun:
            include_many = begun.hook("model_batch_include_requests")
            if include_many is None:
                pytest.skip("the strategy is asked one by one")
            one_by_one = sum(begun.answers(requests))
            for first in range(len(requests)):
                taken = 0
                with begun.attempt() as attempt:
                    for request in requests:
                        attempt.admit(request)
                    for run in filter(None, (requests[:first], requests[first:])):
                        count = include_many(attempt.batch, run)
                        assert isinstance(count, int), f"answered {count!r} about a run of requests"
                        taken += count
                        if count < len(run):
                            break
                assert taken == one_by_one, (
                    f"took {taken} of {len(requests)} requests asked in runs of {first} and the rest, and "
                    f"{one_by_one} asked one by one"
                )

    @rule(
        "model_batch_padded_size returns a number of rows of at most max_batch_size",
        "return an integer: the smallest size of the model that has room, or the size itself",
        _HOOKS,
    )
    def test_padded_sizes_are_sizes(self) -> None:
        with self._begun() as begun:
            pad = begun.hook("model_batch_padded_size")
            if pad is None:
                pytest.skip("the strategy does not fill batches up")
            for size in range(1, self.max_batch_size + 1):
                with begun.attempt() as attempt:
                    attempt.include(self._built()[0])
                    padded = pad(attempt.batch, size)
                assert isinstance(padded, int), f"answered {padded!r} about a batch of {size} rows"
                assert padded <= self.max_batch_size, (
                    f"wants {padded} rows where max_batch_size is {self.max_batch_size}"
                )

    @rule(
        "a client may leave out parameters; where one is needed, its request fails with InvalidArg",
        "read parameters by `request.parameters.get`, and raise InvalidArg with the name of what is missing",
        _PAGE,
    )
    def test_a_request_without_parameters_is_no_accident(self) -> None:
        with self._open() as strategy:
            strategy.batches([replace(request, parameters={}) for request in self.make_requests()])
        for _, error in strategy.failed:
            assert error.code is not ErrorCode.INTERNAL, f"failed a request without parameters: {error}"

    # What it must not do.

    @rule(
        "requests belong to the server: a strategy reads them",
        "keep notes in batch.state, or return them from model_batcher_admit_request",
        _HOOKS,
    )
    def test_requests_are_only_read(self) -> None:
        with self._begun() as begun:
            for request in self._built():
                before = _snapshot(request)
                begun.answers([request])
                after = _snapshot(request)
                changed = [name for name, value in before.items() if after[name] != value]
                assert not changed, f"changed '{changed[0]}' of a request"

    @rule(
        "a request is gone when its batch has left, and so is all that was kept of it",
        "keep numbers instead of requests, in batch.state; drop what was collected in model_batch_finalize",
        _HOOKS,
    )
    def test_nothing_grows_with_the_number_of_batches(self) -> None:
        with self._begun() as begun:
            seen = [weakref.ref(request) for request in _asked_about(begun, self._built()[:3])]
            gc.collect()
            assert not all(request() for request in seen), "keeps requests whose batches have left"
            requests = self._built()[:1]

            def form() -> None:
                for _ in range(_BATCHES):
                    begun.answers(requests)

            check_no_growth(form, f"{_BATCHES} batches", counts_memory=True)

    @rule(
        "the hooks run on the server's loop, where every request of the server waits meanwhile",
        "answer from memory in microseconds; read files and ask others in model_batcher_initialize only",
        _PAGE,
    )
    def test_answers_come_at_once(self) -> None:
        requests = self._built()[:1]
        with self._begun() as begun:
            best_us = min(_time_us(lambda: begun.answers(requests)) for _ in range(20))

        assert best_us < _LONGEST_ANSWER_US, (
            f"takes {best_us:.0f} µs to begin a batch and take one request, at best"
        )

    @rule(
        "standard output belongs to the server",
        "use logging.getLogger(__name__), which the server's log takes",
        _PAGE,
    )
    def test_nothing_is_printed(self) -> None:
        with nothing_printed(), self._open() as strategy:
            strategy.batches(self.make_requests())

    # How.

    def _new(self) -> str | os.PathLike[str] | object:
        strategy = type(self).strategy
        return strategy() if inspect.isfunction(strategy) else strategy

    def _begun(self, strategy: object = None) -> DrivenStrategy:
        return DrivenStrategy(find_strategy(strategy or self._new(), self.parameters, self.max_batch_size))

    def _refusal(self, parameters: Mapping[str, str]) -> TritonError | None:
        try:
            with open_strategy(self._new(), parameters, max_batch_size=self.max_batch_size):
                return None
        except TritonError as error:
            return error

    def _open(self) -> AbstractContextManager[OpenStrategy]:
        return open_strategy(self._new(), self.parameters, max_batch_size=self.max_batch_size)

    def _built(self) -> list[InferRequest]:
        return [request.build() for request in self.make_requests()]

    def _skip_with_memory(self) -> None:
        if self.has_memory:
            pytest.skip("the strategy remembers earlier batches")


def _asked_about(begun: DrivenStrategy, requests: list[InferRequest]) -> Iterator[InferRequest]:
    """Ask about each request alone, and give it up."""
    while requests:
        begun.answers(requests[:1])
        yield requests.pop(0)


def _snapshot(request: InferRequest) -> dict[str, object]:
    """What of a request a strategy can see."""
    return {
        "inputs": {name: bytes(tensor.wire()) for name, tensor in request.inputs.items()},
        "parameters": dict(request.parameters),
        "id": request.id,
        "batch_size": request.batch_size,
        "priority": request.priority,
        "timeout_us": request.timeout_us,
        "flags": request.flags,
    }


def _time_us(act: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    act()
    return (time.perf_counter_ns() - start) / 1000
