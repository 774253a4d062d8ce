"""Batching strategies that are shared objects form the same batches here and in a real tritonserver.

The models wait until twelve requests have come (`TRITONSERVER_DELAY_SCHEDULER`), so what is decided depends
on the queue alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ..counting import comes_to
from .conftest import Compiled
from .noting import Asked, Place, built, configuration

COUNT = 12
ROW = 16  # bytes of a request, where nothing else is said
MIXED = [16, 32, 48, 16, 16, 16, 80, 96, 96, 96, 96, 96]


@dataclass(frozen=True)
class Case:
    """A model, and the batches that twelve requests form.

    Attributes:
        strategy: which one it has; "" for none.
        batches: how many requests each has.
        batching: its `dynamic_batching`.
        config: what else is in the configuration.
        sizes: bytes of each request.
    """

    strategy: str
    batches: list[int]
    batching: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=lambda: [ROW] * COUNT)


DELAY = {"max_queue_delay_microseconds": 300_000}

CASES = {
    "no_strategy": Case("", [12]),
    "volume": Case("volume", [6, 6]),
    "preferred_4": Case("volume", [4, 4, 4], {"preferred_batch_size": [4]}),
    "preferred_4_and_5": Case("volume", [5, 5, 2], {"preferred_batch_size": [4, 5]}),
    "preferred_8": Case("volume", [6, 6], {"preferred_batch_size": [8]}),
    "preferred_8_and_delay": Case("volume", [6, 6], {"preferred_batch_size": [8], **DELAY}),
    "delay": Case("volume", [6, 6], DELAY),
    "max_batch_size_4": Case("volume", [4, 4, 4], config={"max_batch_size": 4}),
    "single": Case("single", [1] * 12),
    "mixed": Case("volume", [3, 3, 1, 1, 1, 1, 1, 1], sizes=MIXED),
    "mixed_without_strategy": Case("", [12], sizes=MIXED),
}


@dataclass(frozen=True)
class Variant:
    """How a case is served: by whom, the strategy built how, which backend, asked over which protocol."""

    build: str
    protocol: str
    on_threads: bool = False

    def __str__(self) -> str:
        return f"{self.build}-{'threads' if self.on_threads else 'worker'}-{self.protocol}"


# What `make test` serves, and what is left to the longer tests.
FIRST = (Variant("alone", "grpc", on_threads=True), Variant("needs_the_server", "grpc"))
WORKERS = (Variant("alone", "http"), Variant("needs_the_server", "grpc"))
THREADS = (Variant("alone", "grpc", on_threads=True), Variant("needs_the_server", "http", on_threads=True))


def name_of(case: str, variant: Variant) -> str:
    return f"{case}-{variant}"


def placed(root: Path, compiled: Compiled, variants: tuple[Variant, ...]) -> Place:
    place = Place(root)
    for variant in variants:
        for name, case in CASES.items():
            config = configuration(case.batching, **case.config)
            strategy = built(compiled, case.strategy, variant.build) if case.strategy else None
            place.add(
                name_of(name, variant),
                config,
                strategy,
                on_threads=variant.on_threads,
                MAX_BATCH_VOLUME_BYTES="96",
            )
    return place


def held(root: Path, compiled: Compiled, variants: tuple[Variant, ...], real: Any = None) -> Iterator[Asked]:
    place = placed(root, compiled, variants)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("TRITONSERVER_DELAY_SCHEDULER", str(COUNT))
        yield stack.enter_context(place.served(real))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory, compiled: Compiled) -> Iterator[Asked]:
    yield from held(tmp_path_factory.mktemp("ours"), compiled, THREADS + WORKERS)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, compiled: Compiled, real_triton: Any) -> Iterator[Asked]:
    yield from held(tmp_path_factory.mktemp("real"), compiled, WORKERS, real_triton)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(variant, marks=() if variant in FIRST else pytest.mark.stress)
        for variant in THREADS + WORKERS
    ],
    ids=str,
)
def test_batches_are_those_of_the_table(ours: Asked, variant: Variant, case: str) -> None:
    check(ours, variant, case)


@pytest.mark.parity
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("variant", WORKERS, ids=str)
def test_batches_of_a_real_tritonserver_are_those_of_the_table(
    real: Asked, variant: Variant, case: str
) -> None:
    check(real, variant, case)


def check(server: Asked, variant: Variant, name: str) -> None:
    case, model = CASES[name], name_of(name, variant)
    expected, sizes = [], list(case.sizes)
    for count in case.batches:
        expected.append(sizes[:count])
        del sizes[:count]
    columns = [size // 4 for size in case.sizes]

    if case.sizes is MIXED:
        answers = server.send_in_order(variant.protocol, model, columns)
    else:
        answers = [server.send(variant.protocol, model, count) for count in columns]

    assert [answer.result() for answer in answers] == [""] * COUNT
    assert server.batches(model) == expected
    rows = {count: case.batches.count(count) for count in case.batches}
    assert comes_to(lambda: server.counts(model), (len(expected), rows)) == (len(expected), rows)
    server.until(lambda: server.metric("nv_inference_exec_count", model) == len(expected))
