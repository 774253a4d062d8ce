"""Ensembles of models that answer when a test lets them; no loop, no sockets, no model code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tritonpy.config.validate_ensemble import StepModel, check_steps
from tritonpy.errors import Internal, TritonError
from tritonpy.flow import Pauses
from tritonpy.model.signature import Signature
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.scheduler.ensemble.ensemble import EnsembleScheduler
from tritonpy.scheduler.ensemble.plan import Plan
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor


def number(name: str, value: int) -> Tensor:
    return Tensor.from_numpy(name, np.array([value], np.int64))


def tensors(names: Iterable[str], **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "data_type": "TYPE_INT64", "dims": [1], **more} for name in names]


class FakeModel:
    """A model of an ensemble: keeps the requests it gets, until the test answers them.

    Attributes:
        requests: those that came, in order.
        on_request: called for each, instead of keeping it open.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[str] = ("X",),
        outputs: Sequence[str] = ("Y",),
        *,
        decoupled: bool = False,
        max_batch_size: int = 0,
        optional: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.version_text = "1"
        self.is_decoupled = decoupled
        self.pauses = Pauses()
        self.config = {
            "name": name,
            "max_batch_size": max_batch_size,
            "input": [{**tensor, "optional": tensor["name"] in optional} for tensor in tensors(inputs)],
            "output": tensors(outputs),
            "model_transaction_policy": {"decoupled": decoupled},
        }
        self.signature = Signature(self.config)
        self.requests: list[InferRequest] = []
        self.on_request: Callable[[InferRequest], None] | None = None

    @property
    def all_models(self) -> frozenset[Any]:
        return frozenset((self,))

    @property
    def open(self) -> list[InferRequest]:
        return [request for request in self.requests if not request.ticket.answered]

    def infer(self, request: InferRequest, sink: ResponseSink) -> None:
        request.ticket.sink = sink
        self.signature.check(request)
        self.requests.append(request)
        if self.on_request is not None:
            self.on_request(request)


class Client:
    """Gathers what comes back; satisfies `ResponseSink`."""

    def __init__(self) -> None:
        self.answers: list[dict[str, int]] = []
        self.parameters: list[Mapping[str, ParameterValue]] = []
        self.error: TritonError | None = None
        self.final_count = 0

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert not self.final_count, "an answer after the final one"
        self.final_count += final
        if response is None:
            return
        if response.error is not None:
            self.error = response.error
            return
        self.answers.append({tensor.name: int(tensor.numpy().item()) for tensor in response.outputs})
        self.parameters.append(response.parameters)

    @property
    def is_done(self) -> bool:
        return self.final_count == 1


Steps = Sequence[tuple[FakeModel, Mapping[str, str], Mapping[str, str]]]


class Ensemble:
    """An ensemble of fake models, and what it has counted."""

    def __init__(
        self,
        steps: Steps,
        *,
        inputs: Sequence[str] = ("IN",),
        outputs: Sequence[str] = ("OUT",),
        optional: Sequence[str] = (),
        max_inflight_requests: int = 0,
        max_batch_size: int = 0,
    ) -> None:
        config = {
            "name": "e",
            "max_batch_size": max_batch_size,
            "input": [{**tensor, "optional": tensor["name"] in optional} for tensor in tensors(inputs)],
            "output": tensors(outputs),
            "ensemble_scheduling": {
                "step": [
                    {"model_name": model.name, "input_map": dict(read), "output_map": dict(written)}
                    for model, read, written in steps
                ],
                "max_inflight_requests": max_inflight_requests,
            },
        }
        models = [model for model, _, _ in steps]
        check_steps("e", config, [StepModel(model.name, model.config) for model in models])
        self.stats = ModelStats()
        plan = Plan("e", config, models, [model.signature for model in models])
        self.is_decoupled = plan.is_decoupled
        self.signature = Signature(config)
        self.scheduler = EnsembleScheduler(plan, self.stats)

    def ask(self, *requested: str, **request: Any) -> tuple[InferRequest, Client]:
        """Send a request; upper-case arguments are inputs, the others are fields of it."""
        client = Client()
        inputs = {name: number(name, request.pop(name)) for name in list(request) if name.isupper()}
        made = InferRequest("e", inputs, requested_outputs=requested or None, **request)
        made.ticket.sink = client
        self.signature.check(made)
        self.scheduler.enqueue(made)
        return made, client


def answer(request: InferRequest, *, final: bool = True, **outputs: int) -> None:
    """Answer a step; upper-case arguments are outputs."""
    request.deliver(InferResponse([number(name, value) for name, value in outputs.items()]), final)


def plus(amount: int, output: str = "Y") -> Callable[[InferRequest], None]:
    """Answers at once with the sum of the inputs and `amount`."""

    def execute(request: InferRequest) -> None:
        total = sum(int(tensor.numpy().item()) for tensor in request.inputs.values())
        answer(request, **{output: total + amount})

    return execute


def fail(request: InferRequest, text: str = "boom") -> None:
    request.fail(Internal(text))


@pytest.fixture
def add_one() -> FakeModel:
    model = FakeModel("add_one")
    model.on_request = plus(1)
    return model
