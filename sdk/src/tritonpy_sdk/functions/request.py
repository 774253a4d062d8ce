"""Requests as functions see them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.request_trace import RequestTrace
from tritonpy.response import ParameterValue
from tritonpy.tensor import Array


class Request(dict[str, Array]):
    """A request: its inputs by name, and what the client said beside them.

    Arrays are views of received bytes, or of those that a program has handed over. They cannot be written to,
    unless the function was bound as writable.

    Args:
        data: the inputs.
        parameters: what the client gave by name.
        of: the server's request; None in tests of functions.
        is_to_be_copied: who hands its arrays on as they are copies them before.
        again: the requests that are to be executed again; None where that cannot be asked for.
    """

    __slots__ = ("_again", "_of", "is_to_be_copied", "parameters")

    def __init__(
        self,
        data: Mapping[str, Array],
        parameters: Mapping[str, ParameterValue] | None = None,
        of: InferRequest | None = None,
        *,
        is_to_be_copied: bool = False,
        again: list[InferRequest] | None = None,
    ) -> None:
        super().__init__(data)
        self.is_to_be_copied = is_to_be_copied
        self.parameters: Mapping[str, ParameterValue] = parameters or {}
        self._of = of
        self._again = again

    @classmethod
    def read(
        cls,
        request: InferRequest,
        *,
        is_writable: bool = False,
        is_owned: bool = False,
        is_joined: bool = False,
        again: list[InferRequest] | None = None,
    ) -> Request:
        """The request that a batcher has handed over.

        Args:
            request: of the batcher.
            is_writable: the function may write to its inputs.
            is_owned: nobody else looks at them, and they can be written to as they are.
            is_joined: the function gets arrays that `@batch` puts together, which are copies anyway.
            again: takes the requests that the function wants to be executed again; None where it cannot.
        """
        inputs = {name: tensor.numpy() for name, tensor in request.inputs.items()}
        if not (is_writable or is_owned):
            inputs = {name: _read_only(array) for name, array in inputs.items()}
        is_to_be_copied = is_writable and not is_owned
        if is_to_be_copied and not is_joined:
            inputs = {name: array.copy() for name, array in inputs.items()}
        is_to_be_copied = is_to_be_copied and is_joined
        return cls(inputs, request.parameters, request, is_to_be_copied=is_to_be_copied, again=again)

    def replaced(self, data: Mapping[str, Array]) -> Request:
        """The same request with other inputs."""
        return Request(
            data, self.parameters, self._of, is_to_be_copied=self.is_to_be_copied, again=self._again
        )

    @property
    def data(self) -> dict[str, Array]:
        """The inputs by name."""
        return self

    @property
    def id(self) -> str:
        """The client's id of the request, "" for none."""
        return "" if self._of is None else self._of.id

    @property
    def requested_output_names(self) -> tuple[str, ...] | None:
        """The outputs that are asked for; None for all."""
        return None if self._of is None else self._of.requested_outputs

    @property
    def span(self) -> RequestTrace | None:
        """Takes notes of steps of a request that is traced."""
        return None if self._of is None else self._of.trace

    @property
    def sequence_id(self) -> int | str:
        """The sequence that it belongs to; 0 for none."""
        return 0 if self._of is None else self._of.correlation_id

    @property
    def is_sequence_start(self) -> bool:
        """It begins its sequence."""
        return self._of is not None and bool(self._of.flags & SEQUENCE_START)

    @property
    def is_sequence_end(self) -> bool:
        """It ends its sequence."""
        return self._of is not None and bool(self._of.flags & SEQUENCE_END)

    @property
    def batch_size(self) -> int:
        """Rows of its inputs; 1 where the model does not batch."""
        if self._of is not None:
            return self._of.batch_size
        first = next(iter(self.values()), None)
        return 1 if first is None or not np.ndim(first) else len(first)

    def is_cancelled(self) -> bool:
        """True once the client has given up."""
        return self._of is not None and self._of.is_cancelled()

    def reschedule(self) -> None:
        """Have the request executed again, with others that wait then; the function returns None for it now.

        A decoupled function may yield or return outputs for it as well, which are sent before that.

        Raises:
            RuntimeError: the function was not bound with `SequenceBatcher(iterative=True)`, or into a server
                elsewhere.
        """
        if self._again is None or self._of is None:
            raise RuntimeError(
                "a request is executed again only where a function is bound with "
                "SequenceBatcher(iterative=True), in the program of the server"
            )
        if not any(self._of is each for each in self._again):
            self._again.append(self._of)


def _read_only(array: Array) -> Array:
    """The same memory: what a program has handed over is its own, and others may read what was received."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array
