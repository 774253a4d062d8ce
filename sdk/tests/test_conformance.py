"""A right backend passes every test of the suite; each way of being wrong fails the test that is about it."""

from __future__ import annotations

import inspect
import itertools
import threading

import numpy as np
import pytest
from tritonpy.plugin import InferResponse, hookimpl
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendConformance, PluginFault, driver
from tritonpy_sdk.testing.rules import rules_of


class TestIdentity(BackendConformance, backend="identity", models="models/identity"): ...


class TestSquare(BackendConformance, backend="square", models="models/square"): ...


class Scaler:
    """Y is X times the model's FACTOR, Z is X plus 1."""

    @hookimpl
    def model_initialize(self, model):
        model.state = float(model.parameter("FACTOR", "2"))

    @hookimpl
    def model_instance_execute(self, instance, requests):
        return [self.respond(instance, request) for request in requests]

    def respond(self, instance, request):
        x = request.input("X").numpy()
        return InferResponse().add("Y", x * instance.model.state).add("Z", x + 1)


class Asynchronous(Scaler):
    @hookimpl
    async def model_instance_execute(self, instance, requests):
        return [self.respond(instance, request) for request in requests]


class AnswersByItself(Scaler):
    @hookimpl
    def model_instance_execute(self, instance, requests):
        for request in requests:
            request.respond(self.respond(instance, request))


class WritesToInputs(Scaler):
    def respond(self, instance, request):
        x = request.input("X").numpy()
        x *= 2
        return InferResponse().add("Y", x * 1).add("Z", x + 1)


class ReusesItsOutputBuffer(Scaler):
    buffer = np.zeros((100, 2), "f4")

    def respond(self, instance, request):
        x = request.input("X").numpy()
        y = self.buffer[: len(x)]
        np.multiply(x, 2, out=y)
        return InferResponse().add("Y", y).add("Z", x + 1)


class NeverFinishes(Scaler):
    @hookimpl
    def model_instance_execute(self, instance, requests):
        for request in requests:
            request.respond(self.respond(instance, request), final=False)


class AnswersOnlyTheFirst(Scaler):
    @hookimpl
    def model_instance_execute(self, instance, requests):
        return [self.respond(instance, requests[0])]


class AnswersAllAlike(Scaler):
    @hookimpl
    def model_instance_execute(self, instance, requests):
        return [self.respond(instance, requests[0])] * len(requests)


class AnswersTwice(Scaler):
    @hookimpl
    def model_instance_execute(self, instance, requests):
        requests[0].respond(self.respond(instance, requests[0]))
        return [self.respond(instance, request) for request in requests]


class GivesDoubles(Scaler):
    def respond(self, instance, request):
        x = request.input("X").numpy()
        return InferResponse().add("Y", x.astype("f8")).add("Z", x + 1)


class GivesFlatOutputs(Scaler):
    def respond(self, instance, request):
        x = request.input("X").numpy()
        return InferResponse().add("Y", x.reshape(-1)).add("Z", x + 1)


class GivesOneOutput(Scaler):
    def respond(self, instance, request):
        return InferResponse().add("Y", request.input("X").numpy() * 2)


class LooksOnlyAtTheFirstWish(Scaler):
    @hookimpl
    def model_instance_execute(self, instance, requests):
        responses = [self.respond(instance, request) for request in requests]
        for response in responses:
            response.outputs = [tensor for tensor in response.outputs if requests[0].wants(tensor.name)]
        return responses


class ComputesWhatNobodyWants(Scaler):
    def respond(self, instance, request):
        wanted = request.requested_outputs or ("Y", "Z")
        x = request.input("X").numpy()
        return InferResponse().add(wanted[0], x * (1 if len(wanted) == 1 else 2)).add("Q", x)


class LastModelWins(Scaler):
    @hookimpl
    def model_initialize(self, model):
        self.factor = float(model.parameter("FACTOR", "2"))

    def respond(self, instance, request):
        x = request.input("X").numpy()
        return InferResponse().add("Y", x * self.factor).add("Z", x + 1)


class LoadsOnce(Scaler):
    is_closed = False

    @hookimpl
    def model_finalize(self, model):
        self.is_closed = True

    def respond(self, instance, request):
        if self.is_closed:
            raise RuntimeError("closed")
        return super().respond(instance, request)


class StaysBroken(Scaler):
    is_broken = False

    def respond(self, instance, request):
        if "X" not in request.inputs or self.is_broken:
            self.is_broken = True
            raise RuntimeError("broken")
        return super().respond(instance, request)


class FailsWithoutAWord(Scaler):
    def respond(self, instance, request):
        if "X" not in request.inputs:
            raise RuntimeError
        return super().respond(instance, request)


