"""A Python model in a test: called without a server, checked as by one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from tritonpy.errors import TritonError
from tritonpy.handles import Backend, JsonObject
from tritonpy.request import InferRequest
from tritonpy.response import ParameterValue

from tritonpy_sdk.repository import Config
from tritonpy_sdk.testing.python_model.arrays import (
    Inputs,
    ModelWarning,
    Outputs,
    WireAnswer,
    misfits,
    to_outputs,
    to_tensor,
)
from tritonpy_sdk.testing.python_model.replies import Replies
from tritonpy_sdk.testing.python_model.source import find_model

if TYPE_CHECKING:
    from tritonpy_sdk.testing.python_model.calls import CalledModel, ModelFunction
    from tritonpy_sdk.testing.python_model.instance import LocalInstance

_PLUGIN_PACKAGES = {"triton_python_backend_utils", "tritonpy_backend_python", "tritonpy_model"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a Python model under test, where more than its inputs matters.

    Attributes:
        inputs: by name; see `PythonModel.infer`.
        parameters: custom parameters.
        request_id: the client's id.
        requested: the outputs wanted; None for all.
        flags: `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START` and `_END`, combined.
        correlation_id: the sequence it belongs to; 0 or "" for none.
        timeout_us: how long it may wait in a queue, in microseconds; for the model to read, no queue is here.
    """

    inputs: Inputs
    parameters: Mapping[str, ParameterValue] | None = None
    request_id: str = ""
    requested: Sequence[str] | None = None
    flags: int = 0
    correlation_id: int | str = 0
    timeout_us: int = 0


class ResponseStream:
    """The responses to one request, in the order they come: an iterator over `Outputs`.

    An error that the model sends is raised, and one may go on after it: others may follow. The stream ends
    with the model's final flag.
    """

    def __init__(self, model: PythonModel, replies: Replies, batch_size: int) -> None:
        self._model = model
        self._replies = replies
        self._batch_size = batch_size

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Outputs:
        answer = self._replies.next()
        if answer is None:
            raise StopIteration
        if isinstance(answer, BaseException):
            raise answer
        outputs = self._model._outputs(answer, self._batch_size, stacklevel=3)
        if outputs.error is not None:
            raise outputs.error
        return outputs

    def cancel(self) -> None:
        """Tell the model that no more responses are wanted, as a client does that hangs up.

        `is_cancelled()` of request and sender says so from now on. What the model still sends can be read.
        """
        self._replies.cancel()


