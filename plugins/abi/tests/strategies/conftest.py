"""Batching strategies that are shared objects, opened for a model without a server around them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tritonpy.plugin import Backend, Batch, Batcher, InferRequest, Model, Tensor
from tritonpy_abi.strategies import open_strategy

from ..conftest import Compiled

Opener = Callable[..., "Opened"]


def make_model(
    name: str = "m", version: int = 1, config: dict[str, Any] | None = None, **parameters: str
) -> Model:
    """A model whose configuration has these parameters."""
    values = {key: {"string_value": value} for key, value in parameters.items()}
    settled = {"name": name, "max_batch_size": 8, "parameters": values} | (config or {})
    return Model(name, version, settled, Path("/models") / name, Backend("identity"))


def make_request(byte_size: int = 16, **attributes: Any) -> InferRequest:
    """A request with one input of this many bytes."""
    return InferRequest("m", {"X": Tensor("X", "UINT8", (1, byte_size), b"x" * byte_size)}, **attributes)


class Opened:
    """A strategy that is open for one model; calls its hooks as the batcher does."""

    def __init__(self, path: Path, model: Model) -> None:
        self.hooks = open_strategy(path)
        self.batcher = Batcher(model, self.hooks.model_batcher_initialize(model))
        self._batch = Batch(self.batcher)

    def admit(self, *requests: InferRequest) -> None:
        for request in requests:
            request.batching_state = self.hooks.model_batcher_admit_request(self.batcher, request)

    def begin(self) -> None:
        self._batch = Batch(self.batcher, self.hooks.model_batch_initialize(self.batcher))

    def include(self, requests: Sequence[InferRequest]) -> int | tuple[int, Exception]:
        return self.hooks.model_batch_include_requests(self._batch, requests)

    def include_one(self, request: InferRequest) -> bool:
        return self.hooks.model_batch_include_request(request, self._batch)

    def end(self) -> None:
        self.hooks.model_batch_finalize(self._batch)

    def close(self) -> None:
        self.hooks.model_batcher_finalize(self.batcher)

    def run(self, *requests: InferRequest) -> int | tuple[int, Exception]:
        """Ask for new requests in an attempt of their own."""
        self.admit(*requests)
        self.begin()
        answer = self.include(requests)
        self.end()
        return answer


@pytest.fixture(autouse=True)
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open strategies without a try in a child process before, which has tests of its own."""
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "0")


@pytest.fixture
def opened(compiled: Compiled) -> Iterator[Opener]:
    """Open `csrc/strategies/<name>` for a model; closed when the test is over, if it was not before."""
    still_open: list[Opened] = []

    def open_one(name: str, *flags: str, model: Model | None = None, **parameters: str) -> Opened:
        strategy = Opened(compiled(f"strategies/{name}", *flags), model or make_model(**parameters))
        still_open.append(strategy)
        close = strategy.close

        def close_once() -> None:
            still_open.remove(strategy)
            close()

        strategy.close = close_once  # type: ignore[method-assign]
        return strategy

    yield open_one
    for strategy in list(still_open):
        strategy.close()


class Observer:
    """A strategy that writes down what it sees."""

    def __init__(self, strategy: Opened, file: Path) -> None:
        self._strategy = strategy
        self._file = file

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()]

    def see(self, request: InferRequest) -> list[dict[str, Any]]:
        """What the strategy sees of one request."""
        before = len(self.lines())
        assert self._strategy.run(request) == 1
        return self.lines()[before:]


@pytest.fixture
def observe(opened: Opener, tmp_path: Path) -> Callable[..., Observer]:
    """Open the strategy that writes down what it sees, for a model with this configuration."""

    def open_one(**config: Any) -> Observer:
        file = tmp_path / "observed"
        return Observer(opened("observer.c", model=make_model(config=config, OBSERVER_FILE=str(file))), file)

    return open_one