class DivesAtZeroRows(Scaler):
    def respond(self, instance, request):
        x = request.input("X").numpy()
        return InferResponse().add("Y", np.zeros((1, 2), "f4") if not len(x) else x).add("Z", x)


class SkipsTheCancelled(Scaler):
    @hookimpl
    def model_instance_execute(self, instance, requests):
        return [self.respond(instance, request) for request in requests if not request.is_cancelled()]


class RunsOneInstanceAtATime(Scaler):
    def __init__(self):
        self.lock = threading.Lock()
        self.intruded = threading.Event()
        self.calls = 0

    @hookimpl
    def model_instance_execute(self, instance, requests):
        if not self.lock.acquire(blocking=False):
            self.intruded.set()
            raise RuntimeError("another instance runs")
        try:
            self.calls += 1
            if self.calls > 1:  # the suite runs the first one alone
                self.intruded.wait(20)
            return [self.respond(instance, request) for request in requests]
        finally:
            self.lock.release()


class ReportsAnotherClock(Scaler):
    def respond(self, instance, request):
        instance.report_compute(1, 2)
        return super().respond(instance, request)


class IsPerhapsReady(Scaler):
    @hookimpl
    def model_instance_ready(self, instance):
        return None


class ChangesWhatWasGiven(Scaler):
    @hookimpl
    def model_auto_complete_config(self, model):
        return {**model.config, "max_batch_size": 4}


class CompletesByTheClock(Scaler):
    calls = 0

    @hookimpl
    def model_auto_complete_config(self, model):
        self.calls += 1
        return {**model.config, "metric_tags": {"calls": str(self.calls)}}


class ChoosesTooLate(Scaler):
    @hookimpl
    def model_execution(self, model):
        return model.backend.state["execution"]  # which `backend_initialize` would make


class CountsFilesInPublic(Scaler):
    is_open = True

    @hookimpl
    def model_initialize(self, model):
        super().model_initialize(model)
        if model.name == "without_files":
            self.is_open = False
            raise ValueError("no files")

    def respond(self, instance, request):
        if not self.is_open:
            raise RuntimeError("closed by another model")
        return super().respond(instance, request)


class SaysAWord(Scaler):
    @hookimpl
    def backend_attributes(self):
        return "thread"


class WritesBesideTheModel(Scaler):
    @hookimpl
    def model_initialize(self, model):
        super().model_initialize(model)
        (model.directory / "compiled").write_text(str(self))


class BeginsThreads(Scaler):
    def __init__(self):
        self.end = threading.Event()

    @hookimpl
    def model_initialize(self, model):
        super().model_initialize(model)
        threading.Thread(target=self.end.wait, daemon=True).start()

    def __del__(self):
        self.end.set()


class Prints(Scaler):
    def respond(self, instance, request):
        print("executing")
        return super().respond(instance, request)


class IgnoresOverflows(Scaler):
    states = itertools.cycle(["ignore", "raise"])

    @hookimpl
    def model_initialize(self, model):
        super().model_initialize(model)
        np.seterr(over=next(self.states))


