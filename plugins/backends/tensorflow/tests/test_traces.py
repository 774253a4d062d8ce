"""Graphs whose calls leave something behind, and the sessions that instances get because of it."""

from __future__ import annotations

import numpy as np
import pytest
from tritonpy_sdk.testing import ask

ONE = np.ones(1, "f4")
GROUP = {"instance_group": [{"kind": "KIND_CPU", "count": 3}]}
SHARE = {"parameters": {"MAX_SESSION_SHARE_COUNT": {"string_value": "2"}}}


def reads(v1, is_resource):
    x = v1.placeholder("float32", [1], name="x")
    weight = v1.get_variable("weight", [1], "float32", v1.ones_initializer(), use_resource=is_resource)
    return {"x": x}, {"y": x * weight}


def counts(v1, is_resource):
    x = v1.placeholder("float32", [1], name="x")
    total = v1.get_variable("total", [1], "float32", v1.zeros_initializer(), use_resource=is_resource)
    return {"x": x}, {"y": v1.identity(v1.assign_add(total, x))}


def graph_of(model):
    return model.handle.state.graph


def sessions(model):
    return [instance.state._graph for instance in model.instances]


@pytest.mark.parametrize("is_resource", [False, True])
@pytest.mark.parametrize(("build", "verdict"), [(reads, False), (counts, True)])
def test_variables_that_are_written_to_are_seen(load, saved_v1, build, verdict, is_resource):
    model = load(saved_v1(lambda v1: build(v1, is_resource)))

    assert graph_of(model).leaves_traces is verdict


@pytest.mark.parametrize("is_written", [False, True])
def test_functions_are_looked_into(load, saved, tf, is_written):
    module = tf.Module()
    module.total = tf.Variable([0.0])

    @tf.function
    def inner(x):
        return module.total.assign_add(x) if is_written else module.total + x

    def call(x):
        return {"y": tf.cond(tf.reduce_sum(x) > 0, lambda: inner(x), lambda: x)}

    model = load(saved(call, {"x": (tf.float32, [1])}, module=module))

    assert graph_of(model).leaves_traces is is_written


def test_random_numbers_and_loops_leave_nothing(load, saved, tf):
    def call(x):
        for _ in tf.range(3):
            x = x + tf.random.uniform([1])
        return {"y": x}

    assert not graph_of(load(saved(call, {"x": (tf.float32, [1])}))).leaves_traces


def test_tables_are_read_and_not_written(load, saved, tf):
    module = tf.Module()
    module.table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64)), -1
    )
    model = load(saved(lambda x: {"y": module.table.lookup(x)}, {"x": (tf.string, [None, 1])}, module=module))

    assert ask(model, 2, x=np.array([[b"b"], [b"z"]], object)) == {"y": [[2], [-1]]}
    assert not graph_of(model).leaves_traces


class TestSessions:
    def test_instances_share_one_where_calls_leave_nothing(self, load, saved_v1):
        model = load(saved_v1(lambda v1: reads(v1, True)), GROUP)

        assert len(set(map(id, sessions(model)))) == 1

    def test_each_instance_has_its_own_where_they_do(self, load, saved_v1):
        model = load(saved_v1(lambda v1: counts(v1, True)), GROUP)

        assert len(set(map(id, sessions(model)))) == 3
        assert [ask(model, instance=index, x=ONE)["y"] for index in (0, 0, 1, 2)] == [[1], [2], [1], [1]]

    @pytest.mark.parametrize("build", [reads, counts])
    def test_as_many_share_one_as_the_configuration_says(self, load, saved_v1, build):
        model = load(saved_v1(lambda v1: build(v1, True)), GROUP | SHARE)

        first, second, third = sessions(model)
        assert first is second is graph_of(model)
        assert third is not first

    def test_what_auto_complete_loaded_is_not_loaded_again(self, load, saved_v1, monkeypatch):
        from tritonpy_backend_tensorflow import graph

        opened = []
        original = graph.open_session
        monkeypatch.setattr(graph, "open_session", lambda *args: opened.append(1) or original(*args))

        load(saved_v1(lambda v1: reads(v1, True)), {"backend": "tensorflow"} | GROUP)

        assert len(opened) == 1

    def test_a_session_that_no_instance_uses_is_closed(self, load, saved_v1):
        model = load(saved_v1(lambda v1: counts(v1, True)), GROUP)
        loaded = model.handle.state
        first, second, _ = sessions(model)
        calls = []
        first.close, second.close = lambda: calls.append("first"), lambda: calls.append("second")

        loaded.give_back(second)
        loaded.give_back(first)

        assert calls == ["second"]
        assert loaded.take(model.instances[0]) is first
