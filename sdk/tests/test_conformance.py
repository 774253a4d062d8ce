"""A right backend passes every test of the suite; each way of being wrong fails the test that is about it."""

from __future__ import annotations

import inspect
import threading

import numpy as np
import pytest
from tritonpy.plugin import InferResponse, Internal, hookimpl
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendConformance, driver


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


WRONG = {
    WritesToInputs: "inputs_are_not_written_to",
    ReusesItsOutputBuffer: "outputs_stay_as_they_are_while_somebody_reads_them",
    NeverFinishes: "every_request_ends_with_exactly_one_final_response",
    AnswersOnlyTheFirst: "every_request_ends_with_exactly_one_final_response",
    AnswersAllAlike: "batch_of_many_equals_batches_of_one",
    AnswersTwice: "every_request_ends_with_exactly_one_final_response",
    GivesDoubles: "outputs_fit_the_configuration",
    GivesFlatOutputs: "outputs_fit_the_configuration",
    GivesOneOutput: "requested_outputs_are_in_the_response",
    LooksOnlyAtTheFirstWish: "requests_of_one_batch_may_want_different_outputs",
    ComputesWhatNobodyWants: "requested_outputs_are_in_the_response",
    LastModelWins: "models_do_not_share_state",
    LoadsOnce: "model_loads_again_after_it_was_unloaded",
    StaysBroken: "request_without_its_inputs_does_not_spoil_the_instance",
    FailsWithoutAWord: "request_without_its_inputs_does_not_spoil_the_instance",
    DivesAtZeroRows: "request_of_zero_rows_is_answered",
    SkipsTheCancelled: "cancelled_request_is_still_answered",
    RunsOneInstanceAtATime: "instances_may_run_at_the_same_time",
    ReportsAnotherClock: "reported_compute_lies_within_the_execution",
    IsPerhapsReady: "readiness_is_a_truth_value",
    ChangesWhatWasGiven: "auto_complete_keeps_what_was_given",
    CompletesByTheClock: "auto_complete_says_the_same_twice",
    ChoosesTooLate: "execution_of_a_model_is_told_before_the_backend_is_initialized",
    CountsFilesInPublic: "model_without_files_leaves_the_others_alone",
}
ALL = sorted(name for name in vars(BackendConformance) if name.startswith("test_"))


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


@pytest.mark.parametrize("plugin", WRONG)
def test_wrong_backend_fails(plugin, models, monkeypatch):
    monkeypatch.setattr(driver, "ANSWER_TIMEOUT_S", 0.1)

    with pytest.raises(Exception):  # noqa: B017 (whatever it is, the test must not pass)
        run(plugin(), models, f"test_{WRONG[plugin]}")


def test_every_test_of_the_suite_can_fail():
    about_attributes = {"test_attributes_are_told_before_the_backend_is_initialized"}

    assert {f"test_{name}" for name in WRONG.values()} | about_attributes == set(ALL)


def test_attributes_of_another_type_are_refused(models):
    class SaysAWord(Scaler):
        @hookimpl
        def backend_attributes(self):
            return "thread"

    with pytest.raises(Internal, match="returned str; expected BackendAttributes"):
        run(SaysAWord(), models, "test_attributes_are_told_before_the_backend_is_initialized")


def test_missing_models_are_named():
    with pytest.raises(NotADirectoryError, match="'no/such/models' of Lost"):

        class Lost(BackendConformance, backend="identity", models="no/such/models"): ...