class PythonModel:
    """A Python model, loaded in this process by `load_python_model`; a context manager that finalizes it.

    All its methods run on one thread, one after the other, as in a worker of the server.

    Attributes:
        name: the model's name, which is its directory's.
        version: the version loaded.
        config: the settled configuration, as `GET /v2/models/<name>/config` shows it.
        python_object: the `TritonPythonModel` itself.
    """

    def __init__(self, instance: LocalInstance) -> None:
        self._instance = instance
        self.name = instance.name
        self.version = instance.version
        self.config: JsonObject = instance.config
        self.python_object: Any = instance.python_object  # Any: the model's own class

    def infer(
        self,
        inputs: Inputs,
        *,
        parameters: Mapping[str, ParameterValue] | None = None,
        request_id: str = "",
        requested: Sequence[str] | None = None,
        flags: int = 0,
        correlation_id: int | str = 0,
        timeout_us: int = 0,
    ) -> Outputs:
        """Have the model answer one request.

        Args:
            inputs: by name. The shapes are those that a client sends, with the batch dimension first when the
                model batches. An array must have the input's dtype: text, byte strings and objects for BYTES,
                `uint16` raw bits (or `ml_dtypes.bfloat16`) for BF16. A list or a number becomes what the
                configuration says.
            parameters: custom parameters.
            request_id: the client's id.
            requested: the outputs wanted; None for all. The model may look, others are dropped.
            flags: `TRITONSERVER_REQUEST_FLAG_SEQUENCE_START` and `_END`, combined.
            correlation_id: the sequence it belongs to; 0 or "" for none.
            timeout_us: how long it may wait in a queue, in microseconds; only told to the model.

        Returns:
            The outputs by name.

        Raises:
            TritonError: that of `triton_python_backend_utils`: the model answered with it, the request does
                not fit the model, or what `execute` returned is no list of responses. Code and text are what
                a client gets.
            Exception: `execute` raised it.
            TimeoutError: `execute` has returned without an answer, and none came in time.
            TypeError: the model is decoupled; see `stream`.
        """
        request = ModelRequest(
            inputs=inputs,
            parameters=parameters,
            request_id=request_id,
            requested=requested,
            flags=flags,
            correlation_id=correlation_id,
            timeout_us=timeout_us,
        )
        [outputs] = self._infer([request])
        if outputs.error is not None:
            raise outputs.error
        return outputs

    def infer_batch(self, requests: Sequence[Inputs | ModelRequest]) -> list[Outputs]:
        """Have the model answer several requests in one call of `execute`, as a dynamic batcher joins them.

        Args:
            requests: inputs by name, as for `infer`, or a `ModelRequest` that says more.

        Returns:
            The answers, in the order of the requests. One that carries an error has it as `error`.

        Raises:
            TritonError: a request does not fit the model, or a server would not make this batch.
            Exception: `execute` raised it, which answers every request.
            TimeoutError, TypeError: as `infer`.
        """
        return self._infer(
            [
                request if isinstance(request, ModelRequest) else ModelRequest(inputs=request)
                for request in requests
            ]
        )

    def stream(
        self,
        inputs: Inputs,
        *,
        parameters: Mapping[str, ParameterValue] | None = None,
        request_id: str = "",
        requested: Sequence[str] | None = None,
        flags: int = 0,
        correlation_id: int | str = 0,
        timeout_us: int = 0,
    ) -> ResponseStream:
        """Send one request to a decoupled model, or to any other, and read its responses as they come.

        What it takes is described at `infer`; what that raises, reading the stream raises.

        Raises:
            TritonError: the request does not fit the model.
        """
        request = ModelRequest(
            inputs=inputs,
            parameters=parameters,
            request_id=request_id,
            requested=requested,
            flags=flags,
            correlation_id=correlation_id,
            timeout_us=timeout_us,
        )
        [(replies, batch_size)] = self._submit([request])
        return ResponseStream(self, replies, batch_size)

    def is_ready(self) -> bool:
        """The answer of the model's own `is_ready`; True for a model without one.

        Raises:
            TritonError: it raised something, and the text says what and where; or it returned no bool.
        """
        self._check_open()
        return self._instance.is_ready()

    def finalize(self) -> None:
        """Cancel what is still open, finalize the model, and take its modules out of this process.

        The second time nothing happens.

        Raises:
            TimeoutError: the model goes on executing.
            Exception: its `finalize` raised it.
        """
        self._instance.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finalize()

    def __repr__(self) -> str:
        return f"PythonModel({self.name!r}, version {self.version})"

    def _infer(self, requests: Sequence[ModelRequest]) -> list[Outputs]:
        if self._instance.is_decoupled:
            raise TypeError(
                f"model '{self.name}' is decoupled: it may send any number of responses; call stream()"
            )
        submitted = self._submit(requests)
        answers = []
        for replies, batch_size in submitted:
            answer = replies.next()
            if isinstance(answer, BaseException):
                raise answer
            answers.append((answer, batch_size))
        outputs = []
        for answer, batch_size in answers:  # no comprehension: it would count for the warning's place
            outputs.append(self._outputs(answer, batch_size, stacklevel=4))
        return outputs

    def _submit(self, requests: Sequence[ModelRequest]) -> list[tuple[Replies, int]]:
        self._check_open()
        try:
            made = [self._request(request) for request in requests]
            replies = self._instance.submit_batch(made)
        except TritonError as error:
            raise self._instance.error(error.code, error.message) from error
        return [(one, request.batch_size) for one, request in zip(replies, made, strict=True)]

    def _check_open(self) -> None:
        if self._instance.is_closed:
            raise RuntimeError(f"model '{self.name}' has been finalized")

    def _request(self, request: ModelRequest) -> InferRequest:
        specs = self._instance.signature.inputs
        for key, value in (request.parameters or {}).items():
            if not isinstance(value, bool | int | float | str):
                kind = type(value).__name__
                raise TypeError(f"parameter '{key}': got {kind}, expected bool, int, float or str")
        return InferRequest(
            self.name,
            {name: to_tensor(name, value, specs.get(name)) for name, value in request.inputs.items()},
            model_version=str(self.version),
            id=request.request_id,
            requested_outputs=None if request.requested is None else tuple(request.requested),
            parameters=request.parameters,
            flags=request.flags,
            correlation_id=request.correlation_id,
            timeout_us=request.timeout_us,
        )

    def _outputs(self, answer: WireAnswer | None, batch_size: int, *, stacklevel: int) -> Outputs:
        assert answer is not None  # a model that is not decoupled ends with a response
        if answer[2] is not None:
            return Outputs(error=self._instance.error(*answer[2]))
        signature = self._instance.signature
        unknown, self._instance.unknown_outputs[:] = list(self._instance.unknown_outputs), []
        found = [
            f"output '{name}' of model '{self.name}' is not in its configuration, which has "
            f"{list(signature.outputs)}; a server drops it"
            for name in dict.fromkeys(unknown)
        ]
        batches = signature.max_batch_size > 0 and not self._instance.is_decoupled
        found += misfits(answer, signature.outputs, batch_size, self.name, batches=batches)
        for text in found:
            warnings.warn(text, ModelWarning, stacklevel=stacklevel)
        return to_outputs(answer)


