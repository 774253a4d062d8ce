"""Requests of TensorFlow Serving's REST API, from their paths to their answers."""

from __future__ import annotations

import logging
import re
from contextlib import ExitStack

import orjson
from aiohttp import web
from tritonpy.plugin import ErrorCode, Frontend, InvalidArg, TritonError, Unsupported

from tritonpy_frontend_tfserving.models import ModelName, metadata, status
from tritonpy_frontend_tfserving.predict import predict
from tritonpy_frontend_tfserving.settings import Settings

_log = logging.getLogger("tritonpy.frontend.tfserving")

_MODEL = r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(rf"{_MODEL}:(?P<verb>classify|regress|predict)", re.ASCII | re.IGNORECASE)
_GET = re.compile(rf"{_MODEL}(?P<metadata>/metadata)?", re.ASCII | re.IGNORECASE)

STATUSES = {
    ErrorCode.UNKNOWN: 500,
    ErrorCode.INTERNAL: 500,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.INVALID_ARG: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.UNSUPPORTED: 501,
    ErrorCode.ALREADY_EXISTS: 409,
    ErrorCode.CANCELLED: 499,
}
"""TensorFlow Serving's status for each error."""

_TOO_LARGE = 413
_TOO_LARGE_TEXT = (
    "the body is larger than %d bytes (--frontend-config tfserving,max-body-bytes); large tensors are for "
    "the v2 protocol, which carries them as they are"
)


class Handler:
    """Answers requests; on the loop only."""

    def __init__(self, frontend: Frontend, settings: Settings) -> None:
        self._frontend = frontend
        self._limit = settings.max_body_bytes

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Answer one request; what is wrong is an object with `error`."""
        code = 200
        with ExitStack() as held:
            try:
                body = await self._read(request, held)
                if body is None:
                    return _answered(_TOO_LARGE, orjson.dumps({"error": _TOO_LARGE_TEXT % self._limit}))
                document = await self._ask(request, body)
            except web.RequestPayloadError as exc:
                request.content.feed_eof()  # else aiohttp reads on, and fails once more
                reason = getattr(exc.__cause__, "message", exc)
                refused = _answered(400, orjson.dumps({"error": f"the body cannot be read: {reason}"}))
                refused.force_close()  # where the next request begins is not known
                return refused
            except TritonError as error:
                code, document = STATUSES[error.code], orjson.dumps({"error": error.message})
            except Exception as exc:  # the guard of this frontend's requests
                _log.exception("%s %s failed", request.method, request.path)
                code, document = 500, orjson.dumps({"error": f"{type(exc).__name__}: {exc}"})
            return _answered(code, document)

    async def _read(self, request: web.BaseRequest, held: ExitStack) -> bytes | None:
        """The body, whose bytes are counted while `held` is open; None if it is too large."""
        body = bytearray()
        async for chunk in request.content.iter_any():
            held.enter_context(self._frontend.admission.holding(len(chunk)))
            body += chunk
            if len(body) > self._limit:
                return None
        return bytes(body)

    async def _ask(self, request: web.BaseRequest, body: bytes) -> bytes:
        path = request.path
        dataplane = self._frontend.dataplane
        if request.method == "POST" and (match := _POST.fullmatch(path)):
            verb = match["verb"].lower()
            if verb != "predict":
                raise Unsupported(
                    f":{verb} takes tf.Example records, which are a matter of TensorFlow's graphs; ask the "
                    "model by :predict"
                )
            return await predict(self._frontend, _name(match), body, request.headers)
        if request.method == "GET" and (match := _GET.fullmatch(path)):
            if match["metadata"]:
                return orjson.dumps(metadata(dataplane, _name(match)))
            return orjson.dumps(await status(dataplane, _name(match)))
        if request.method == "GET" and path.lower() in ("/v1/models", "/v1/models/"):
            raise InvalidArg("Missing model name in request.")
        raise InvalidArg(f"Malformed request: {request.method} {path}")


def _name(match: re.Match[str]) -> ModelName:
    return ModelName(match["name"], match["version"] or "", match["label"] or "")


def _answered(code: int, document: bytes) -> web.Response:
    return web.Response(status=code, body=document, content_type="application/json")
