"""A right strategy passes every check of the kit; each wrong one is named with what to do about it."""

from __future__ import annotations

import math
import threading
import time

import pytest
from tritonpy.plugin import InvalidArg, hookimpl
from tritonpy_sdk.testing import PluginFault, StrategyConformance, strategy_conformance
from tritonpy_sdk.testing.rules import rules_of

LIMIT = 21


class Volume:
    """At most 21 bytes go together."""

    @hookimpl
    def model_batcher_initialize(self, model):
        limit = model.parameter("LIMIT", str(LIMIT))
        if not limit.isdigit():
            raise InvalidArg(f"parameter LIMIT: got '{limit}', expected a number of bytes")
        return int(limit)

    @hookimpl
    def model_batcher_finalize(self, batcher):
        pass

    @hookimpl
    def model_batch_initialize(self, batcher):
        return [batcher.state]

    @hookimpl
    def model_batch_include_request(self, request, batch):
        if request.byte_size > batch.state[0]:
            return False
        batch.state[0] -= request.byte_size
        return True

    @hookimpl
    def model_batch_finalize(self, batch):
        pass


class VolumeInRuns(Volume):
    @hookimpl
    def model_batch_include_requests(self, batch, requests):
        for index, request in enumerate(requests):
            if not self.model_batch_include_request(request, batch):
                return index
        return len(requests)

    @hookimpl
    def model_batch_padded_size(self, batch, size):
        return size


class NeverCloses(Volume):
    @hookimpl
    def model_batch_include_request(self, request, batch):
        return True


class ClosesEarly(Volume):
    @hookimpl
    def model_batch_initialize(self, batcher):
        return [batcher.state - 1]


class TakesNothing(Volume):
    @hookimpl
    def model_batch_include_request(self, request, batch):
        return batch.state[0] < LIMIT


class ForgetsToAnswer(Volume):
    @hookimpl
    def model_batch_include_request(self, request, batch):
        batch.state[0] -= request.byte_size


class RaisesToClose(Volume):
    @hookimpl
    def model_batch_include_request(self, request, batch):
        if not super().model_batch_include_request(request, batch):
            raise RuntimeError("full")
        return True


class CountsForAllBatches(Volume):
    @hookimpl
    def model_batcher_initialize(self, model):
        return [LIMIT]

    @hookimpl
    def model_batch_initialize(self, batcher):
        return batcher.state


class CountsInItself(Volume):
    left = LIMIT

    @hookimpl
    def model_batch_initialize(self, batcher):
        self.left = LIMIT

    @hookimpl
    def model_batch_include_request(self, request, batch):
        self.left -= request.byte_size
        return self.left >= 0


class OtherAnswersForRuns(VolumeInRuns):
    @hookimpl
    def model_batch_include_requests(self, batch, requests):
        return super().model_batch_include_requests(batch, requests[:3])


class ForgetsTheRunBefore(VolumeInRuns):
    @hookimpl
    def model_batch_include_requests(self, batch, requests):
        batch.state[0] = LIMIT
        return super().model_batch_include_requests(batch, requests)


class PadsBeyond(VolumeInRuns):
    @hookimpl
    def model_batch_padded_size(self, batch, size):
        return 2 ** math.ceil(math.log2(size + 1))


class PadsByHalves(VolumeInRuns):
    @hookimpl
    def model_batch_padded_size(self, batch, size):
        return min(64, size / 2 * 2)


class WantsAParameter(Volume):
    @hookimpl
    def model_batch_include_request(self, request, batch):
        return bool(request.parameters["tenant"])


class MarksRequests(Volume):
    @hookimpl
    def model_batch_include_request(self, request, batch):
        request.priority = 1
        return super().model_batch_include_request(request, batch)


class KeepsRequests(Volume):
    def __init__(self):
        self.seen = []

    @hookimpl
    def model_batch_include_request(self, request, batch):
        self.seen.append(request)
        return super().model_batch_include_request(request, batch)


class KeepsNotes(Volume):
    def __init__(self):
        self.notes = []

    @hookimpl
    def model_batch_finalize(self, batch):
        self.notes.append([batch.state[0], time.monotonic_ns()])


class NeverStopsItsThread(Volume):
    def __init__(self):
        self.end = threading.Event()

    @hookimpl
    def model_batcher_initialize(self, model):
        threading.Thread(target=self.end.wait, daemon=True).start()
        return LIMIT

    def __del__(self):
        self.end.set()


class KeepsItsFileOpen(Volume):
    def __init__(self):
        self.files = []

    @hookimpl
    def model_batcher_initialize(self, model):
        self.files.append(open(__file__, "rb"))  # noqa: SIM115
        return LIMIT

    def __del__(self):
        for file in self.files:
            file.close()


class CannotLetGo(Volume):
    @hookimpl
    def model_batcher_finalize(self, batcher):
        batcher.state.close()


