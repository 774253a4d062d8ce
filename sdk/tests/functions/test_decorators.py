"""Decorators of functions, without a server: what functions are called with, and what is made of results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import InvalidArg
from tritonpy_sdk import (
    ConstantPadder,
    FunctionContext,
    Request,
    Tensor,
    batch,
    fill_optionals,
    first_value,
    group_by_keys,
    group_by_values,
    pad_batch,
    sample,
    triton_context,
)
from tritonpy_sdk.functions.context import enter_context

ONE = Request({"x": np.array([[1.0]])})
TWO = Request({"x": np.array([[2.0], [3.0]])})


def lists(results: Any) -> Any:
    """Results with lists instead of arrays."""
    if isinstance(results, dict):
        return {name: lists(value) for name, value in results.items()}
    if isinstance(results, (list, tuple)):
        return [lists(value) for value in results]
    return results.tolist() if isinstance(results, np.ndarray) else results


def test_a_batch_is_one_call_and_each_request_gets_its_rows() -> None:
    calls = []

    @batch
    def double(x: Any) -> Any:
        calls.append(x.tolist())
        return {"y": x * 2, "z": x}

    assert lists(double([ONE, TWO])) == [
        {"y": [[2.0]], "z": [[1.0]]},
        {"y": [[4.0], [6.0]], "z": [[2.0], [3.0]]},
    ]
    assert calls == [[[1.0], [2.0], [3.0]]]


def test_outputs_may_come_in_order_or_alone() -> None:
    assert lists(batch(lambda x: (x, -x))([ONE, TWO])) == [
        [[[1.0]], [[-1.0]]],
        [[[2.0], [3.0]], [[-2.0], [-3.0]]],
    ]
    assert lists(batch(lambda x: -x)([ONE, TWO])) == [[[[-1.0]]], [[[-2.0], [-3.0]]]]


def test_coroutines_and_generators_stay_what_they_are() -> None:
    @batch
    async def wait(x: Any) -> Any:
        return {"y": -x}

    @batch
    def count(x: Any) -> Iterator[Any]:
        for factor in (1, 2):
            yield {"y": x * factor}

    @batch
    async def trickle(x: Any) -> AsyncIterator[Any]:
        yield {"y": x}

    async def collected() -> Any:
        return [part async for part in trickle([ONE])]

    assert lists(asyncio.run(wait([ONE]))) == [{"y": [[-1.0]]}]
    assert lists(list(count([ONE, TWO]))) == [
        [{"y": [[1.0]]}, {"y": [[2.0], [3.0]]}],
        [{"y": [[2.0]]}, {"y": [[4.0], [6.0]]}],
    ]
    assert lists(asyncio.run(collected())) == [[{"y": [[1.0]]}]]


def test_outputs_with_other_numbers_of_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"different batch sizes: \{'y': 1\}\. Expected batch size: 3"):
        batch(lambda x: {"y": x[:1]})([ONE, TWO])


def test_requests_of_a_batch_have_the_same_inputs() -> None:
    with pytest.raises(ValueError, match=r"different inputs, \['x'\] and \['w', 'x'\]: use @group_by_keys"):
        batch(lambda **inputs: inputs)([ONE, Request({"x": ONE["x"], "w": ONE["x"]})])


def test_a_sample_is_one_request() -> None:
    negative = sample(lambda x: {"y": -x})

    assert lists(negative([Request({"x": np.array([1, 2])})])) == [{"y": [-1, -2]}]
    with pytest.raises(ValueError, match="got 2 requests, expected one"):
        negative([ONE, TWO])


def test_groups_of_requests_with_the_same_inputs_are_calls_of_their_own() -> None:
    sizes = []

    @group_by_keys
    @batch
    def either(x: Any, w: Any = None) -> Any:
        sizes.append(len(x))
        return {"y": x if w is None else w}

    other = Request({"x": ONE["x"], "w": np.array([[9.0]])})

    assert lists(either([ONE, other, TWO])) == [{"y": [[1.0]]}, {"y": [[9.0]]}, {"y": [[2.0], [3.0]]}]
    assert sizes == [3, 1]


def test_rows_with_equal_values_are_calls_of_their_own() -> None:
    calls = []

    @batch
    @group_by_values("kind", pad_fn=ConstantPadder(7))
    @first_value("kind")
    def shaped(x: Any, kind: Any) -> Any:
        calls.append((kind, x.tolist()))
        return {"y": np.repeat(x, 2 if kind == b"b" else 1, axis=1)}

    def request(kinds: str, *values: int) -> Request:
        return Request(
            {
                "x": np.array(values).reshape(-1, 1),
                "kind": np.array([[kind.encode()] for kind in kinds], object),
            }
        )

    results = shaped([request("ab", 1, 2), request("a", 3)])

    assert calls == [(b"a", [[1], [3]]), (b"b", [[2]])]
    assert lists(results) == [{"y": [[1, 7], [2, 2]]}, {"y": [[3, 7]]}]


def test_groups_of_rows_may_be_awaited_and_have_listed_outputs() -> None:
    @batch
    @group_by_values("x")
    async def counted(x: Any) -> Any:
        return [np.full_like(x, len(x))]

    assert lists(asyncio.run(counted([ONE, Request({"x": ONE["x"]}), TWO]))) == [
        [[[2.0]]], [[[2.0]]], [[[1.0], [1.0]]],
    ]  # fmt: skip
    with pytest.raises(TypeError, match="cannot be used with generators"):

        @group_by_values("x")
        def stream(x: Any) -> Iterator[Any]:
            yield x


def test_groups_of_generators_answer_one_after_the_other() -> None:
    @group_by_keys
    @batch
    def count(x: Any, w: Any = None) -> Iterator[Any]:
        yield {"y": x}

    other = Request({"x": ONE["x"], "w": ONE["x"]})

    assert lists(list(count([ONE, other]))) == [[{"y": [[1.0]]}, None], [None, {"y": [[1.0]]}]]


def test_inputs_that_are_left_out_are_filled_in_for_all_rows() -> None:
    filled = fill_optionals(w=np.array([5]))(batch(lambda x, w: {"y": w}))

    assert lists(filled([ONE, TWO])) == [{"y": [[5]]}, {"y": [[5], [5]]}]


def test_defaults_are_arrays_as_inputs_were_bound() -> None:
    with pytest.raises(TypeError, match="default of input 'w': got int, expected a numpy array"):
        fill_optionals(w=5)  # type: ignore[arg-type]

    for default, message in (
        (np.array([5]), r"got dtype int64 and shape \[1\], expected float32 and \[1\]"),
        (np.zeros(2, "f4"), r"got dtype float32 and shape \[2\], expected float32 and \[1\]"),
    ):
        filled = fill_optionals(w=default)(batch(lambda x, w: {"y": w}))
        inputs = (Tensor((1,), np.float32, "w"),)
        with pytest.raises(ValueError, match=f"default of input 'w': {message}"):
            in_context(lambda filled=filled: filled([ONE]), {}, inputs)
    unknown = fill_optionals(v=np.zeros(1, "f4"))(batch(lambda **inputs: inputs))
    with pytest.raises(ValueError, match="default of input 'v': expected one of w"):
        in_context(lambda: unknown([ONE]), {}, inputs)


def test_values_that_differ_are_refused_where_one_is_wanted() -> None:
    first = batch(first_value("x")(lambda x: {"y": np.full((3, 1), x)}))

    with pytest.raises(ValueError, match="The values on the x input are not equal"):
        first([ONE, TWO])
    loose = batch(first_value("x", strict=False)(lambda x: {"y": np.full((3, 1), x)}))
    assert lists(loose([ONE, TWO])) == [{"y": [[1.0]]}, {"y": [[1.0], [1.0]]}]


def in_context(function: Any, config: Any, inputs: Any = ()) -> Any:
    """Call a function as a server would, in a context of its own."""

    async def called() -> Any:
        enter_context(FunctionContext("m", config, inputs, (), 0))
        return function()

    return asyncio.run(called())


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"max_batch_size": 8}, 8),
        ({"max_batch_size": 8, "dynamic_batching": {"preferred_batch_size": [2, 4]}}, 4),
        ({"max_batch_size": 3}, 3),
    ],
)
def test_a_batch_is_padded_to_the_next_size(config: Any, size: int) -> None:
    given = []

    @batch
    @pad_batch
    def same(x: Any) -> Any:
        given.append(x.tolist())
        return {"y": x}

    assert lists(in_context(lambda: same([ONE, TWO]), config)) == [{"y": [[1.0]]}, {"y": [[2.0], [3.0]]}]
    assert given == [[[1.0], [2.0], *[[3.0]] * (size - 2)]]


def test_the_model_is_given_where_it_is_asked_for() -> None:
    @triton_context
    @sample
    def name(triton_context: FunctionContext, **_: Any) -> Any:
        return triton_context.name

    with pytest.raises(InvalidArg, match="called through a server"):
        name([ONE])


def test_the_model_is_given_through_decorators_below() -> None:
    @triton_context
    @group_by_keys
    @fill_optionals(x=np.zeros(1, np.float32))
    @batch
    def plain(x: Any, triton_context: FunctionContext) -> Any:
        return {"y": x + len(triton_context.name)}

    @triton_context
    @group_by_keys
    @batch
    async def awaited(x: Any, triton_context: FunctionContext) -> Any:
        return {"y": x + len(triton_context.name)}

    @triton_context
    @group_by_keys
    @batch
    def yielding(x: Any, triton_context: FunctionContext) -> Any:
        yield {"y": x + len(triton_context.name)}

    @triton_context
    @sample
    def alone(x: Any, triton_context: FunctionContext) -> Any:
        return {"y": x + len(triton_context.name)}

    inputs = [Tensor((1,), np.float32, "x")]
    assert lists(in_context(lambda: plain([ONE]), {"max_batch_size": 8}, inputs)) == [{"y": [[2.0]]}]
    assert lists(in_context(lambda: alone([ONE]), {})) == [{"y": [[2.0]]}]
    assert lists(in_context(lambda: next(yielding([ONE])), {})) == [{"y": [[2.0]]}]

    async def called() -> Any:
        enter_context(FunctionContext("m", {}, (), (), 0))
        return await awaited([ONE])

    assert lists(asyncio.run(called())) == [{"y": [[2.0]]}]
