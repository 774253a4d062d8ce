"""What the queueing model says, beside a simulation of the server's own batcher."""

from __future__ import annotations

import itertools
import math

import pytest
from tritonpy_analyze.queueing import ServiceTime, Settings, Traffic, calibrated, changes, fit, predict
from tritonpy_analyze.simulated import SimulatedModel, SimulatedServer

SERVICES = [(2000.0, 100.0), (500.0, 500.0)]
SETTINGS = [(1, 1, 0), (1, 8, 0), (2, 1, 0), (4, 8, 0), (1, 8, 1000), (2, 16, 2000)]


def simulated(service: tuple[float, float], settings: tuple[int, int, int], rate: float) -> float:
    """The mean time of a request, in µs."""
    server = SimulatedServer((SimulatedModel("m", *service),), cores=64, requests=3000)
    instances, most, delay_us = settings
    choice = {"m.instances": instances, "m.max_batch_size": most, "m.queue_delay_us": delay_us}
    with server.open(choice) as target:
        return target.measure({"rate": rate}, 1.0).metric("latency_avg")


@pytest.mark.parametrize(
    ("service", "settings", "load"), list(itertools.product(SERVICES, SETTINGS, (0.2, 0.5, 0.8)))
)
def test_the_mean_time_of_a_request_is_predicted_within_a_quarter(
    service: tuple[float, float], settings: tuple[int, int, int], load: float
) -> None:
    instances, most, delay_us = settings
    rate = load * instances * most / (service[0] + service[1] * most) * 1e6

    predicted = predict(ServiceTime(*service), Traffic(rate), Settings(instances, most, delay_us))

    assert predicted.latency_us == pytest.approx(simulated(service, settings, rate), rel=0.25)
    assert predicted.most_rows_per_s == pytest.approx(rate / load)


@pytest.mark.parametrize(
    ("before", "after", "load"),
    [((1, 8, 0), (2, 8, 0), 0.85), ((1, 1, 0), (1, 8, 0), 0.85), ((2, 8, 4000), (2, 8, 0), 0.1)],
)
def test_a_change_is_predicted_to_help_by_as_much_as_it_does(
    before: tuple[int, int, int], after: tuple[int, int, int], load: float
) -> None:
    service = SERVICES[0]
    rate = load * before[0] * before[1] / (service[0] + service[1] * before[1]) * 1e6

    done = simulated(service, after, rate) / simulated(service, before, rate)
    said = [
        predict(ServiceTime(*service), Traffic(rate), Settings(*each)).latency_us for each in (after, before)
    ]

    assert done < 0.95
    assert said[0] / said[1] == pytest.approx(done, rel=0.25)


def test_what_cannot_keep_up_takes_ever_longer() -> None:
    service = ServiceTime(0.0, 1000.0)

    predicted = predict(service, Traffic(1500), Settings(1, 1))

    assert predicted.latency_us == math.inf
    assert predicted.busy == 1.0
    assert predict(service, Traffic(1500), Settings(2, 1)).latency_us < 4000


def test_service_times_are_fitted_to_executions() -> None:
    exact = {rows: (10 * rows, 2000 + 100.0 * rows) for rows in (1, 4, 7)}

    fitted = fit(exact)

    assert fitted is not None
    assert (fitted.base_us, fitted.row_us) == (pytest.approx(2000), pytest.approx(100))
    assert fitted.sizes == (1, 7)
    assert fit({}) is None
    assert fit({4: (9, 800.0)}) == ServiceTime(0.0, 200.0, (4, 4))
    shrinking = fit({1: (5, 900.0), 8: (5, 700.0)})  # chance: more rows do not take less time
    assert shrinking is not None
    assert shrinking.row_us == 0.0


def test_bursts_that_were_measured_are_expected_again() -> None:
    service, settings = ServiceTime(1000.0, 100.0), Settings(1, 1)
    usual = predict(service, Traffic(500), settings)

    traffic = calibrated(service, Traffic(500), settings, 3 * usual.queue_us)

    assert traffic.factor == pytest.approx(3)
    assert predict(service, traffic, settings).queue_us == pytest.approx(3 * usual.queue_us)


def test_changes_are_written_as_in_a_configuration() -> None:
    texts = [text for text, _ in changes(Settings(2, 8, 300.0), ServiceTime(1000.0, 100.0))]

    assert texts == [
        "instance_group { count: 3 }",
        "instance_group { count: 4 }",
        "instance_group { count: 1 }",
        "max_batch_size: 16",
        "max_queue_delay_microseconds: 0",
        "max_queue_delay_microseconds: 600",
    ]
    assert "dynamic_batching { }" in [
        text for text, _ in changes(Settings(1, 8, 0, False), ServiceTime(1, 1))
    ]
