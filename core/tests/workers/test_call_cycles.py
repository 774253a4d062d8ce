"""Who waits for whom, drawn by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from tritonpy.request import InferRequest
from tritonpy.workers.call_cycles import path_to_caller


@dataclass(eq=False)
class FakeInstance:
    name: str
    depth: int = 1
    concurrency: int = 1
    calls: list[InferRequest] = field(default_factory=list)
    executions: list[object] = field(default_factory=lambda: [object()])

    def running_executions(self) -> list[tuple[object, list[InferRequest]]]:
        return [(execution, self.calls) for execution in self.executions]


@dataclass(eq=False)
class FakeModel:
    instances: list[FakeInstance]

    def request_finished(self, request, error):
        raise AssertionError


def call_of(model: FakeModel, sent_to: FakeInstance | None = None) -> InferRequest:
    request = InferRequest("m", {})
    request.ticket.owner = model
    request.ticket.on_cancel = sent_to
    return request


def test_an_instance_that_is_free_or_only_busy_will_answer():
    caller = FakeInstance("caller")

    assert path_to_caller([FakeInstance("free", depth=0)], caller.executions) is None
    assert path_to_caller([FakeInstance("busy")], caller.executions) is None
    assert path_to_caller([], caller.executions) is None


def test_the_caller_itself_will_not():
    caller = FakeInstance("caller")

    assert path_to_caller([caller], caller.executions) == ["caller"]


def test_a_caller_that_works_on_several_batches_has_room_for_another():
    caller = FakeInstance("caller", depth=1, concurrency=2)

    assert path_to_caller([caller], caller.executions) is None


def test_a_caller_whose_other_executions_only_compute_will_have_room():
    caller = FakeInstance("caller", depth=2, concurrency=2, executions=[object(), object()])

    assert path_to_caller([caller], caller.executions[:1]) is None
    assert path_to_caller([caller], caller.executions) == ["caller"]


def test_one_instance_that_will_be_free_is_enough():
    caller = FakeInstance("caller")

    assert path_to_caller([caller, FakeInstance("busy")], caller.executions) is None


def test_others_are_followed_to_where_they_wait():
    caller = FakeInstance("caller")
    middle = FakeInstance("middle", calls=[call_of(FakeModel([caller]))])
    far = FakeInstance("far", calls=[call_of(FakeModel([middle]))])

    assert path_to_caller([far], caller.executions) == ["far", "middle", "caller"]


def test_a_call_that_was_sent_to_an_instance_waits_for_that_one_only():
    caller = FakeInstance("caller")
    model = FakeModel([caller, FakeInstance("busy")])

    assert path_to_caller([FakeInstance("far", calls=[call_of(model, caller)])], caller.executions) == [
        "far",
        "caller",
    ]
    assert path_to_caller([FakeInstance("far", calls=[call_of(model)])], caller.executions) is None


def test_strangers_that_wait_for_each_other_are_no_endless_search():
    caller = FakeInstance("caller")
    one, other = FakeInstance("one"), FakeInstance("other")
    one.calls = [call_of(FakeModel([other]))]
    other.calls = [call_of(FakeModel([one]))]

    assert path_to_caller([one], caller.executions) == ["one", "other", "one"]