def load_python_model(
    path: str | os.PathLike[str],
    *,
    config: Config | None = None,
    instance_kind: Literal["CPU", "GPU", "MODEL"] = "CPU",
    device_id: int = 0,
    models: Mapping[str, PythonModel | ModelFunction] | None = None,
    answer_timeout_s: float = 30.0,
) -> PythonModel:
    """Load a Python model in this process, to test it without a server.

    The model is imported, completes its configuration and is initialized with what a server passes. Requests
    are checked as by a server, and run through the same code as in its workers.

    ```python
    with load_python_model("models/sentences") as model:
        assert model.infer({"TEXT": [["how long?"]]})["LENGTH"].tolist() == [[9]]
    ```

    Args:
        path: a model directory, whose highest version is loaded; a version directory; or its `model.py`.
        config: stands for `config.pbtxt`: its text, or a dict in the shape of `GET /v2/models/<name>/config`.
            Left out, the file in the model directory is read where there is one.
        instance_kind: what `initialize` reads in `args["model_instance_kind"]`, instead of the
            configuration's.
        device_id: what it reads in `args["model_instance_device_id"]`. No device is looked for.
        models: what the model may call (BLS), by name: a model loaded like this one, or a function from a
            dict of arrays to a dict of arrays. A function that stands for a decoupled model returns an
            iterator of dicts. What it raises, and a name that is not here, answers the call with an error.
        answer_timeout_s: how long to wait for a response after `execute` has returned, and for the model to
            stop when it is finalized. How long `execute` takes is not limited.

    Returns:
        The loaded model. Use it in a `with` statement, or `finalize` it: until then its directories stay in
        `sys.path`.

    Raises:
        NotFound: there is no model at `path`.
        InvalidArg: the configuration is not sound, or not for the Python backend; with the server's text.
        ImportError: the distribution tritonpy-backend-python is not installed.
        Exception: the model's file, its `auto_complete_config` or its `initialize` raised it.
    """
    try:
        import tritonpy_backend_python

        from tritonpy_sdk.testing.python_model.instance import LocalInstance
    except ModuleNotFoundError as exc:
        if exc.name not in _PLUGIN_PACKAGES:
            raise
        raise ImportError("load_python_model runs models with tritonpy-backend-python: install it") from exc
    attributes = tritonpy_backend_python.backend_attributes(Backend("python"))
    called: dict[str, CalledModel | ModelFunction] = {
        name: model._instance if isinstance(model, PythonModel) else model
        for name, model in (models or {}).items()
    }
    source = find_model(path, config, attributes)
    return PythonModel(LocalInstance(source, instance_kind, device_id, called, answer_timeout_s))
