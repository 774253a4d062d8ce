"""Outputs of a backend in C, written to memory that is answered without a copy."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.plugin import Array, InferRequest, Tensor
from tritonpy_abi.backends import open_backend
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import BackendDriver

from ..conftest import Compiled

CONFIG = {
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
}
MIB = 1 << 20

Execute = Callable[..., list[Any]]


class Lender:
    """Leases memory, and knows what is still held of it."""

    def __init__(self) -> None:
        self.blocks: list[weakref.ref[Array]] = []
        self.is_empty = False

    def __call__(self, byte_size: int) -> Array | None:
        if self.is_empty:
            return None
        block = np.frombuffer(bytearray(byte_size), np.uint8)
        self.blocks.append(weakref.ref(block))
        return block

    @property
    def held(self) -> list[Array]:
        return [block for each in self.blocks if (block := each()) is not None]


@pytest.fixture
def lender() -> Lender:
    return Lender()


@pytest.fixture
def execute(library: Path, compiled: Compiled, tmp_path: Path, lender: Lender) -> Iterator[Execute]:
    """Executes a batch of tensors of so many MiB, compares, and returns the outputs' buffers."""
    ModelRepository(tmp_path).model("copies", {"backend": "SharedBackend", **CONFIG})
    driver = BackendDriver(open_backend(compiled("backends/copying.c", "-pthread")), tmp_path)
    with driver.load("copies") as model:
        model.instances[0].model.state.lease_outputs(lender)

        def run(*sizes: float, do: str = "") -> list[Any]:
            arrays = [
                np.random.default_rng(index).integers(0, 9, (1, int(size * MIB / 4)), np.int32)
                for index, size in enumerate(sizes)
            ]
            parameters = {"do": do} if do else None
            answers = model.execute(
                [
                    InferRequest(
                        "copies", {"INPUT0": Tensor.from_numpy("INPUT0", array)}, parameters=parameters
                    )
                    for array in arrays
                ]
            )
            outputs = [answer.responses[0].outputs[0] for answer in answers]
            for array, output in zip(arrays, outputs, strict=True):
                np.testing.assert_array_equal(output.numpy(), array)
            return [output.buffer for output in outputs]

        yield run
        lender.is_empty = True
        run(63)  # what others have left goes: tests share the library


def test_the_second_output_of_a_size_is_written_to_leased_memory(execute: Execute, lender: Lender) -> None:
    (first,) = execute(1)
    assert isinstance(first, memoryview)
    (block,) = lender.held

    (second,) = execute(0.75)

    assert second.base is block
    assert second.nbytes == 0.75 * MIB
    assert len(lender.held) == 2  # the next one has a block, too


def test_each_output_of_a_batch_has_a_block_of_its_own(execute: Execute, lender: Lender) -> None:
    execute(1, 1, 2)
    blocks = lender.held

    outputs = execute(1, 1, 2)

    assert sorted(map(id, blocks)) == sorted(id(output.base) for output in outputs)


def test_a_block_of_a_response_that_is_discarded_is_used_again(execute: Execute, lender: Lender) -> None:
    execute(1)
    (block,) = lender.held

    (output,) = execute(1, do="discard")

    assert output.base is block


@pytest.mark.parametrize("do", ["", "describe"])
def test_small_outputs_and_those_much_smaller_than_the_block_have_memory_of_their_own(
    execute: Execute, lender: Lender, do: str
) -> None:
    execute(0.25, 0.001, do=do)
    assert lender.held == []
    execute(4, do=do)

    assert [isinstance(output, memoryview) for output in execute(1, 2, do=do)] == [True, True]


def test_blocks_that_nobody_uses_go_when_others_are_needed(execute: Execute, lender: Lender) -> None:
    for size in (1, 20, 40):
        execute(size)

    assert [block.nbytes // MIB for block in lender.held] == [64]
    assert isinstance(execute(70)[0], memoryview)
    assert [block.nbytes // MIB for block in lender.held] == [64]


def test_outputs_are_answered_where_nothing_can_be_leased(execute: Execute, lender: Lender) -> None:
    lender.is_empty = True

    assert [isinstance(output, memoryview) for output in (*execute(1), *execute(1))] == [True, True]
