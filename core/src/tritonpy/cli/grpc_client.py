"""Metadata and inference over gRPC, for `corectl infer --grpc`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click
import grpc

from tritonpy.cli.models_watch import hint_of_names
from tritonpy.cli.tensor_input import WantedInput
from tritonpy.cli.tensor_output import Reply
from tritonpy.protos import messages
from tritonpy.protos.pool import SERVICE_NAME
from tritonpy.tensor import Tensor

DEFAULT_TARGET = "localhost:8001"

_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class GrpcInferClient:
    """Talks to one server; same methods as `HttpInferClient`.

    Args:
        url: `host:port`; None for the usual place. A scheme before it is ignored.
        timeout_s: how long to wait for each call, for a decoupled model for all its responses.
    """

    def __init__(self, url: str | None, timeout_s: float) -> None:
        self._target = (url or DEFAULT_TARGET).rpartition("://")[2].rstrip("/")
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(self._target, options=_UNLIMITED)

    def close(self) -> None:
        """End the channel."""
        self._channel.close()

    def inputs(self, model: str, version: str) -> list[WantedInput]:
        """The model's inputs.

        Raises:
            click.ClickException: no server, or no such model there.
        """
        call = self._channel.unary_unary(
            f"/{SERVICE_NAME}/ModelMetadata",
            request_serializer=messages.ModelMetadataRequest.SerializeToString,
            response_deserializer=messages.ModelMetadataResponse.FromString,
        )
        try:
            metadata = call(messages.ModelMetadataRequest(name=model, version=version), self._timeout_s)
        except grpc.RpcError as exc:
            error = self._explained(exc)
            hint = self._unknown_model_hint(model) if "unknown model" in error.message else ""
            raise click.ClickException(error.message + hint) from exc
        return [WantedInput(entry.name, entry.datatype, tuple(entry.shape)) for entry in metadata.inputs]

    def infer(
        self, model: str, version: str, inputs: Sequence[Tensor], outputs: Sequence[str]
    ) -> Iterator[Reply]:
        """Send the request; yield the one reply, or for a decoupled model each as it comes.

        Raises:
            click.ClickException: the server answered with an error, whose text it has.
        """
        request = messages.ModelInferRequest(model_name=model, model_version=version)
        for tensor in inputs:
            request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            request.raw_input_contents.append(bytes(tensor.wire()))
        for name in outputs:
            request.outputs.add(name=name)
        try:
            if self._is_decoupled(model, version):
                yield from self._stream(request)
            else:
                yield self._call(request)
        except grpc.RpcError as exc:
            raise self._explained(exc) from exc

    def _unknown_model_hint(self, name: str) -> str:
        call = self._channel.unary_unary(
            f"/{SERVICE_NAME}/RepositoryIndex",
            request_serializer=messages.RepositoryIndexRequest.SerializeToString,
            response_deserializer=messages.RepositoryIndexResponse.FromString,
        )
        try:
            index = call(messages.RepositoryIndexRequest(), self._timeout_s)
        except grpc.RpcError:
            return ""
        return hint_of_names(name, (entry.name for entry in index.models))

    def _is_decoupled(self, model: str, version: str) -> bool:
        call = self._channel.unary_unary(
            f"/{SERVICE_NAME}/ModelConfig",
            request_serializer=messages.ModelConfigRequest.SerializeToString,
            response_deserializer=messages.ModelConfigResponse.FromString,
        )
        answer = call(messages.ModelConfigRequest(name=model, version=version), self._timeout_s)
        return bool(answer.config.model_transaction_policy.decoupled)

    def _call(self, request: messages.ModelInferRequest) -> Reply:
        call = self._channel.unary_unary(
            f"/{SERVICE_NAME}/ModelInfer",
            request_serializer=messages.ModelInferRequest.SerializeToString,
            response_deserializer=messages.ModelInferResponse.FromString,
        )
        return _read_reply(call(request, self._timeout_s))

    def _stream(self, request: messages.ModelInferRequest) -> Iterator[Reply]:
        call = self._channel.stream_stream(
            f"/{SERVICE_NAME}/ModelStreamInfer",
            request_serializer=messages.ModelInferRequest.SerializeToString,
            response_deserializer=messages.ModelStreamInferResponse.FromString,
        )
        # Nothing follows the one request, so the stream ends when the model has sent everything.
        for answer in call(iter([request]), self._timeout_s):
            if answer.error_message:
                raise click.ClickException(answer.error_message)
            yield _read_reply(answer.infer_response)

    def _explained(self, error: grpc.RpcError) -> click.ClickException:
        # What is raised by a call is always both an RpcError and a Call; only the latter has the details.
        code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
        details = error.details() if isinstance(error, grpc.Call) else str(error)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return click.ClickException(
                f"no answer from {self._target} within {self._timeout_s:g} s; wait longer with --timeout"
            )
        if code is grpc.StatusCode.UNAVAILABLE and "failed to connect" in (details or ""):
            return click.ClickException(
                f"no server answers at {self._target}. Start one with `corectl serve --model-repository "
                f"PATH`, or say with --url where its gRPC port is"
            )
        return click.ClickException(f"{details} (gRPC status {code.name})")


def _read_reply(answer: messages.ModelInferResponse) -> Reply:
    outputs = [
        Tensor(entry.name, entry.datatype, entry.shape, contents)
        for entry, contents in zip(answer.outputs, answer.raw_output_contents, strict=True)
    ]
    parameters: dict[str, object] = {}
    for name, value in answer.parameters.items():
        which = value.WhichOneof("parameter_choice")
        if which:
            parameters[name] = getattr(value, which)
    return Reply(answer.model_name, answer.model_version, outputs, parameters)
