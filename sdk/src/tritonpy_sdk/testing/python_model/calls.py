"""The server of a Python model under test: calls of other models, and little else.

Imports the Python backend, so it is imported only when a model is loaded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

import numpy as np
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils._link import Wire
from triton_python_backend_utils._local_metrics import LocalMetrics
from triton_python_backend_utils._wire import decode_response, encode_call, encode_response
from tritonpy.errors import Internal, NotFound, TritonError
from tritonpy.request import InferRequest
from tritonpy.tensor import Array, Tensor
from tritonpy_backend_python.worker.failure import as_execution_failure

from tritonpy_sdk.testing.python_model.arrays import Inputs, Outputs, WireAnswer
from tritonpy_sdk.testing.python_model.channel import LocalEndpoint, WireRequest
from tritonpy_sdk.testing.python_model.replies import Replies

ModelFunction = Callable[[dict[str, Array]], "Inputs | Iterator[Inputs]"]
"""What may stand for a model that is called: from inputs to outputs, or to an iterator of outputs."""


class CalledModel(Protocol):
    """A model that can be called: one under test itself."""

    name: str
    version: int
    is_decoupled: bool
    instance_name: str

    def submit(self, request: InferRequest) -> Replies:
        """Check a request and start it.

        Raises:
            TritonError: it does not fit.
        """


class LocalLink:
    """Satisfies `triton_python_backend_utils._link.Link`, and what an instance needs of its link beyond that.

    Args:
        models: what calls go to, by name.
        timeout_s: how long an answer may take once the called model's `execute` has returned.

    Attributes:
        metrics: where the model's metrics are kept.
    """

    def __init__(self, models: Mapping[str, CalledModel | ModelFunction], timeout_s: float) -> None:
        self.metrics = LocalMetrics()
        self.running_batch = 0
        self.abandoned: deque[int] = deque()
        self._models = dict(models)
        self._timeout_s = timeout_s
        self._endpoint = LocalEndpoint()

    def call(
        self, model: tuple[str, int], wire: Wire, inputs: Sequence[pb_utils.Tensor], decoupled: bool
    ) -> LocalCall:
        name, version = model
        call = _request_of(name, encode_call(wire, inputs, self._endpoint))
        called = self._models.get(name)
        instance = name
        try:
            if called is None:
                raise NotFound(f"Request for unknown model: '{name}' is not found")
            if callable(called):
                replies = Replies(f"the call of '{name}'", self._timeout_s)
                stand_in = _StandIn(name, called, call, replies, is_single=not decoupled)
                context = copy_context()  # says which models wait for this one
                run = partial(context.run, stand_in.run)
                threading.Thread(target=run, name=f"stands for {name}", daemon=True).start()
            else:
                instance = called.instance_name
                if version not in (-1, called.version):
                    raise NotFound(f"Request for unknown model: '{name}' version {version} is not found")
                if called.is_decoupled and not decoupled:
                    raise _needs_decoupled(name)
                replies = called.submit(call)
        except TritonError as error:
            replies = Replies("", 0)
            replies.put(_failed(error), final=True)
        return LocalCall(instance, replies)

    def ask(self, what: str, *args: Any) -> Any:  # Any: plain values
        if what == "models.ready":
            return args[0] in self._models
        if what in ("models.load", "models.unload"):
            raise pb_utils.TritonModelException(
                f"a model under test has only the models it was given (load_python_model(models=...)): "
                f"it can load or unload none, and so not '{args[0]}'"
            )
        raise pb_utils.TritonModelException(f"'{what}' needs a server, and this model is under test")

    def tell(self, what: str, *args: Any) -> None:  # Any: plain values
        self.ask(what, *args)

    def free_memory(self) -> int:
        """See `Link`; tensors are in the memory of the test."""
        return 0

    def ask_to_go_on(self, slot: int) -> Granted:
        """Any number of responses may follow; tests keep them all."""
        return Granted()

    def give_up_abandoned(self) -> None:
        """Nothing is ever in `abandoned`: a call that is dropped costs nothing here."""


class Granted:
    """Leave to send more responses, given at once; satisfies `Permission` of the ipc package."""

    def is_set(self) -> bool:
        return True

    def wait(self, timeout: float | None = None) -> None:
        """See `Permission`."""

    def close(self) -> None:
        """It is no longer waited for."""


class LocalCall:
    """One call under way; satisfies `triton_python_backend_utils._link.Call`.

    Args:
        instance: names the called instance in errors.
        replies: its responses.
    """

    def __init__(self, instance: str, replies: Replies) -> None:
        self._instance = instance
        self._replies = replies
        self._has_shown_end = False

    def next(self) -> pb_utils.InferenceResponse | None:
        return self._response(self._replies.next())

    async def next_async(self) -> pb_utils.InferenceResponse | None:
        return self._response(await self._replies.next_async())

    def cancel(self) -> None:
        self._replies.cancel()

    def _response(self, answer: WireAnswer | BaseException | None) -> pb_utils.InferenceResponse | None:
        if answer is None:
            # A calling model sees the final flag that comes alone as a response without outputs.
            if self._has_shown_end or not self._replies.ended_alone:
                return None
            self._has_shown_end = True
            answer = (), None, None
        if isinstance(answer, BaseException):
            answer = (), None, as_execution_failure(answer, self._instance)
        return decode_response(answer, LocalEndpoint())  # type: ignore[arg-type]  # no list, but read as one


class _StandIn:
    """Runs the function that stands for a called model, on a thread of its own."""

    def __init__(
        self, name: str, function: ModelFunction, call: InferRequest, replies: Replies, *, is_single: bool
    ) -> None:
        self._name = name
        self._function = function
        self._call = call
        self._replies = replies
        self._is_single = is_single

    def run(self) -> None:
        """Call it and hand on what it returns or raises."""
        replies = self._replies
        try:
            outputs = self._function({tensor.name: tensor.numpy() for tensor in self._call.inputs.values()})
            if isinstance(outputs, Iterator):
                if self._is_single:
                    raise _needs_decoupled(self._name)
                for one in outputs:
                    if replies.is_cancelled:
                        break
                    replies.put(self._answer(one), final=False)
                replies.put(None, final=True)
            else:
                replies.put(self._answer(outputs), final=True)
        except TritonError as error:
            replies.put(_failed(error), final=True)
        except BaseException as exc:  # the calling model reads it, as if the called one had raised it
            replies.put(exc, final=True)

    def _answer(self, outputs: object) -> WireAnswer:
        if not isinstance(outputs, Mapping):
            raise TypeError(
                f"the function that stands for model '{self._name}' gave {type(outputs).__name__}, "
                f"expected a dict from names of outputs to arrays"
            )
        if isinstance(outputs, Outputs) and outputs.error is not None:
            raise outputs.error
        tensors = [pb_utils.Tensor(name, np.asarray(value)) for name, value in outputs.items()]
        names = dict.fromkeys(outputs, False)
        response = pb_utils.InferenceResponse(tensors)
        return encode_response(response, self._call.requested_outputs, names, LocalEndpoint())  # type: ignore[return-value]  # without shared memory it is one


def _request_of(name: str, wire: WireRequest) -> InferRequest:
    _, id, flags, correlation_id, timeout_us, priority, parameters, requested, inputs = wire[:9]
    return InferRequest(
        name,
        {name: Tensor(name, kind, shape, bytearray(data)) for name, kind, shape, data in inputs},
        id=id,
        requested_outputs=requested,
        parameters=parameters,
        flags=flags,
        correlation_id=correlation_id,
        priority=priority,
        timeout_us=timeout_us,
    )


def _needs_decoupled(name: str) -> Internal:
    return Internal(
        f"Model {name} is using the decoupled. The current BLS request call doesn't support models using the "
        f"decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' "
        f"calls for decoupled models."
    )


def _failed(error: TritonError) -> WireAnswer:
    return (), None, (int(error.code), error.message)
