"""A library's five functions as the hooks of a batching strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tritonpy.plugin import Batch, Batcher, InferRequest, InvalidArg, Model, TritonError, hookimpl

from tritonpy_abi.libraries import Library, open_library
from tritonpy_abi.probe import try_strategy
from tritonpy_abi.shim import CData, Shim, open_shim
from tritonpy_abi.strategies.model_handle import ModelHandle
from tritonpy_abi.strategies.request_blocks import Block, RequestBlocks

FUNCTIONS = (
    "TRITONBACKEND_ModelBatcherInitialize",
    "TRITONBACKEND_ModelBatcherFinalize",
    "TRITONBACKEND_ModelBatchInitialize",
    "TRITONBACKEND_ModelBatchIncludeRequest",
    "TRITONBACKEND_ModelBatchFinalize",
)
"""What a library defines that is a batching strategy, in the order of `TRITONPY_StrategyOpen`."""


class OpenStrategy:
    """A strategy at work for one version of one model.

    It is opened and closed on loading threads; in between it is used on the loop only, by one call at a time.

    Attributes:
        admit: makes of a request what the strategy sees of it, for as long as that is held.

    Raises:
        TritonError: its `ModelBatcherInitialize` refuses the model.
    """

    def __init__(self, shim: Shim, functions: Sequence[CData], model: Model) -> None:
        self._shim = shim
        self._lib = shim.lib
        self.admit: Callable[[InferRequest], Block] = RequestBlocks(shim.ffi, model).fill
        self._array: CData = shim.ffi.new("TRITONBACKEND_Request *[]", max(1, model.max_batch_size))
        self._error: CData = shim.ffi.new("TRITONSERVER_Error **")
        out: CData = shim.ffi.new("TRITONPY_Strategy **")
        handle = ModelHandle(shim.ffi, model)
        shim.check(shim.lib.TRITONPY_StrategyOpen(list(functions), handle.description, out))
        self._strategy = out[0]

    def close(self) -> None:
        """Call `ModelBatcherFinalize`."""
        self._shim.check(self._lib.TRITONPY_StrategyClose(self._strategy))

    def include(self, requests: Sequence[InferRequest]) -> int | tuple[int, TritonError]:
        """Call `ModelBatchIncludeRequest` until it refuses; see `model_batch_include_requests`.

        An attempt begins here, with `ModelBatchInitialize`: each call into C lets other threads have the
        interpreter, and waits to get it back.
        """
        count = len(requests)
        array = self._array
        if count > len(array):
            array = self._array = self._shim.ffi.new("TRITONBACKEND_Request *[]", count)
        array[0:count] = [request.batching_state[0] for request in requests]
        error = self._error
        included: int = self._lib.TRITONPY_BatchInclude(self._strategy, array, count, error)
        if error[0]:
            return included, self._shim.error(error[0])
        return included

    def end(self) -> None:
        """Call `ModelBatchFinalize`."""
        error = self._lib.TRITONPY_BatchEnd(self._strategy)
        if error:
            raise self._shim.error(error)


class SharedStrategy:
    """A batching strategy that is a shared object; it has the hooks of `BatchingHooks`.

    Args:
        path: of the library.

    Raises:
        TritonError: see `open_shim`.
    """

    def __init__(self, path: str | Path) -> None:
        self._shim = open_shim()
        self._path = Path(path)

    @hookimpl
    def model_batcher_initialize(self, model: Model) -> OpenStrategy:
        """See `BatchingHooks`; the library is tried in a process of its own before it gets into this one."""
        try_strategy(self._path, model)
        library = open_library(self._path)
        return OpenStrategy(self._shim, functions_of(library, model), model)

    @hookimpl
    def model_batcher_finalize(self, batcher: Batcher) -> None:
        strategy: OpenStrategy = batcher.state
        strategy.close()

    @hookimpl
    def model_batcher_admit_request(self, batcher: Batcher, request: InferRequest) -> Block:
        strategy: OpenStrategy = batcher.state
        return strategy.admit(request)

    @hookimpl
    def model_batch_initialize(self, batcher: Batcher) -> OpenStrategy:
        """See `BatchingHooks`; the library is told together with the first question."""
        strategy: OpenStrategy = batcher.state
        return strategy

    @hookimpl
    def model_batch_include_request(self, request: InferRequest, batch: Batch) -> bool:
        strategy: OpenStrategy = batch.state
        answer = strategy.include((request,))
        if isinstance(answer, tuple):
            raise answer[1]
        return answer == 1

    @hookimpl
    def model_batch_include_requests(
        self, batch: Batch, requests: Sequence[InferRequest]
    ) -> int | tuple[int, Exception]:
        strategy: OpenStrategy = batch.state
        return strategy.include(requests)

    @hookimpl
    def model_batch_finalize(self, batch: Batch) -> None:
        strategy: OpenStrategy = batch.state
        strategy.end()


def functions_of(library: Library, model: Model) -> list[CData]:
    """The addresses of a strategy's functions, in the order of `FUNCTIONS`.

    Raises:
        InvalidArg: the library lacks one of them, or all.
    """
    found = {name: library.function(name) for name in FUNCTIONS}
    missing = [name for name, address in found.items() if address is None]
    if len(missing) == len(FUNCTIONS):
        raise InvalidArg(
            f"{library.path} is no batching strategy, as model '{model.name}' wants one: it defines none of "
            f"{', '.join(FUNCTIONS)}"
        )
    if missing:
        raise InvalidArg(
            f"{library.path} does not define all required custom batching functions for model {model.name}: "
            f"{', '.join(missing)} missing"
        )
    return list(found.values())
