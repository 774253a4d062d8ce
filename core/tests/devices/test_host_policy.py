from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tritonpy.devices.host_policy import HostPolicies, default_policy, parse_cores, run_under
from tritonpy.errors import ErrorCode, TritonError

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux only")

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
MISSING = max(CORES) + 1


def policies(*settings: str) -> HostPolicies:
    """Each written as on the command line: `p,cpu-cores=1`."""
    split = [setting.replace("=", ",", 1).split(",", 2) for setting in settings]
    return HostPolicies([(name, key, value) for name, key, value in split])


@pytest.mark.parametrize(
    ("text", "cores"),
    [("0-3", {0, 1, 2, 3}), ("5", {5}), ("0-1,8,10-11", {0, 1, 8, 10, 11}), ("2-2", {2})],
)
def test_cores_are_ranges_and_single_ones(text: str, cores: set[int]) -> None:
    assert parse_cores(text) == cores


@pytest.mark.parametrize(
    ("setting", "code", "text"),
    [
        ("p,cpu-cores=a-b", ErrorCode.INVALID_ARG, "Parsing 'cpu-cores' value: Can't parse 'a' to integer"),
        ("p,cpu-cores=0-", ErrorCode.INVALID_ARG, "Parsing 'cpu-cores' value: Can't parse '' to integer"),
        (
            "p,cpu-cores=x",
            ErrorCode.INVALID_ARG,
            "format is '<lower_cpu_core_id>-<upper_cpu_core_id>'. Got x",
        ),
        ("p,cpu-cores=0-1,", ErrorCode.INVALID_ARG, "Got 0-1,"),
        ("p,cpu-cores=1-0", ErrorCode.INVALID_ARG, "goes from the lower to the upper core. Got 1-0"),
        ("p,cpu-cores=0-99999999", ErrorCode.INVALID_ARG, "'99999999' is out of range"),
        ("p,cpu-cores=٣", ErrorCode.INVALID_ARG, "Can't parse '٣' to integer"),
        ("p,numa-node=x", ErrorCode.INVALID_ARG, "Parsing 'numa-node' value: Can't parse 'x' to integer"),
        ("p,foo=1", ErrorCode.UNSUPPORTED, "Unsupported host policy setting 'foo' is specified"),
    ],
)
def test_what_cannot_be_read_is_refused_in_tritons_words(setting: str, code: ErrorCode, text: str) -> None:
    with pytest.raises(TritonError) as refusal:
        policies(setting)

    assert refusal.value.code is code
    assert text in refusal.value.message


def test_of_a_setting_given_twice_the_last_one_counts_and_others_stay() -> None:
    policy = policies("p,cpu-cores=0-1", "p,numa-node=3", "p,cpu-cores=2").find("p")

    assert policy is not None
    assert (policy.cores, policy.numa_node) == ({2}, 3)


def test_a_policy_that_nobody_described_is_none() -> None:
    assert policies("p,cpu-cores=0").find("q") is None


def test_groups_that_name_no_policy_have_one_by_their_kind() -> None:
    assert default_policy("KIND_CPU", 0) == "cpu"
    assert default_policy("KIND_MODEL", 0) == "model"
    assert default_policy("KIND_GPU", 3) == "gpu_3"


async def test_a_function_a_thread_it_starts_and_a_program_it_starts_keep_to_the_cores() -> None:
    policy = policies(f"p,cpu-cores={CORES[-1]}").find("p")
    seen: list[set[int]] = []

    def work() -> str:
        seen.append(os.sched_getaffinity(0))
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        command = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    program = await run_under(policy, work)

    assert seen == [{CORES[-1]}] * 2
    assert program.split() == [str(CORES[-1])]
    assert os.sched_getaffinity(0) == set(CORES)


async def test_without_a_policy_a_function_is_called_as_it_is() -> None:
    assert await run_under(None, lambda: os.sched_getaffinity(0)) == set(CORES)


async def test_cores_that_are_not_there_are_left_out_and_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    named = policies(f"p,cpu-cores={CORES[-1]}-{MISSING}")
    named.log_missing_cores()

    assert await run_under(named.find("p"), lambda: os.sched_getaffinity(0)) == {CORES[-1]}
    assert caplog.messages == [f"host policy 'p' asks for cores {MISSING}, which this server does not have"]


async def test_a_policy_none_of_whose_cores_is_there_is_refused() -> None:
    policy = policies(f"p,cpu-cores={MISSING}-{MISSING + 1}").find("p")

    with pytest.raises(TritonError, match="Unable to set NUMA thread affinity: none of the cores") as refusal:
        await run_under(policy, lambda: None)

    assert refusal.value.code is ErrorCode.INTERNAL


@pytest.mark.skipif(not Path("/proc/thread-self/numa_maps").exists(), reason="a kernel without NUMA")
async def test_memory_comes_from_the_node() -> None:
    policy = policies("p,numa-node=0").find("p")

    def memory_policy() -> str:
        return Path("/proc/thread-self/numa_maps").read_text().splitlines()[0].split()[1]

    try:
        assert await run_under(policy, memory_policy) == "bind:0"
    except TritonError as error:
        if "Operation not permitted" not in error.message:
            raise
        pytest.skip("containers may forbid set_mempolicy")
    assert memory_policy() == "default"


async def test_a_node_that_is_not_there_is_refused_in_tritons_words() -> None:
    for node in (1000, 5000):
        policy = policies(f"p,numa-node={node}").find("p")

        with pytest.raises(TritonError, match="Unable to set NUMA memory policy: ") as refusal:
            await run_under(policy, lambda: None)

        assert refusal.value.code is ErrorCode.INTERNAL