class TakesItsTime(Volume):
    @hookimpl
    def model_batch_include_request(self, request, batch):
        time.sleep(0.002)
        return True


class Prints(Volume):
    @hookimpl
    def model_batch_include_request(self, request, batch):
        print("asked")
        return True


class TakesAnyParameter(Volume):
    @hookimpl
    def model_batcher_initialize(self, model):
        return LIMIT


class StumblesOverParameters(Volume):
    @hookimpl
    def model_batcher_initialize(self, model):
        return int(model.parameter("LIMIT"))


RIGHT = (Volume, VolumeInRuns)
WRONG = [
    (NeverCloses, "batches_are_the_wanted_ones", "put together what may not go together", "what a new batch"),
    (ClosesEarly, "batches_are_the_wanted_ones", "closed a batch too early", "the limit itself"),
    (TakesNothing, "an_empty_batch_takes_any_request", "for an empty batch", "as long as the batch is empty"),
    (ForgetsToAnswer, "answers_are_true_or_false", "answered None", "`return True` or `return False`"),
    (RaisesToClose, "every_request_leaves", "RuntimeError: full", "answer False to close the batch"),
    (
        CountsForAllBatches,
        "an_attempt_begun_anew_gets_the_same_answers",
        "when it was asked first",
        "batch.state",
    ),
    (CountsInItself, "models_do_not_share_state", "where another model was asked", "nothing in globals"),
    (OtherAnswersForRuns, "asking_for_a_run_is_asking_one_by_one", "took 3 of 12", "call the same function"),
    (
        ForgetsTheRunBefore,
        "asking_for_a_run_is_asking_one_by_one",
        "asked in runs",
        "count on from batch.state",
    ),
    (PadsBeyond, "padded_sizes_are_sizes", "wants 128 rows where max_batch_size is 64", "has room"),
    (PadsByHalves, "padded_sizes_are_sizes", "answered 1.0 about a batch of 1 rows", "return an integer"),
    (WantsAParameter, "a_request_without_parameters_is_no_accident", "KeyError", "request.parameters.get"),
    (MarksRequests, "requests_are_only_read", "changed 'priority'", "keep notes in batch.state"),
    (KeepsRequests, "nothing_grows_with_the_number_of_batches", "keeps requests", "keep numbers instead"),
    (
        KeepsNotes,
        "nothing_grows_with_the_number_of_batches",
        "more blocks of memory",
        "drop what was collected",
    ),
    (NeverStopsItsThread, "nothing_is_left_when_the_model_is_gone", "1 more threads", "end threads"),
    (KeepsItsFileOpen, "nothing_is_left_when_the_model_is_gone", "1 more file descriptors", "close files"),
    (CannotLetGo, "it_begins_and_ends_with_its_model", "'int' object has no attribute", "what can fail"),
    (TakesItsTime, "answers_come_at_once", "µs to begin a batch", "answer from memory"),
    (Prints, "nothing_is_printed", "wrote 'asked", "logging.getLogger"),
    (TakesAnyParameter, "wrong_parameters_are_refused_with_words", "took the parameters", "raise InvalidArg"),
    (StumblesOverParameters, "wrong_parameters_are_refused_with_words", "ValueError", "name the parameter"),
]
CHECKS = [name for name, _ in rules_of(StrategyConformance)]


def run(strategy, check):
    class Suite(StrategyConformance, strategy=strategy(), wrong_parameters=[{"LIMIT": "many"}]):
        def may_go_together(self, requests):
            return sum(request.shape[1] for request in requests) <= LIMIT

    getattr(Suite(), check)()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("strategy", RIGHT)
def test_right_strategy_passes(strategy, check):
    run(strategy, check)


@pytest.mark.parametrize(
    ("strategy", "check", "did", "remedy"), WRONG, ids=lambda each: getattr(each, "__name__", "")
)
def test_wrong_strategy_is_named_with_what_to_do(strategy, check, did, remedy, monkeypatch):
    monkeypatch.setattr("tritonpy_sdk.testing.traces._GRACE_S", 0.0)
    with pytest.raises(PluginFault) as caught:
        run(strategy, f"test_{check}")

    assert did in caught.value.did
    assert remedy in caught.value.rule.remedy


def test_every_check_of_the_kit_can_fail():
    assert {f"test_{check}" for _, check, _, _ in WRONG} == set(CHECKS)


def test_a_strategy_with_a_memory_is_not_asked_the_same_again():
    class Suite(StrategyConformance, strategy=CountsForAllBatches(), has_memory=True): ...

    with pytest.raises(pytest.skip.Exception, match="remembers"):
        Suite().test_an_attempt_begun_anew_gets_the_same_answers()


def test_what_is_slow_is_what_takes_over_a_millisecond():
    assert strategy_conformance._LONGEST_ANSWER_US == 1000
