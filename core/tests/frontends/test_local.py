"""The data plane over real records, models and schedulers, without sockets; a test ends each execution."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tritonpy.dataplane import Unready
from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError, Unavailable, Unsupported
from tritonpy.frontends.local import EXTENSIONS, LocalDataplane
from tritonpy.handles import Backend, Model
from tritonpy.lifecycle.model_control import ModelControl
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.model.execution import Execution
from tritonpy.model.instance_set import InstanceSet
from tritonpy.model.model import LoadedModel
from tritonpy.model.placement import Slot, place_instances
from tritonpy.model.signature import Signature
from tritonpy.repository.layout import ModelKey
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor
from tritonpy.version import __version__

from ..simulator.virtual_loop import in_virtual_time

INPUT = {"name": "IN", "data_type": "TYPE_FP32", "dims": [2]}
OUTPUT = {"name": "OUT", "data_type": "TYPE_INT64", "dims": [-1, 3]}


class Instance:
    """Takes executions, and answers them when the test says so."""

    capacity = concurrency = 1
    is_ready = True
    says_ready = True
    memory_usage = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self.depth = 0
        self.taken: list[Execution] = []

    def submit(self, execution: Execution) -> None:
        self.depth += 1
        self.taken.append(execution)

    def answer(self) -> None:
        self.depth -= 1
        execution = self.taken.pop(0)
        outputs = [Tensor.from_numpy("OUT", np.zeros((1, 1, 3), np.int64))]
        execution.finish((0, 1000, 3000, 4000), [InferResponse(outputs) for _ in execution.requests])

    async def probe(self) -> bool:
        return self.says_ready


class Manager:
    """Stands for `ModelManager`: notes what is to be loaded and unloaded.

    Attributes:
        asked: the arguments of every call.
    """

    def __init__(self, registry: ModelRegistry) -> None:
        self.registry = registry
        self.repositories = SimpleNamespace(listed=dict)
        self.asked: list[tuple[Any, ...]] = []

    async def load(
        self, name: str, config: str | None, files: Mapping[str, bytes] | None, *, force: bool
    ) -> None:
        self.asked.append(("load", name, config, files, force))

    async def unload(self, name: str, unload_dependents: bool) -> None:
        self.asked.append(("unload", name, unload_dependents))


class Sink:
    """Keeps the answers."""

    def __init__(self) -> None:
        self.answers: list[InferResponse | None] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert final
        self.answers.append(response)


class Server:
    """A data plane that serves, and what it works with."""

    def __init__(self, *, is_explicit: bool = True, **settings: Any) -> None:
        self.registry = ModelRegistry()
        self.manager = Manager(self.registry)
        self.control = ModelControl(self.manager, is_explicit=is_explicit)  # type: ignore[arg-type]
        settings = {"server_id": "here", "strict_readiness": True, **settings}
        self.dataplane = LocalDataplane(self.registry, self.control, **settings)
        self.dataplane.set_serving()

    async def serve(self, name: str, *versions: int, **config: Any) -> list[Instance]:
        """Serve these versions of a model and no others; the instance of each."""
        models = [await loaded(name, version, **config) for version in versions]
        self.registry.record(ModelKey(name)).switch(models)
        return [model.instances[0] for model in models]  # type: ignore[misc]


async def loaded(name: str, version: int, **config: Any) -> LoadedModel:
    config = {"name": name, "max_batch_size": 4, "input": [INPUT], "output": [OUTPUT], **config}

    async def start(slot: Slot) -> Any:
        return Instance(slot.name)

    async def close(error: TritonError | None) -> None:
        pass

    instances = InstanceSet(start, is_parallel=False, on_start=str)
    group = {"name": f"{name}_0", "kind": "KIND_CPU", "count": 1}
    instances.switch(await instances.prepare(place_instances({"instance_group": [group]})))
    stats = ModelStats()
    handle = Model(name, version, config, Path(name), Backend("identity"))
    return LoadedModel(
        handle,
        Signature(config),
        stats,
        Scheduler(DirectPolicy(), stats),
        instances,
        close,
        strategy_name="s",
    )


def ask(dataplane: LocalDataplane, name: str, version: str = "") -> Sink:
    """Infer as a frontend does."""
    sink = Sink()
    tensor = Tensor.from_numpy("IN", np.zeros((1, 2), np.float32))
    dataplane.find(name, version).infer(InferRequest(name, {"IN": tensor}), sink)
    return sink


# Finding models, and inference.


@in_virtual_time
async def test_a_request_goes_to_the_version_that_was_found_and_its_answer_comes_back() -> None:
    server = Server()
    first, newest = await server.serve("m", 1, 3)
    (other,) = await server.serve("other", 7)

    named, unnamed = ask(server.dataplane, "m", "1"), ask(server.dataplane, "m")

    assert [len(instance.taken) for instance in (first, newest, other)] == [1, 1, 0]
    newest.answer()
    (answer,) = unnamed.answers
    assert answer is not None
    assert [tensor.name for tensor in answer.outputs] == ["OUT"]
    assert named.answers == []
    first.answer()
    assert len(named.answers) == 1


@in_virtual_time
async def test_what_is_not_served_is_not_found() -> None:
    server = Server()
    await server.serve("m", 1)
    await server.serve("m", 2)

    assert server.dataplane.find("m", "02").version == 2
    with pytest.raises(Unavailable, match="version 1 is not at ready state"):
        server.dataplane.find("m", "1")
    with pytest.raises(NotFound, match="version 9 is not found"):
        server.dataplane.find("m", "9")
    with pytest.raises(NotFound, match="unknown model: 'nope'"):
        server.dataplane.find("nope")
    with pytest.raises(InvalidArg):
        server.dataplane.find("m", "newest")


# Readiness.


@in_virtual_time
async def test_a_server_is_ready_from_its_start_to_its_stop() -> None:
    registry = ModelRegistry()
    control = ModelControl(Manager(registry), is_explicit=True)  # type: ignore[arg-type]
    dataplane = LocalDataplane(registry, control, server_id="here", strict_readiness=True)

    assert dataplane.is_live()
    assert dataplane.why_not_ready() == Unready("the server is not ready: it is starting")
    with pytest.raises(Unavailable):
        dataplane.check_model_control()
    dataplane.set_serving()
    assert dataplane.is_ready()
    assert dataplane.why_not_ready() is None
    dataplane.check_model_control()
    dataplane.set_stopping()
    assert dataplane.is_live()
    assert not dataplane.is_ready()
    assert dataplane.why_not_ready() == Unready("the server is not ready: it is stopping")
    with pytest.raises(Unavailable):
        dataplane.check_model_control()


@pytest.mark.parametrize("strict_readiness", [True, False])
@in_virtual_time
async def test_a_strict_server_waits_for_every_model(strict_readiness: bool) -> None:
    server = Server(strict_readiness=strict_readiness)
    await server.serve("m", 1)
    broken = server.registry.record(ModelKey("broken"))
    broken.note_loading(4)
    broken.note_failed(4, "no weights")

    row = {"name": "broken", "version": "4", "state": "UNAVAILABLE", "reason": "no weights"}
    waits = Unready("the server is not ready: it waits for 'broken'", (row,))
    assert server.dataplane.why_not_ready() == (waits if strict_readiness else None)
    assert server.dataplane.is_ready() is not strict_readiness
    assert await server.dataplane.model_ready("m")
    assert not await server.dataplane.model_ready("broken")
    reason = await server.dataplane.why_model_not_ready("broken", "4")
    assert reason == "Request for unknown model: 'broken' version 4 is not at ready state; no weights"


@in_virtual_time
async def test_a_model_is_ready_as_long_as_an_instance_is() -> None:
    server = Server()
    first, second = await server.serve("m", 1, 2)
    dataplane = server.dataplane
    assert await dataplane.why_model_not_ready("m", "1") == ""

    first.says_ready = False
    says_no = "model 'm' version 1 was asked, and says that it is not ready"
    assert await dataplane.why_model_not_ready("m", "1") == says_no
    second.is_ready = False
    dataplane.find("m", "2").instance_down(Internal("it died"))
    assert await dataplane.why_model_not_ready("m") == "model 'm' version 2 has no live instance: it died"
    assert not await dataplane.model_ready("m")
    assert not dataplane.is_ready()


@in_virtual_time
async def test_a_server_without_any_model_is_not_alive_and_says_why_it_is_not_ready() -> None:
    server = Server(strict_readiness=False)
    await server.serve("m", 1)
    server.registry.failure = Internal("the repository is gone")
    dataplane = server.dataplane

    assert not dataplane.is_live()
    assert dataplane.why_not_ready() == Unready("the server is not ready: the repository is gone")
    for refused in (dataplane.repository_index(), dataplane.why_model_not_ready("m")):
        with pytest.raises(Unavailable, match=r"^Server not ready$"):
            await refused
    with pytest.raises(Unavailable, match=r"^Server not ready$"):
        dataplane.model_statistics()


# What models and the server say of themselves.


@in_virtual_time
async def test_metadata_tells_versions_and_tensors() -> None:
    server = Server()
    await server.serve("m", 1, 12, backend="identity")
    await server.serve("p", 2, platform="onnxruntime_onnx", backend="onnxruntime", max_batch_size=0)
    tensors = {
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [{"name": "OUT", "datatype": "INT64", "shape": [-1, -1, 3]}],
    }

    dataplane = server.dataplane
    assert dataplane.model_metadata("m") == {
        "name": "m", "versions": ["1", "12"], "platform": "identity", **tensors
    }  # fmt: skip
    assert dataplane.model_metadata("m", "01")["versions"] == ["1"]
    described = dataplane.model_metadata("p")
    assert (described["versions"], described["platform"]) == (["2"], "onnxruntime_onnx")
    assert described["inputs"][0]["shape"] == [2]
    assert dataplane.server_metadata() == {
        "name": "here", "version": __version__, "extensions": list(EXTENSIONS)
    }  # fmt: skip


@in_virtual_time
async def test_statistics_are_of_one_version_of_a_model_or_of_all() -> None:
    server = Server()
    first, newest = await server.serve("m", 1, 3)
    await server.serve("other", 7)
    dataplane = server.dataplane
    for instance, version in ((first, "1"), (newest, "3"), (newest, "")):
        ask(dataplane, "m", version)
        instance.answer()

    def counted(*which: str) -> list[tuple[Any, ...]]:
        return [
            (row["name"], row["version"], row["inference_count"], row["inference_stats"]["compute_infer"])
            for row in dataplane.model_statistics(*which)["model_stats"]
        ]

    of_first, of_newest = ("m", "1", 1, {"count": 1, "ns": 2000}), ("m", "3", 2, {"count": 2, "ns": 4000})
    assert counted("m", "1") == [of_first]
    assert counted("m") == [of_first, of_newest]
    assert counted() == [of_first, of_newest, ("other", "7", 0, {"count": 0, "ns": 0})]


@in_virtual_time
async def test_statistics_of_what_is_not_served_are_refused() -> None:
    server = Server()
    await server.serve("m", 1)

    for name, version, text in (
        ("m", "9", "^requested model version is not available for model 'm'$"),
        ("nope", "", "^requested model 'nope' is not available$"),
        ("m", "x", "^failed to get model version from specified version string 'x'"),
    ):
        with pytest.raises(InvalidArg, match=text):
            server.dataplane.model_statistics(name, version)
        with pytest.raises(InvalidArg, match=text):
            server.dataplane.model_explanation(name, version)


@in_virtual_time
async def test_an_explanation_tells_what_waits_what_ran_and_how() -> None:
    server = Server()
    (instance,) = await server.serve("m", 1, dynamic_batching={"max_queue_delay_microseconds": 5})
    for _ in range(3):
        ask(server.dataplane, "m")
    instance.answer()
    server.dataplane.find("m").stats.since_ns -= 10**18

    (facts,) = server.dataplane.model_explanation("m")["models"]

    assert facts["scheduler"] == {"kind": "dynamic_batching", "settings": {"max_queue_delay_microseconds": 5}}
    assert (facts["name"], facts["version"], facts["max_batch_size"]) == ("m", "1", 4)
    assert (facts["strategy"], facts["pending"], facts["executions"]) == ("s", 2, 1)
    assert facts["batch_sizes"] == {"1": {"count": 1, "ns": 4000}}
    assert facts["requests"]["success"] == facts["requests"]["compute_infer"] == 1
    assert facts["durations_ns"]["compute_input"] == 1000
    assert facts["instances"] == [{"name": "m_0_0", "is_ready": True, "executing": 0}]
    assert facts["seconds"] > 10**9


@in_virtual_time
async def test_the_activity_of_models_tells_what_is_under_way_and_what_was_done() -> None:
    server = Server()
    (instance,) = await server.serve("m", 1, dynamic_batching={"max_queue_delay_microseconds": 5})
    for _ in range(3):
        ask(server.dataplane, "m")
    instance.answer()

    (activity,) = server.dataplane.model_activity()

    assert (activity.name, activity.version, activity.instance_count) == ("m", 1, 1)
    assert (activity.executed_count, activity.inflight_count, activity.pending_count) == (1, 2, 2)
    assert activity.compute_ns >= 1000


# Loading and unloading on request.


@in_virtual_time
async def test_requests_to_load_and_unload_are_handed_on_as_they_are() -> None:
    server = Server()
    dataplane = server.dataplane

    await dataplane.load_model("m", "{}", {"file:1/a": b"x"}, force=True)
    await dataplane.load_model("m")
    await dataplane.unload_model("m", unload_dependents=True)
    await dataplane.unload_model("m")

    assert server.manager.asked == [
        ("load", "m", "{}", {"file:1/a": b"x"}, True),
        ("load", "m", None, None, False),
        ("unload", "m", True),
        ("unload", "m", False),
    ]


@in_virtual_time
async def test_files_with_a_load_request_are_refused_where_their_code_is_not_wanted() -> None:
    server = Server(allow_sent_code=False)

    with pytest.raises(Unsupported, match=r"load of model 'm' with files .*--allow-sent-code=false"):
        await server.dataplane.load_model("m", "{}", {"file:1/model.py": b"x"})
    await server.dataplane.load_model("m", "{}")

    assert server.manager.asked == [("load", "m", "{}", None, False)]


@in_virtual_time
async def test_a_server_that_stops_or_loads_nothing_on_request_refuses_to() -> None:
    stopping, fixed = Server(), Server(is_explicit=False)
    stopping.dataplane.set_stopping()

    for server in (stopping, fixed):
        with pytest.raises(Unavailable):
            server.dataplane.check_model_control()
        with pytest.raises(Unavailable):
            await server.dataplane.load_model("m")
        with pytest.raises(Unavailable):
            await server.dataplane.unload_model("m")
        assert server.manager.asked == []


@in_virtual_time
async def test_the_index_shows_what_serves_or_all() -> None:
    server = Server()
    await server.serve("m", 1)
    await server.serve("m", 2)

    assert await server.dataplane.repository_index(ready=True) == [
        {"name": "m", "version": "2", "state": "READY"}
    ]


async def test_the_index_also_shows_what_leaves() -> None:
    server = Server()
    await server.serve("m", 1)
    await server.serve("m", 2)

    assert await server.dataplane.repository_index() == [
        {"name": "m", "version": "1", "state": "UNLOADING"},
        {"name": "m", "version": "2", "state": "READY"},
    ]
