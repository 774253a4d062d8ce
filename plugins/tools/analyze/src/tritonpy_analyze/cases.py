"""Three bundled cases whose best point is known, because all of their points have been computed.

Service times are simulated, so that a point costs milliseconds and always gives the same. The numbers of
`best` come from `brute` over the whole space; a test computes them anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tritonpy_analyze.goal import Constraint, Goal
from tritonpy_analyze.simulated import SimulatedModel, SimulatedServer
from tritonpy_analyze.space import Choice, Dimension, Space


@dataclass(frozen=True, slots=True)
class Case:
    """A search with a known end.

    Attributes:
        name: for people.
        story: what it is like.
        server: that is simulated.
        space, goal: the search.
        start: the configuration before.
        best: the goal's value at the best point that there is.
    """

    name: str
    story: str
    server: SimulatedServer
    space: Space
    goal: Goal
    start: Choice
    best: float

    def shortfall(self, value: float) -> float:
        """By what part a value of the goal is worse than the best; 0 at the best."""
        return 1 - math.exp(value - self.best)


def cases() -> list[Case]:
    """All of them."""
    return [_accelerator(), _cores(), _pipeline()]


def _accelerator() -> Case:
    return Case(
        "accelerator",
        "a model on one accelerator: an execution costs 2 ms and a row 0.12 ms; p99 within 8 ms",
        SimulatedServer((SimulatedModel("net", 2000, 120, instance_mib=700, row_mib=6),), cores=1),
        Space(
            [
                Dimension("net.instances", (1, 2, 3, 4)),
                Dimension("net.max_batch_size", (1, 2, 4, 8, 16, 32, 64)),
                Dimension("net.queue_delay_us", (0, 500, 1000, 2000, 4000)),
                Dimension("concurrency", (1, 2, 4, 8, 16, 32, 64, 128)),
            ]
        ),
        Goal({"throughput": 1.0}, (Constraint("latency_p99", 8_000), Constraint("memory", 2000))),
        {"net.instances": 1, "net.max_batch_size": 1, "net.queue_delay_us": 0, "concurrency": 1},
        best=8.627336770514663,
    )


def _cores() -> Case:
    return Case(
        "cores",
        "a model on eight cores that instances and threads share, asked 900 times a second; the lowest p99 "
        "within 2 GiB",
        SimulatedServer(
            (SimulatedModel("net", 3000, 1500, parallel=0.85, instance_mib=250, row_mib=8),), cores=8
        ),
        Space(
            [
                Dimension("net.instances", (1, 2, 3, 4, 6, 8)),
                Dimension("net.threads", (1, 2, 4, 8)),
                Dimension("net.max_batch_size", (1, 2, 4, 8, 16, 32)),
                Dimension("net.queue_delay_us", (0, 1000, 2000, 5000)),
                Dimension("rate", (900,)),
            ]
        ),
        Goal({"latency_p99": 1.0}, (Constraint("memory", 2048),)),
        {"net.instances": 1, "net.threads": 1, "net.max_batch_size": 1, "net.queue_delay_us": 0},
        best=-8.298575931542189,
    )


def _pipeline() -> Case:
    return Case(
        "pipeline",
        "an ensemble of three steps on six cores, searched together; throughput and p99 in a compromise, "
        "within 3 GiB",
        SimulatedServer(
            (
                SimulatedModel("decode", 300, 900, instance_mib=80),
                SimulatedModel("net", 4000, 250, parallel=0.9, instance_mib=600, row_mib=10),
                SimulatedModel("rank", 700, 60, instance_mib=50),
            ),
            cores=6,
            requests=300,
        ),
        Space(
            [
                Dimension("decode.instances", (1, 2, 4)),
                Dimension("net.instances", (1, 2, 3)),
                Dimension("net.threads", (1, 2, 4)),
                Dimension("net.max_batch_size", (1, 4, 16, 32)),
                Dimension("rank.max_batch_size", (1, 8)),
                Dimension("concurrency", (8, 16, 32)),
            ]
        ),
        Goal({"throughput": 2.0, "latency_p99": 1.0}, (Constraint("memory", 3072),)),
        {"concurrency": 8},
        best=6.667411142434842,
    )
