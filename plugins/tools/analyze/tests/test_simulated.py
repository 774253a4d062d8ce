"""The simulated server comes to what arithmetic says where that is simple."""

from __future__ import annotations

import pytest
from tritonpy.errors import InvalidArg
from tritonpy_analyze.measurement import Window
from tritonpy_analyze.simulated import SimulatedModel, SimulatedServer
from tritonpy_analyze.space import Value

NET = SimulatedModel("net", base_us=2000, row_us=100, parallel=0.5, instance_mib=100, row_mib=1)


def measure(server: SimulatedServer, load: dict[str, Value], **settings: Value) -> Window:
    with server.open({f"net.{name}": value for name, value in settings.items()}) as target:
        return target.measure(load, 1.0)


def test_full_batches_have_the_throughput_of_their_service_time() -> None:
    window = measure(SimulatedServer((NET,)), {"concurrency": 16}, max_batch_size=8)

    assert window.metric("throughput") == pytest.approx(8 / 2.8e-3, rel=0.02)
    assert set(window.batch_sizes) == {8}
    assert window.metric("latency_p50") == pytest.approx(5600, rel=0.02)


def test_one_request_at_a_time_waits_for_the_delay_and_for_nothing_else() -> None:
    window = measure(SimulatedServer((NET,)), {"concurrency": 1}, max_batch_size=8, queue_delay_us=500)

    assert window.metric("latency_p99") == pytest.approx(2600, rel=0.01)
    assert (window.queue_us, window.compute_us) == (pytest.approx(500), pytest.approx(2100))


@pytest.mark.parametrize(("instances", "threads", "expected"), [(1, 1, 2100), (1, 2, 1575), (2, 1, 2100)])
def test_threads_and_instances_change_time_and_throughput(
    instances: int, threads: int, expected: float
) -> None:
    window = measure(
        SimulatedServer((NET,)), {"concurrency": instances}, instances=instances, threads=threads
    )

    assert window.metric("latency_p50") == pytest.approx(expected, rel=0.01)
    assert window.metric("throughput") == pytest.approx(instances / expected * 1e6, rel=0.01)
    assert window.metric("cpu") == pytest.approx(instances * threads, rel=0.02)
    assert window.metric("memory") == instances * 101


def test_a_queue_by_rate_is_as_long_as_that_of_one_server_with_fixed_service_times() -> None:
    """M/D/1: the mean wait is ρ / (2 (1 - ρ)) service times."""
    busy = 0.6
    window = measure(SimulatedServer((NET,), requests=20_000), {"rate": busy / 2.1e-3})

    assert window.queue_us == pytest.approx(2100 * busy / (2 * (1 - busy)), rel=0.1)


def test_requests_pass_all_steps_of_a_pipeline() -> None:
    server = SimulatedServer((SimulatedModel("net", 1000, 0), SimulatedModel("rank", 3000, 0)))

    window = measure(server, {"concurrency": 1})

    assert window.metric("latency_p50") == pytest.approx(4000, rel=0.01)
    assert window.compute_us == pytest.approx(4000)


def test_what_does_not_fit_into_memory_cannot_be_served() -> None:
    with pytest.raises(InvalidArg, match="need 404 MiB, and the machine has 256 MiB"):
        measure(SimulatedServer((NET,), most_mib=256), {}, instances=4)
