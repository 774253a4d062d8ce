"""The frontend `xyz`: inputs as an object of nested lists, and outputs as another, on a port of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
from aiohttp import web
from tritonpy.plugin import (
    DATATYPES,
    Address,
    Frontend,
    InferRequest,
    InvalidArg,
    Tensor,
    TritonError,
    hookimpl,
)


async def answer(frontend: Frontend, request: web.BaseRequest) -> web.Response:
    try:
        with frontend.admission.holding(len(await request.read())):
            return web.json_response(await infer(frontend, request))
    except TritonError as error:
        return web.json_response({"code": error.code.name, "error": error.message}, status=400)


async def infer(frontend: Frontend, request: web.BaseRequest) -> dict[str, Any]:
    model = frontend.dataplane.find(request.path.strip("/"))
    types = {name: DATATYPES[spec.datatype].numpy for name, spec in model.inputs.items()}
    try:
        arrays = {name: np.array(value, types[name]) for name, value in (await request.json()).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise InvalidArg(f"expected an object with the inputs {', '.join(types)}: {exc!r}") from exc
    asked = InferRequest(model.name, {name: Tensor.from_numpy(name, array) for name, array in arrays.items()})
    frontend.trace(asked, request.headers.get("traceparent"), request.headers.get("tracestate"))
    response = await frontend.infer(model, asked)
    return {output.name: output.numpy().tolist() for output in response.outputs}


@hookimpl
def frontend_initialize(frontend: Frontend) -> None:
    port = frontend.settings.get("port", "9000")
    if not port.isdecimal() or frontend.settings.keys() - {"port"}:
        raise InvalidArg(f"the one setting of '{frontend.name}' is port=NUMBER; got {frontend.settings}")
    frontend.addresses = [Address("127.0.0.1", int(port))]


@hookimpl
async def frontend_start(frontend: Frontend) -> None:
    server = web.Server(partial(answer, frontend), handler_cancellation=True, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, *frontend.addresses[0][:2])
    frontend.addresses = [Address(*listener.sockets[0].getsockname())]
    frontend.state = server, listener


@hookimpl
async def frontend_stop(frontend: Frontend) -> None:
    server, listener = frontend.state
    listener.close()
    server.pre_shutdown()  # connections end with the request that they have under way
    await frontend.drained()
    await server.shutdown(5)
