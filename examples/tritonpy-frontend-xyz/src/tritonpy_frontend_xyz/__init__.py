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
    Unsupported,
    hookimpl,
)


class Answer(asyncio.Future[Any]):
    def on_response(self, request: InferRequest, response: Any, final: bool) -> None:
        if not self.done():  # its client may have left
            self.set_result(response)


async def answer(frontend: Frontend, request: web.BaseRequest) -> web.Response:
    admission, size = frontend.admission, len(await request.read())
    has_room = admission.hold(size)
    try:
        if not has_room:
            raise admission.refusal(size)
        return web.json_response(await infer(frontend, request))
    except TritonError as error:
        return web.json_response({"code": error.code.name, "error": error.message}, status=400)
    finally:
        admission.release(size)


async def infer(frontend: Frontend, request: web.BaseRequest) -> dict[str, Any]:
    model = frontend.dataplane.find(request.path.strip("/"))
    if model.is_decoupled:
        raise Unsupported(f"model '{model.name}' answers more than once, or not at all")
    types = {name: DATATYPES[spec.datatype].numpy for name, spec in model.inputs.items()}
    try:
        arrays = {name: np.array(value, types[name]) for name, value in (await request.json()).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise InvalidArg(f"expected an object with the inputs {', '.join(types)}: {exc!r}") from exc
    asked = InferRequest(model.name, {name: Tensor.from_numpy(name, array) for name, array in arrays.items()})
    frontend.trace(asked, request.headers.get("traceparent"), request.headers.get("tracestate"))
    model.infer(asked, waiting := Answer())
    try:
        response = await waiting
    finally:
        asked.cancel()  # where the client has left; what is answered cannot be cancelled
    if response.error is not None:
        raise response.error
    return {output.name: output.numpy().tolist() for output in response.outputs}


@hookimpl
def frontend_initialize(frontend: Frontend) -> None:
    port = frontend.settings.get("port", "9000")
    if not port.isdecimal() or frontend.settings.keys() - {"port"}:
        raise InvalidArg(f"the one setting of '{frontend.name}' is port=NUMBER; got {frontend.settings}")
    frontend.addresses = [Address("127.0.0.1", int(port))]
    server = web.Server(partial(answer, frontend), handler_cancellation=True, access_log=None)
    frontend.state = web.ServerRunner(server, shutdown_timeout=5)


@hookimpl
async def frontend_start(frontend: Frontend) -> None:
    await frontend.state.setup()
    try:
        await web.TCPSite(frontend.state, *frontend.addresses[0][:2]).start()
    except BaseException:
        await frontend.state.cleanup()
        raise
    frontend.addresses = [Address(*bound[:2]) for bound in frontend.state.addresses]


@hookimpl
async def frontend_stop(frontend: Frontend) -> None:
    for site in list(frontend.state.sites):
        await site.stop()
    frontend.state.server.pre_shutdown()  # connections end with the request that they have under way
    await frontend.drained()
    await frontend.state.cleanup()
