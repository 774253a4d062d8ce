"""Instances run where the policy of their group says, from their first instruction on."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from onnx import parser
from tritonpy.devices.device import DeviceSample
from tritonpy.errors import TritonError
from tritonpy.plugin import BackendAttributes, InferRequest, InferResponse, ModelInstance, hookimpl
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

CORES = sorted(os.sched_getaffinity(0))
FIRST, LAST = CORES[0], CORES[-1]
MISSING = LAST + 1

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="one core is every policy")


def test_workers_keep_to_the_cores_of_their_groups_policy(
    start: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    models = ModelRepository(tmp_path)
    models.python("plain", where, config)
    models.python("named", where, {**config, "instance_group": [{"host_policy": "mine"}]})
    models.python("own", where, {**config, "instance_group": [{"kind": "KIND_MODEL"}]})
    policies = (("cpu", "cpu-cores", f"{LAST}"), ("mine", "cpu-cores", f"{FIRST}-{FIRST}"))

    server = start(host_policies=policies)

    for model, cores in (("plain", [LAST]), ("named", [FIRST]), ("own", CORES)):
        said = server.where(model)
        assert (said["import"], said["cores"]) == (cores, cores), model
    assert os.sched_getaffinity(0) == set(CORES)


def test_the_first_worker_and_later_ones_and_their_successors_keep_to_it(
    start: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    group = {"kind": "KIND_CPU", "count": 2}
    ModelRepository(tmp_path).python("m", where, {**config, "instance_group": [group]})
    server = start(host_policies=(("cpu", "cpu-cores", f"{LAST}"),))
    (loaded,) = server.server.runtime.registry.all_models()
    pids = {instance.pid for instance in loaded.instances}

    os.kill(next(iter(pids)), signal.SIGKILL)
    until(lambda: {instance.pid for instance in loaded.instances} - pids - {0})
    now = {instance.pid for instance in loaded.instances}

    for pid in (pids | now) & now - {0}:
        assert os.sched_getaffinity(pid) == {LAST}


def test_no_instance_takes_the_worker_that_was_started_for_another_policy(
    start: Callable[..., Any],
    machine: Callable[..., Any],
    tmp_path: Path,
    where: str,
    config: dict[str, Any],
) -> None:
    """The first one looks at its GPU's memory, and the second one may be quicker."""

    class Slow(machine):  # type: ignore[misc,valid-type]
        def used_memory_byte_size(self, device: object) -> int:
            time.sleep(0.2)
            return 0

        def sample(self, device: object) -> DeviceSample:
            return DeviceSample()

    groups = [{"kind": "KIND_GPU", "gpus": [0]}, {"kind": "KIND_CPU"}]
    ModelRepository(tmp_path).python("m", where, {**config, "instance_group": groups})
    policies = (("gpu_0", "cpu-cores", f"{FIRST}"), ("cpu", "cpu-cores", f"{LAST}"))

    server = start(Slow((8, 6)), host_policies=policies, model_load_gpu_limits=((0, 0.5),))

    (loaded,) = server.server.runtime.registry.all_models()
    bound = {instance.name: os.sched_getaffinity(instance.pid) for instance in loaded.instances}
    assert bound == {"m_0_0": {FIRST}, "m_1_0": {LAST}}


