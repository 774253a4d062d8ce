from __future__ import annotations

import itertools

import numpy as np
import pytest
from tritonpy_sdk.testing.served import ServedBackendConformance


class TestIdentityServed(ServedBackendConformance, backend="identity", models="models/identity"): ...


class TestSquareServed(ServedBackendConformance, backend="square", models="models/square"): ...


class Different(ServedBackendConformance, backend="identity", models="models/identity"):
    """Sends the server something else than the hooks got."""

    calls = itertools.count()

    def make_inputs(self, model_name, config, row_count, random):
        return super().make_inputs(model_name, config, row_count, np.random.default_rng(next(self.calls)))


def test_answers_that_are_not_those_of_the_hooks_fail(tmp_path):
    with pytest.raises(AssertionError):
        Different().test_requests_at_once_are_answered_as_by_the_hooks_alone("pairs", "thread", tmp_path)


def test_configuration_that_is_not_that_of_the_hooks_fails(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from tritonpy.frontends.local import LocalDataplane

    monkeypatch.setattr(LocalDataplane, "find", lambda *_: SimpleNamespace(config={"name": "other"}))

    with pytest.raises(AssertionError):
        Different().test_served_configuration_is_the_one_the_hooks_make("pairs", "thread", tmp_path)


def test_request_that_a_stopping_server_fails_is_noticed(tmp_path, monkeypatch):
    from tritonpy.errors import Unavailable
    from tritonpy.model.model import LoadedModel

    def infer(model, request, sink):
        request.ticket.sink = sink
        request.fail(Unavailable("gone"))

    monkeypatch.setattr(LoadedModel, "infer", infer)

    with pytest.raises(AssertionError, match="gone"):
        Different().test_what_was_accepted_is_answered_when_the_server_stops("pairs", "thread", tmp_path)
