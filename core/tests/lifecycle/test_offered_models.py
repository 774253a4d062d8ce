"""Models that a frontend brings itself, by the data plane."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tritonpy.errors import AlreadyExists, InvalidArg, TritonError, Unavailable
from tritonpy.plugin import InferRequest, InferResponse, Tensor, hookimpl
from tritonpy.server import Server
from tritonpy_sdk import LOCAL, ModelRepository
from tritonpy_sdk.testing import until

CONFIG = {
    "backend": "factor",
    "max_batch_size": 4,
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1]}],
    "version_policy": {"specific": {"versions": [3]}},
}
FILES = {"file:3/weights": b"2"}
X = np.ones((1, 2), np.float32)


class Factor:
    """A backend that multiplies by what stands in a file of the model."""

    @hookimpl
    def model_initialize(self, model):
        model.state = float((model.version_directory / "weights").read_text())

    @hookimpl
    def model_instance_execute(self, instance, requests):
        factor = instance.model.state
        return [InferResponse().add("y", request.input("x").numpy() * factor) for request in requests]


class Offering:
    """A frontend without a port; the test uses its data plane."""

    @hookimpl
    def frontend_start(self, frontend):
        self.frontend = frontend


@pytest.fixture
def models(tmp_path):
    repository = ModelRepository(tmp_path)
    pair = {
        key: [{"name": f"{key.upper()}0", "data_type": "TYPE_FP32", "dims": [-1]}]
        for key in ("input", "output")
    }
    repository.model("echo", {"backend": "identity", "max_batch_size": 4} | pair)
    return str(tmp_path)


@pytest.fixture(params=["none", "poll", "explicit"])
def plane(models, request):
    """The data plane of a server in each control mode, as functions that wait for it."""
    frontend = Offering()
    options = replace(
        LOCAL,
        model_repositories=(models,),
        model_control_mode=request.param,
        load_models=("echo",) if request.param == "explicit" else (),
    )
    with Server(options, plugins={"frontends": {"offering": frontend}}) as server:

        def wait(coroutine):
            return asyncio.run_coroutine_threadsafe(coroutine, server.loop).result()

        dataplane = frontend.frontend.dataplane

        async def infer(name="offered"):
            request = InferRequest(name, {"x": Tensor.from_numpy("x", X)})
            response = await frontend.frontend.infer(dataplane.find(name), request)
            return response.outputs[0].numpy().tolist()

        async def ready():
            return dataplane.is_ready()

        backend = Factor()
        yield SimpleNamespace(
            offer=lambda name="offered", config=CONFIG, files=FILES, hooks=backend: wait(
                dataplane.offer_model(name, config, files, hooks)
            ),
            withdraw=lambda name="offered", backend="factor": wait(dataplane.withdraw_model(name, backend)),
            infer=lambda name="offered": wait(infer(name)),
            index=lambda: wait(dataplane.repository_index()),
            ready=lambda: wait(ready()),
            reoffer_files=lambda text: {"file:3/weights": text},
        )


def test_an_offered_model_serves_until_it_is_withdrawn(plane):
    plane.offer()

    assert plane.infer() == [[2, 2]]
    assert {"name": "offered", "version": "3", "state": "READY"} in plane.index()

    plane.withdraw()
    with pytest.raises(TritonError, match="offered"):
        plane.infer()
    until(lambda: plane.index()[1].get("reason") == "unloaded")
    assert plane.ready()
    plane.withdraw()  # nothing is there
    plane.offer(files=plane.reoffer_files(b"5"))
    assert plane.infer() == [[5, 5]]


def test_an_offer_takes_the_place_of_the_one_before(plane):
    plane.offer()
    plane.offer(files=plane.reoffer_files(b"3"))

    assert plane.infer() == [[3, 3]]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"files": {"file:3/weights": b"none"}}, InvalidArg),
        ({"files": {"file:../weights": b"1"}}, InvalidArg),
        ({"config": CONFIG | {"max_batch_size": -1}}, InvalidArg),
        ({"config": CONFIG | {"backend": "identity"}}, AlreadyExists),
        ({"hooks": Factor()}, AlreadyExists),
        ({"name": "../x"}, InvalidArg),
    ],
)
def test_what_cannot_be_served_changes_nothing(plane, changes, kind):
    plane.offer()

    with pytest.raises(kind):
        plane.offer(**changes)
    with pytest.raises(kind):
        plane.offer(**{"name": "new"} | changes)

    assert plane.infer() == [[2, 2]]
    assert plane.ready()


def test_what_is_no_backend_executes_nothing(plane):
    with pytest.raises(InvalidArg, match="does not implement model_instance_execute"):
        plane.offer(config=CONFIG | {"backend": "broken"}, hooks=object())

    plane.offer()
    assert plane.infer() == [[2, 2]]


def test_a_model_of_a_repository_is_not_replaced_and_not_withdrawn(plane):
    with pytest.raises(AlreadyExists, match="'echo' is served already"):
        plane.offer("echo")
    plane.withdraw("echo")
    plane.withdraw("echo", "identity")

    assert {"name": "echo", "version": "1", "state": "READY"} in plane.index()


def test_a_server_that_starts_or_has_stopped_takes_no_offers():
    class Early(Offering):
        @hookimpl
        async def frontend_start(self, frontend):
            self.frontend = frontend
            with pytest.raises(Unavailable, match="Server not ready"):
                await frontend.dataplane.offer_model("offered", CONFIG, FILES, Factor())

        @hookimpl
        async def frontend_stop(self, frontend):
            with pytest.raises(Unavailable, match="Server not ready"):
                await frontend.dataplane.offer_model("offered", CONFIG, FILES, Factor())
            await frontend.dataplane.withdraw_model("offered", "factor")
            await frontend.drained()
            self.has_stopped = True

    early = Early()
    with Server(LOCAL, plugins={"frontends": {"early": early}}):
        pass
    assert early.has_stopped