def test_a_python_model_on_a_thread_keeps_to_it_and_the_server_does_not(
    start: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    on_a_thread = {"parameters": {"TRITONPY_ISOLATION": {"string_value": "thread"}}}
    ModelRepository(tmp_path).python("m", where, {**config, **on_a_thread})

    said = start(host_policies=(("cpu", "cpu-cores", f"{LAST}"),)).where("m")

    assert said["pid"] == os.getpid()
    assert said["cores"] == [LAST]
    assert os.sched_getaffinity(0) == set(CORES)


def test_a_group_whose_policy_changes_gets_instances_under_the_new_one(
    start: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    models = ModelRepository(tmp_path)
    policies = (("first", "cpu-cores", f"{FIRST}"), ("last", "cpu-cores", f"{LAST}"))
    models.python("m", where, {**config, "instance_group": [{"host_policy": "first"}]})
    server = start(host_policies=policies, model_control_mode="explicit", load_models=("m",))
    before = server.where("m")

    models.python("m", where, {**config, "instance_group": [{"host_policy": "last"}]})
    loaded = server.post("repository/models/m/load")

    assert (before["cores"], loaded, server.where("m")["cores"]) == ([FIRST], {}, [LAST])


def test_hooks_of_thread_instances_run_within_the_policy(start: Callable[..., Any], tmp_path: Path) -> None:
    seen: dict[str, set[int]] = {}

    class Backend:
        @hookimpl
        def backend_attributes(self) -> BackendAttributes:
            return BackendAttributes(execution="thread")

        @hookimpl
        def model_initialize(self) -> None:
            seen["model"] = os.sched_getaffinity(0)

        @hookimpl
        def model_instance_initialize(self, instance: ModelInstance) -> None:
            seen[instance.name] = os.sched_getaffinity(0)

        @hookimpl
        def model_instance_execute(self, requests: Sequence[InferRequest]) -> list[InferResponse]:
            return [InferResponse() for _ in requests]

    groups = [{"kind": "KIND_CPU"}, {"kind": "KIND_CPU", "host_policy": "mine"}, {"kind": "KIND_MODEL"}]
    tensor = {"name": "X", "data_type": "TYPE_INT32", "dims": [1]}
    config = {"backend": "spy", "input": [tensor], "output": [tensor], "instance_group": groups}
    ModelRepository(tmp_path).model("m", config)
    policies = (("cpu", "cpu-cores", f"{LAST}"), ("mine", "cpu-cores", f"{FIRST}"))

    start(plugins={"backends": {"spy": Backend()}}, host_policies=policies)

    assert seen == {"model": {LAST}, "m_0_0": {LAST}, "m_1_0": {FIRST}, "m_2_0": set(CORES)}


def test_the_threads_of_onnxruntime_keep_to_it_and_are_as_many_as_its_cores(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    """A session has its threads from where it is made."""
    text = '<ir_version: 8, opset_import: ["" : 17]> net (float[N,3] X) => (float[N,3] Y) { Y = Neg(X) }'
    config = {
        "instance_group": [{"kind": "KIND_CPU", "count": 1}],
        "parameters": {"intra_op_thread_count": {"string_value": "3"}},
    }
    ModelRepository(tmp_path).onnx("net", parser.parse_model(text).SerializeToString(), config)
    before = threads_of_this_process()

    start(host_policies=(("cpu", "cpu-cores", f"{LAST}"),))

    new = threads_of_this_process() - before
    bound = [thread for thread in new if cores_of(thread) == {LAST}]
    assert len(bound) >= 3  # the instance's thread, and two of the session
    names = {thread.native_id for thread in threading.enumerate() if thread.name.startswith("net_0_")}
    assert names <= set(bound)


def test_a_session_has_as_many_threads_as_the_policy_has_cores(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> net (float[N,3] X) => (float[N,3] Y) { Y = Neg(X) }'
    config = {"instance_group": [{"kind": "KIND_CPU", "count": 1}]}
    ModelRepository(tmp_path).onnx("net", parser.parse_model(text).SerializeToString(), config)

    server = start(host_policies=(("cpu", "cpu-cores", f"{LAST}"),))

    (loaded,) = server.server.runtime.registry.all_models()
    assert loaded.handle.state.settings.intra_op_thread_count == 1


def cores_of(thread: int) -> set[int]:
    """Where a thread may run; none for one that has ended meanwhile."""
    try:
        return os.sched_getaffinity(thread)
    except ProcessLookupError:
        return set()


def threads_of_this_process() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_cores_that_are_not_there_fail_the_load_in_tritons_words(
    start: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any], isolation: str
) -> None:
    given = {**config, "parameters": {"TRITONPY_ISOLATION": {"string_value": isolation}}}
    ModelRepository(tmp_path).python("m", where, given)

    server = start(host_policies=(("cpu", "cpu-cores", f"{MISSING}"),), exit_on_error=False)

    assert re.search(
        f"Unable to set NUMA thread affinity: none of the cores {MISSING} of host policy 'cpu' is there",
        server.reason("m"),
    )


def test_a_policy_of_which_nothing_can_be_made_ends_the_start(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    with pytest.raises(TritonError, match="Unsupported host policy setting 'foo' is specified"):
        start(host_policies=(("cpu", "foo", "1"),))


def test_a_policy_that_no_instance_has_changes_nothing(
    start: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    ModelRepository(tmp_path).python("m", where, config)

    assert start(host_policies=(("gpu_0", "cpu-cores", f"{FIRST}"),)).where("m")["cores"] == CORES
