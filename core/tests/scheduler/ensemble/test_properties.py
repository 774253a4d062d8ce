"""Any graph, answered in any order, with failures and cancellations: one answer each, and the right one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from tritonpy.request import InferRequest

from core.tests.scheduler.ensemble.conftest import Client, Ensemble, FakeModel, answer, fail

INPUTS = ("IN0", "IN1")


@dataclass(frozen=True)
class Graph:
    """Steps by the tensors they read; step `n` writes `T<n>`."""

    reads: Sequence[Sequence[str]]
    outputs: Sequence[str]

    def value(self, tensor: str, inputs: Mapping[str, int]) -> int:
        if tensor in inputs:
            return inputs[tensor]
        step = int(tensor[1:])
        return compute(step, [self.value(read, inputs) for read in self.reads[step]])

    def needed(self, outputs: Sequence[str]) -> set[int]:
        steps = {int(tensor[1:]) for tensor in outputs if tensor not in INPUTS}
        return steps.union(*(self.needed(self.reads[step]) for step in steps))


def compute(step: int, values: Sequence[int]) -> int:
    return (step + 1) * 1000 + sum((place + 1) * value for place, value in enumerate(values)) % 997


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    reads: list[list[str]] = []
    for step in range(draw(st.integers(2, 8))):
        there = [*INPUTS, *(f"T{before}" for before in range(step))]
        reads.append(draw(st.lists(st.sampled_from(there), min_size=1, max_size=3)))
    reads[0][0], reads[1][0] = INPUTS  # each input is used
    read = {tensor for step in reads for tensor in step}
    ends = [f"T{step}" for step in range(len(reads)) if f"T{step}" not in read]
    more = draw(st.lists(st.sampled_from([f"T{step}" for step in range(len(reads))]), max_size=2))
    return Graph(reads, list(dict.fromkeys([*ends, *more])))


def build(graph: Graph, limit: int) -> tuple[Ensemble, list[FakeModel]]:
    models = [
        FakeModel(f"m{step}", [f"X{place}" for place in range(len(reads))])
        for step, reads in enumerate(graph.reads)
    ]
    steps = [
        (model, {f"X{place}": tensor for place, tensor in enumerate(reads)}, {"Y": f"T{step}"})
        for step, (model, reads) in enumerate(zip(models, graph.reads, strict=True))
    ]
    ensemble = Ensemble(steps, inputs=INPUTS, outputs=graph.outputs, max_inflight_requests=limit)
    return ensemble, models


def execute(models: Sequence[FakeModel], request: InferRequest) -> None:
    step = [model.name for model in models].index(request.model_name)
    places = range(len(models[step].signature.inputs))
    values = [int(request.inputs[f"X{place}"].numpy().item()) for place in places]
    answer(request, Y=compute(step, values))


def open_requests(models: Sequence[FakeModel]) -> list[InferRequest]:
    return [request for model in models for request in model.open]


@given(graphs(), st.data())
def test_each_needed_step_runs_once_and_gets_the_right_tensors(graph: Graph, data: st.DataObject) -> None:
    ensemble, models = build(graph, 0)
    wanted = data.draw(st.lists(st.sampled_from(graph.outputs), min_size=1, unique=True))
    inputs = dict(zip(INPUTS, (1, 2), strict=True))
    _, client = ensemble.ask(*wanted, **inputs)

    while waiting := open_requests(models):
        assert not client.is_done
        execute(models, data.draw(st.sampled_from(waiting)))

    assert client.is_done
    assert client.answers == [
        {tensor: graph.value(tensor, inputs) for tensor in graph.outputs if tensor in wanted}
    ]
    ran = {step: len(model.requests) for step, model in enumerate(models) if model.requests}
    assert ran == dict.fromkeys(graph.needed(wanted), 1)


@given(graphs(), st.sampled_from([0, 1, 2]), st.data())
def test_each_request_is_answered_once_whatever_happens(
    graph: Graph, limit: int, data: st.DataObject
) -> None:
    ensemble, models = build(graph, limit)
    asked: list[tuple[InferRequest, Client, dict[str, int]]] = []
    touched: set[InferRequest] = set()
    for _ in range(data.draw(st.integers(1, 4))):
        inputs = {name: data.draw(st.integers(0, 99)) for name in INPUTS}
        asked.append((*ensemble.ask(**inputs), inputs))

    while waiting := open_requests(models):
        if limit:
            assert all(len(model.open) <= limit for model in models)
        match data.draw(st.sampled_from(["answer"] * 6 + ["fail", "cancel"])):
            case "answer":
                execute(models, data.draw(st.sampled_from(waiting)))
            case "fail":
                fail(data.draw(st.sampled_from(waiting)))
            case "cancel":
                request = data.draw(st.sampled_from(asked))[0]
                touched.add(request)
                request.cancel()

    for request, client, inputs in asked:
        assert client.final_count == 1
        if client.error is None:
            assert client.answers == [{tensor: graph.value(tensor, inputs) for tensor in graph.outputs}]
        else:
            assert not client.answers
            assert client.error.message.startswith("in ensemble 'e', ")
        if request.ticket.cancelled:
            assert request in touched
    stats = ensemble.stats
    failed = sum(client.error is not None for _, client, _ in asked)
    assert (stats.success_count, stats.fail_count) == (len(asked) - failed, failed)
    assert sum(stats.failures.values()) == failed


@given(st.lists(st.booleans(), min_size=1, max_size=4), st.sampled_from([0, 1, 3]), st.data())
def test_any_chain_of_decoupled_and_other_models_answers_all_and_says_once_that_this_is_it(
    decoupled: list[bool], limit: int, data: st.DataObject
) -> None:
    names = ["IN", *(f"T{step}" for step in range(len(decoupled) - 1)), "OUT"]
    models = [FakeModel(f"m{step}", decoupled=is_many) for step, is_many in enumerate(decoupled)]
    steps = [(model, {"X": names[step]}, {"Y": names[step + 1]}) for step, model in enumerate(models)]
    ensemble = Ensemble(steps, max_inflight_requests=limit)
    _, client = ensemble.ask(IN=1)
    expected: list[int] = []
    count = 0

    while waiting := open_requests(models):
        if limit:
            assert all(len(model.open) <= limit for model in models)
        request = data.draw(st.sampled_from(waiting))
        step = int(request.model_name[1:])
        is_last = not decoupled[step] or count > 40 or data.draw(st.booleans())
        if decoupled[step] and is_last and data.draw(st.booleans()):
            request.deliver(None)
            continue
        count += 1
        if step == len(models) - 1:
            expected.append(count)
        answer(request, final=is_last, Y=count)

    assert [each["OUT"] for each in client.answers] == expected
    assert client.is_done
    assert client.error is None