WRONG = [
    (WritesToInputs, "inputs_are_not_written_to", "wrote to the inputs", "write to a copy"),
    (
        ReusesItsOutputBuffer,
        "outputs_stay_as_they_are_while_somebody_reads_them",
        "changed outputs of an earlier request",
        "make new arrays",
    ),
    (
        NeverFinishes,
        "every_request_ends_with_exactly_one_final_response",
        "no final response",
        "with final=True once",
    ),
    (
        AnswersOnlyTheFirst,
        "every_request_ends_with_exactly_one_final_response",
        "1 responses for 4 requests",
        "one response per request",
    ),
    (
        AnswersAllAlike,
        "batch_of_many_equals_batches_of_one",
        "[1, 2]) and Tensor(",
        "cut the outputs of the batch",
    ),
    (
        AnswersTwice,
        "every_request_ends_with_exactly_one_final_response",
        "and also sent some",
        "once, not both",
    ),
    (GivesDoubles, "outputs_fit_the_configuration", "should be FP32", "convert by .astype"),
    (GivesFlatOutputs, "outputs_fit_the_configuration", "should have shape", "keep the batch dimension"),
    (GivesOneOutput, "requested_outputs_are_in_the_response", "no output 'Z'", "request.wants(name)"),
    (
        LooksOnlyAtTheFirstWish,
        "requests_of_one_batch_may_want_different_outputs",
        "gave the outputs ['Y'] where ['Z'] was wanted",
        "for each request",
    ),
    (ComputesWhatNobodyWants, "requested_outputs_are_in_the_response", "Not equal", "as without the wish"),
    (LastModelWins, "models_do_not_share_state", "Not equal", "in model.state"),
    (LoadsOnce, "model_loads_again_after_it_was_unloaded", "closed", "end nothing else in model_finalize"),
    (
        StaysBroken,
        "request_without_its_inputs_does_not_spoil_the_instance",
        "broken",
        "keep no state between",
    ),
    (
        FailsWithoutAWord,
        "request_without_its_inputs_does_not_spoil_the_instance",
        "without a word",
        "raise InvalidArg with the name of the input",
    ),
    (DivesAtZeroRows, "request_of_zero_rows_is_answered", "should have shape [0, 2]", "outputs of zero rows"),
    (
        SkipsTheCancelled,
        "cancelled_request_is_still_answered",
        "0 responses for 1",
        "answer it like the others",
    ),
    (RunsOneInstanceAtATime, "instances_may_run_at_the_same_time", "another instance runs", "hold no lock"),
    (
        ReportsAnotherClock,
        "reported_compute_lies_within_the_execution",
        "reported a computation from 1 to 2",
        "call instance.now_ns()",
    ),
    (IsPerhapsReady, "readiness_is_a_truth_value", "answered None", "`return True` or `return False`"),
    (
        ChangesWhatWasGiven,
        "auto_complete_keeps_what_was_given",
        "made max_batch_size 4 of 8",
        "what is missing",
    ),
    (CompletesByTheClock, "auto_complete_says_the_same_twice", "otherwise the second time", "no counter"),
    (
        ChoosesTooLate,
        "execution_of_a_model_is_told_before_the_backend_is_initialized",
        "TypeError",
        "backend.state is not there yet",
    ),
    (
        CountsFilesInPublic,
        "model_without_files_leaves_the_others_alone",
        "closed by another model",
        "end only what this model began",
    ),
    (
        SaysAWord,
        "attributes_are_told_before_the_backend_is_initialized",
        "returned str; expected BackendAttributes",
        "return BackendAttributes",
    ),
    (WritesBesideTheModel, "the_files_of_the_model_are_left_alone", "changed 'compiled'", "of your own"),
    (BeginsThreads, "nothing_grows_with_the_number_of_loads", "1 more threads", "end threads"),
    (Prints, "nothing_is_printed", "wrote 'executing", "logging.getLogger"),
    (IgnoresOverflows, "the_process_stays_as_it_was", "how numpy treats errors", "give paths, modes"),
]
ALL = [name for name, _ in rules_of(BackendConformance)]


@pytest.fixture
def models(tmp_path):
    repository = ModelRepository(tmp_path)
    for name, factor in (("double", "2"), ("treble", "3")):
        repository.model(
            name,
            {
                "backend": "scaler",
                "max_batch_size": 8,
                "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}],
                "output": [
                    {"name": "Y", "data_type": "TYPE_FP32", "dims": [2]},
                    {"name": "Z", "data_type": "TYPE_FP32", "dims": [2]},
                ],
                "instance_group": [{"kind": "KIND_CPU", "count": 2}],
                "parameters": {"FACTOR": {"string_value": factor}},
            },
        )
    return tmp_path


def run(plugin, models, test):
    class Suite(BackendConformance, backend=plugin, models=models): ...

    check = getattr(Suite(), test)
    check(*["double"] * len(inspect.signature(check).parameters))


@pytest.mark.parametrize("test", ALL)
@pytest.mark.parametrize("plugin", [Scaler, Asynchronous, AnswersByItself])
def test_right_backend_passes(plugin, test, models):
    run(plugin(), models, test)


@pytest.mark.parametrize(
    ("plugin", "check", "did", "remedy"), WRONG, ids=lambda each: getattr(each, "__name__", "")
)
def test_wrong_backend_is_named_with_what_to_do(plugin, check, did, remedy, models, monkeypatch):
    monkeypatch.setattr(driver, "ANSWER_TIMEOUT_S", 0.1)
    monkeypatch.setattr("tritonpy_sdk.testing.traces._GRACE_S", 0.0)

    with np.errstate(), pytest.raises(PluginFault) as caught:
        run(plugin(), models, f"test_{check}")

    assert did in caught.value.did
    assert remedy in caught.value.rule.remedy


def test_every_test_of_the_suite_can_fail():
    assert {f"test_{check}" for _, check, _, _ in WRONG} == set(ALL)


def test_missing_models_are_named():
    with pytest.raises(NotADirectoryError, match="'no/such/models' of Lost"):

        class Lost(BackendConformance, backend="identity", models="no/such/models"): ...
