"""One instance of a bound function: its calls, and the responses that are made of what it returns."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tritonpy.errors import Internal, TritonError, Unavailable
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor as WireTensor

from tritonpy_sdk.functions.bound import Bound, called
from tritonpy_sdk.functions.context import FunctionContext, enter_context
from tritonpy_sdk.functions.failures import BadResult, UnrecoverableError, described
from tritonpy_sdk.functions.request import Request
from tritonpy_sdk.functions.wrapping import is_joining

_log = logging.getLogger("tritonpy.function")

Returned = Any  # Any: the author's own, until it is looked at


class FunctionInstance:
    """Calls a function with batches; on one thread.

    Args:
        bound: what is served.
        context: of this instance.
        owns_inputs: nobody else looks at the inputs of requests, and they can be written to.
        can_reschedule: requests can be executed again.

    Attributes:
        is_lost: the function cannot go on.
    """

    def __init__(
        self,
        bound: Bound,
        context: FunctionContext,
        *,
        owns_inputs: bool = False,
        can_reschedule: bool = True,
    ) -> None:
        self._bound = bound
        self._context = context
        self._outputs = {str(tensor.name): tensor for tensor in bound.all_outputs}
        self._names = list(self._outputs)
        self._datatypes = {name: tensor.datatype for name, tensor in self._outputs.items()}
        self._again: list[InferRequest] | None = [] if bound.is_iterative and can_reschedule else None
        self.is_lost = False
        enter_context(context)
        function = bound.functions[context.instance]
        self._function = function() if isinstance(function, type) else function
        self._owns_inputs = owns_inputs
        self._is_joined = is_joining(called(self._function))
        if (initialize := getattr(self._function, "initialize", None)) is not None:
            initialize()

    def close(self) -> None:
        """Let the object of a class end."""
        if (finalize := getattr(self._function, "finalize", None)) is not None:
            finalize()

    def execute(self, requests: Sequence[InferRequest]) -> Any:  # Any: see `model_instance_execute`
        """See `BackendHooks.model_instance_execute`."""
        if self.is_lost:
            raise Unavailable(f"model '{self._bound.name}' has failed for good; bind it again")
        if self._again:
            self._again = []  # of a call that has failed
        try:
            returned = self._function([self._read(request) for request in requests])
            if isinstance(returned, list):  # nearly always: the questions below take as long as all the rest
                return self._respond(requests, returned)
            if inspect.isawaitable(returned):
                return self._wait(returned, requests)
            if isinstance(returned, AsyncIterator):
                return self._stream_async(returned, requests)
            if isinstance(returned, Iterator):
                self._stream(returned, requests)
                return None
            return self._respond(requests, returned)
        except Exception as exc:
            failure = self._failure(exc)
        raise failure  # not from within: what has failed would keep the requests by its traceback

    def _read(self, request: InferRequest) -> Request:
        return Request.read(
            request,
            is_writable=self._bound.is_writable,
            is_owned=self._owns_inputs,
            is_joined=self._is_joined,
            again=self._again,
        )

    async def _wait(self, returned: Any, requests: Sequence[InferRequest]) -> Any:
        enter_context(self._context)
        try:
            return self._respond(requests, await returned)
        except Exception as exc:
            failure = self._failure(exc)
        raise failure

    def _respond(self, requests: Sequence[InferRequest], returned: Returned) -> list[InferResponse] | None:
        responses = self._responses(requests, returned)
        if self._again:
            self._respond_apart(requests, responses)
            return None
        if not self._bound.is_decoupled:
            return [
                response or self._missing(request)
                for response, request in zip(responses, requests, strict=True)
            ]
        for request, response in zip(requests, responses, strict=True):
            request.respond(response)
        return None

    def _respond_apart(
        self, requests: Sequence[InferRequest], responses: Sequence[InferResponse | None]
    ) -> None:
        """Some requests are to be executed again; the others are answered each by itself."""
        again = self._taken_again()
        for request, response in zip(requests, responses, strict=True):
            if not any(request is each for each in again):
                request.respond(response if self._bound.is_decoupled else response or self._missing(request))
                continue
            if response is not None and not self._bound.is_decoupled:
                text = (
                    "its function returned outputs for a request that is to be executed again, expected None"
                )
                error = BadResult(f"model '{self._bound.name}': {text}")
                request.respond(InferResponse(error=self._failure(error)))
                continue
            if response is not None:
                request.respond(response, final=False)
            request.reschedule()

    def _taken_again(self) -> list[InferRequest]:
        again = self._again or []
        if self._again:
            self._again = []
        return again

    def _stream(self, returned: Iterator[Returned], requests: Sequence[InferRequest]) -> None:
        open_requests = list(requests)
        try:
            for part in returned:
                self._send(requests, part)
                if all(request.is_cancelled() for request in requests):
                    break
        except Exception as exc:
            self._end(open_requests, self._failure(exc))
            return
        finally:
            close = getattr(returned, "close", None)
            if close is not None:
                close()
        self._end(open_requests, None)

    async def _stream_async(
        self, returned: AsyncIterator[Returned], requests: Sequence[InferRequest]
    ) -> None:
        enter_context(self._context)
        try:
            async for part in returned:
                # Sending may wait for slow clients: other calls of this loop go on meanwhile.
                await asyncio.to_thread(self._send, requests, part)
                if all(request.is_cancelled() for request in requests):
                    break
        except Exception as exc:
            self._end(requests, self._failure(exc))
            return
        finally:
            close = getattr(returned, "aclose", None)
            if close is not None:
                await close()
        self._end(requests, None)

    def _send(self, requests: Sequence[InferRequest], part: Returned) -> None:
        for request, response in zip(requests, self._responses(requests, part), strict=True):
            if response is not None and not request.is_cancelled():
                request.respond(response, final=False)

    def _end(self, requests: Sequence[InferRequest], error: TritonError | None) -> None:
        again = self._taken_again() if error is None else []
        for request in requests:
            if any(request is each for each in again):
                request.reschedule()
                continue
            request.respond(None if error is None else InferResponse(error=error))

    def _responses(self, requests: Sequence[InferRequest], returned: Returned) -> list[InferResponse | None]:
        if not isinstance(returned, (list, Sequence)) or len(returned) != len(requests):
            got = f"{len(returned)} results" if isinstance(returned, Sequence) else type(returned).__name__
            raise BadResult(
                f"model '{self._bound.name}': its function returned {got}, expected a list with the outputs "
                f"of each of {len(requests)} requests; @batch and @sample make one"
            )
        return [
            None if outputs is None else self._response(request, outputs)
            for request, outputs in zip(requests, returned, strict=True)
        ]

    def _response(self, request: InferRequest, outputs: Returned) -> InferResponse:
        if isinstance(outputs, TritonError):
            return InferResponse(error=outputs)
        if not isinstance(outputs, (dict, Mapping)):
            listed = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            if len(listed) != len(self._names):
                raise BadResult(
                    f"model '{self._bound.name}': its function returned {len(listed)} outputs, expected "
                    f"{len(self._names)}: {', '.join(self._names)}"
                )
            outputs = dict(zip(self._names, listed, strict=True))
        elif outputs.keys() != self._datatypes.keys():
            self._check_names(request, outputs)
        response = InferResponse()
        for name, value in outputs.items():
            if request.wants(name):
                response.outputs.append(self._tensor(request, name, value))
        return response

    def _check_names(self, request: InferRequest, outputs: Mapping[str, Any]) -> None:
        unknown = [str(name) for name in outputs if name not in self._datatypes]
        missing = [name for name in self._names if name not in outputs and request.wants(name)]
        if unknown or missing:
            raise BadResult(
                f"model '{self._bound.name}': its function returned outputs {', '.join(map(str, outputs))}, "
                f"expected {', '.join(self._names)}"
            )

    def _tensor(self, request: InferRequest, name: str, value: Any) -> WireTensor:
        datatype = self._datatypes[name]
        array = np.asarray(value)
        if not self._bound.has_fresh_outputs and array.dtype.kind not in "OSU":  # strings are packed at once
            array = array.copy()  # it is read later, when the function may have written to it again
        if self._bound.is_strict:
            self._check(request, name, array)
        return WireTensor.from_numpy(name, array, "BF16" if datatype == "BF16" else None)

    def _check(self, request: InferRequest, name: str, array: Any) -> None:
        tensor = self._outputs[name]
        rows = (request.batch_size,) if self._bound.settings.batching else ()
        if fault := tensor.fault(array, *rows):
            raise BadResult(f"model '{self._bound.name}': output '{name}': {fault}")

    def _missing(self, request: InferRequest) -> InferResponse:
        text = f"{request.label}model '{self._bound.name}': its function returned no outputs for the request"
        return InferResponse(error=Internal(text))

    def _failure(self, exc: Exception) -> TritonError:
        if isinstance(exc, TritonError):
            return exc
        if isinstance(exc, UnrecoverableError):
            self.is_lost = True
        if not isinstance(exc, BadResult):
            _log.error("model '%s': its function has failed", self._bound.name, exc_info=exc)
        return Internal(
            f"Failed to process the request(s) for model '{self._bound.name}', message: {described(exc)}"
        )
