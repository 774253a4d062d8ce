"""Calls of other models that are awaited."""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def described(response):
    error = response.error()
    return {
        "error": None if error is None else error.message(),
        "outputs": {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()},
    }


def adding(first, second, model="add"):
    return pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=["SUM"],
        inputs=[
            pb_utils.Tensor("A", np.array([[first, first]], np.float32)),
            pb_utils.Tensor("B", np.array([[second, second]], np.float32)),
        ],
    )


def sending(model, *steps, request_id=""):
    """A request to a model that does what it is told with its response sender."""
    text = pb_utils.Tensor("STEPS", np.array([json.dumps(steps)], object))
    return pb_utils.InferenceRequest(
        model_name=model, requested_output_names=["VALUE"], inputs=[text], request_id=request_id
    )


def repeating(*values):
    return sending("sends", *(["value", value] for value in values), ["final"])


def slow():
    """A call that takes until it is cancelled, or twenty seconds."""
    return sending("sends_once", ["later"], ["wait"], ["last_value", 1], request_id="slow")


async def call(request):
    return described(await adding(1, 2).async_exec())


async def gathered(request, count):
    calls = [adding(index, 100).async_exec() for index in range(count)]
    answers = await asyncio.gather(*calls)
    return [described(answer)["outputs"]["SUM"][0][0] for answer in answers]


async def at_the_same_time(request, folder):
    """Two calls of which neither is answered before both are made."""
    calls = [sending("sends_once", ["later"], ["meet", folder, 2], request_id=id) for id in ("one", "two")]
    answers = await asyncio.gather(*(call.async_exec() for call in calls))
    return [described(answer)["outputs"] for answer in answers]


async def with_a_timeout(request):
    """Gives a slow call up, and makes another one."""
    try:
        await asyncio.wait_for(slow().async_exec(), 0.05)
        gone = "answered"
    except TimeoutError:
        gone = "TimeoutError"
    return [gone, described(await adding(1, 2).async_exec())["outputs"]["SUM"]]


async def async_for(request, *values):
    responses = await repeating(*values).async_exec(decoupled=True)
    return [described(response)["outputs"] async for response in responses]


async def good_and_bad(request):
    answers = await asyncio.gather(adding(1, 2).async_exec(), adding(1, 2, model="nope").async_exec())
    return [described(answer) for answer in answers]


async def blocking(request):
    """`exec` in a coroutine."""
    return described(adding(1, 2).exec())


async def decoupled(request, *values):
    iterator = await repeating(*values).async_exec(decoupled=True)
    return [described(response) for response in iterator]


async def two_decoupled(request):
    iterators = await asyncio.gather(
        repeating(1, 2).async_exec(decoupled=True), repeating(3).async_exec(decoupled=True)
    )
    return [
        [described(response)["outputs"]["VALUE"] for response in iterator if response.output_tensors()]
        for iterator in iterators
    ]


async def to_a_decoupled_model(request):
    """Calls a decoupled model without saying so."""
    return described(await repeating(1, 2).async_exec())


async def on_another_task(request):
    task = asyncio.create_task(_call_later())
    await asyncio.sleep(0)
    return await task


async def _call_later():
    await asyncio.sleep(0.01)
    return described(await adding(2, 3).async_exec())


async def without_await(request):
    """What `async_exec` gives."""
    awaitable = adding(1, 2).async_exec()
    is_awaitable = hasattr(awaitable, "__await__")
    answer = await awaitable
    return [is_awaitable, described(answer)]
