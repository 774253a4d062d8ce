from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from tritonpy.errors import Unavailable
from tritonpy.frontends.local import LocalDataplane
from tritonpy.model.model import LoadedModel
from tritonpy_sdk.testing.served import ServedBackendConformance


class TestIdentityServed(ServedBackendConformance, backend="identity", models="models/identity"): ...


class TestSquareServed(ServedBackendConformance, backend="square", models="models/square"): ...


class Different(ServedBackendConformance, backend="identity", models="models/identity"):
    """Sends the server something else than the hooks got."""

    calls = itertools.count()

    def make_inputs(self, model_name, config, row_count, random):
        return super().make_inputs(model_name, config, row_count, np.random.default_rng(next(self.calls)))


def run(tmp_path):
    test = Different().test_a_served_model_is_as_by_the_hooks_alone_until_its_server_stops
    test("pairs", "thread", tmp_path)


def test_answers_that_are_not_those_of_the_hooks_fail(tmp_path):
    with pytest.raises(AssertionError, match="Not equal"):
        run(tmp_path)


def test_configuration_that_is_not_that_of_the_hooks_fails(tmp_path, monkeypatch):
    find = LocalDataplane.find

    def find_other(*asked):
        return SimpleNamespace(config={"name": "other"}, infer=find(*asked).infer)

    monkeypatch.setattr(LocalDataplane, "find", find_other)

    with pytest.raises(AssertionError, match="'other'"):
        run(tmp_path)


def test_request_that_a_stopping_server_fails_is_noticed(tmp_path, monkeypatch):
    infer = LoadedModel.infer
    numbers = itertools.count(1)

    def infer_sixteen(model, request, sink):
        if next(numbers) <= 16:
            return infer(model, request, sink)
        request.ticket.sink = sink
        request.fail(Unavailable("gone"))

    monkeypatch.setattr(LoadedModel, "infer", infer_sixteen)
    monkeypatch.setattr(Different, "calls", itertools.repeat(1))

    with pytest.raises(AssertionError, match="gone"):
        run(tmp_path)
