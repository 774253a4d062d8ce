"""Implicit state: tensors that a model remembers of a sequence, from one of its requests to the next.

To a backend a state is one more input of a request and one more output of its response. Both are put there
and taken away here, so that clients see neither, and a backend that knows nothing of states has them too.

A state is never written in place. What an execution gives becomes the state when its request has succeeded,
so that one which failed leaves the state as it was; and sequences can begin with the same tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from tritonpy.datatypes import CONFIG_DATATYPES, DataType
from tritonpy.errors import Internal, InvalidArg, TritonError
from tritonpy.json_object import JsonObject
from tritonpy.response import InferResponse
from tritonpy.tensor import Array, Tensor, unpack_bytes


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One state of a model.

    Attributes:
        input_name: what the model calls it when it is given.
        output_name: what the model calls the one it gives back.
        datatype: protocol name, such as `FP32`.
        shape: with a leading 1 when the model batches; -1 for any size.
        initial: what every sequence begins with.
        is_visible: it is also an output of the model, which clients may ask for.
    """

    input_name: str
    output_name: str
    datatype: str
    shape: tuple[int, ...]
    initial: Tensor
    is_visible: bool


class StateSpecs:
    """The states of a model, from which those of each of its sequences are made.

    Args:
        config: the model's configuration as a plain dict.
        files: what lies in the files that its initial states name, by name.

    Raises:
        InvalidArg: the data of an initial state does not fit it.
    """

    def __init__(self, config: JsonObject, files: Mapping[str, bytes]) -> None:
        self.model_name: str = config["name"]
        self.is_decoupled: bool = config.get("model_transaction_policy", {}).get("decoupled", False)
        self.specs = tuple(_read_specs(config, files))
        self.by_output = {spec.output_name: spec for spec in self.specs}

    def __bool__(self) -> bool:
        return bool(self.specs)

    def fresh(self) -> SequenceStates:
        """States for a sequence that starts now; also for a request that belongs to none."""
        return SequenceStates(self)


class SequenceStates:
    """The states of one sequence; of its requests, one at a time is executed.

    On the loop only, but for `own` and `gives`.
    """

    __slots__ = ("_on_known", "_specs", "_staged", "_tensors")

    def __init__(self, specs: StateSpecs) -> None:
        self._specs = specs
        self._tensors = {spec.input_name: spec.initial for spec in specs.specs}
        self._staged: dict[str, Tensor] = {}
        self._on_known: Callable[[], None] | None = None

    def when_known(self, on_known: Callable[[], None]) -> None:
        """Have `on_known` called once, when the request that is open has had its final response."""
        self._on_known = on_known

    def throw_away(self) -> SequenceStates:
        """States for a null request in the batch of this sequence: same shapes, dropped afterwards."""
        states = SequenceStates(self._specs)
        states._tensors = dict(self._tensors)
        return states

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs that become states."""
        return tuple(self._specs.by_output)

    def tensor(self, input_name: str) -> Tensor:
        """The state that the next execution is given under this name."""
        return self._tensors[input_name]

    def gives(self, output_name: str) -> bool:
        """True if an output of the model becomes a state."""
        return output_name in self._specs.by_output

    def enter(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The inputs of a request that is about to be executed, with the states among them.

        What the request has given before, when it is executed again, is its state from now on.
        """
        self._commit()
        return inputs | self._tensors

    def own(self, response: InferResponse) -> None:
        """Give the states among a response's outputs memory of their own.

        To be called where the model has run. There they may be rows of a batch, which would keep the others
        alive, or lie in memory of the client.
        """
        outputs = response.outputs
        for index, tensor in enumerate(outputs):
            if tensor.name in self._specs.by_output:
                outputs[index] = _owned(tensor)

    def take(self, response: InferResponse | None, final: bool) -> InferResponse | None:
        """Take the states out of a response that is on its way to its client.

        Args:
            response: loses the outputs that only the server may see.
            final: its request has been executed; from now on its states are those of the sequence, unless it
                failed.

        Returns:
            The response, or in its place what is wrong with the states that the model gave; None where it had
            nothing else, unless it is the final one of a model that answers once.
        """
        wrong: TritonError | None = None
        has_given = False
        if response is not None:
            by_output = self._specs.by_output
            given = [tensor for tensor in response.outputs if tensor.name in by_output]
            has_given = bool(given)
            if given:
                if response.error is None:
                    wrong = next(filter(None, map(self._stage, given)), None)
                response.outputs = [
                    tensor
                    for tensor in response.outputs
                    if tensor.name not in by_output or by_output[tensor.name].is_visible
                ]
            if wrong is not None or response.error is not None:
                self._staged.clear()
        if final:
            self._commit()
            on_known, self._on_known = self._on_known, None
            if on_known is not None:
                on_known()
        if wrong is not None:
            return InferResponse(error=wrong)
        if response is None or response.outputs or response.parameters or response.error is not None:
            return response
        return None if has_given and (self._specs.is_decoupled or not final) else response

    def _stage(self, tensor: Tensor) -> TritonError | None:
        spec = self._specs.by_output.get(tensor.name)
        if spec is None:
            return None
        where = f"model '{self._specs.model_name}' gave state '{tensor.name}'"
        if tensor.datatype != spec.datatype:
            return Internal(
                f"{where} with datatype {tensor.datatype}, expected {spec.datatype}, the 'data_type' of the "
                f"state in 'sequence_batching'"
            )
        if len(tensor.shape) != len(spec.shape) or any(
            want not in (-1, got) for want, got in zip(spec.shape, tensor.shape, strict=True)
        ):
            return Internal(
                f"{where} with shape {list(tensor.shape)}, expected {list(spec.shape)}, from the 'dims' of "
                f"the state in 'sequence_batching', where -1 lets a dimension change"
            )
        self._staged[spec.input_name] = tensor.renamed(spec.input_name)
        return None

    def _commit(self) -> None:
        if self._staged:
            self._tensors |= self._staged
            self._staged.clear()


def _owned(tensor: Tensor) -> Tensor:
    buffer = tensor.buffer
    if isinstance(buffer, bytes):
        return tensor
    if tensor.datatype == "BYTES":
        return Tensor(tensor.name, tensor.datatype, tensor.shape, bytes(tensor.wire()))
    array = tensor.numpy()
    return tensor if _is_alone(array) else Tensor.from_numpy(tensor.name, array.copy(), tensor.datatype)


def _is_alone(array: Array) -> bool:
    """True if the array keeps no memory alive but that of its own elements."""
    base: object = array.base
    while isinstance(base, np.ndarray):
        if base.nbytes != array.nbytes:
            return False
        base = base.base
    return base is None or type(base).__name__ == "PyCapsule"  # memory of a framework


def _read_specs(config: JsonObject, files: Mapping[str, bytes]) -> Iterator[StateSpec]:
    lead = (1,) if config.get("max_batch_size", 0) > 0 else ()
    visible = {tensor["name"] for tensor in config.get("output", ())}
    for state in config.get("sequence_batching", {}).get("state", ()):
        datatype = CONFIG_DATATYPES[state["data_type"]]
        dims = tuple(int(dim) for dim in state.get("dims", ()))
        yield StateSpec(
            state["input_name"],
            state["output_name"],
            datatype.name,
            (*lead, *dims),
            _initial(state, datatype, lead, dims, files),
            state["output_name"] in visible,
        )


def _initial(
    state: JsonObject,
    datatype: DataType,
    lead: tuple[int, ...],
    dims: tuple[int, ...],
    files: Mapping[str, bytes],
) -> Tensor:
    """The first state of a sequence; zeros, or empty strings, where nothing else is configured."""
    name = state["input_name"]
    given: JsonObject = next(iter(state.get("initial_state", ())), {})
    if given:
        dims = tuple(int(dim) for dim in given.get("dims", ()))
    shape = (*lead, *(1 if dim == -1 else dim for dim in dims))
    count = prod(shape)
    size = count * (datatype.byte_size or 4)
    filename = given.get("data_file")
    if filename is None:
        try:
            return Tensor(name, datatype.name, shape, bytes(size))
        except (MemoryError, OverflowError) as exc:
            raise InvalidArg(
                f"state '{name}' does not fit into memory, got dims {list(dims)}: {exc}"
            ) from exc
    data = files[filename]
    if len(data) < size:
        raise InvalidArg(
            f"initial_state setting expects {size} bytes, but the data provided from {filename} only has "
            f"{len(data)} bytes."
        )
    if datatype.byte_size:
        data = data[:size]
    else:
        try:
            unpack_bytes(data, count)
        except InvalidArg as exc:
            raise InvalidArg(
                f"initial_state setting expects {count} strings for state '{name}', but the data provided "
                f"from {filename} has others: {exc}"
            ) from exc
    return Tensor(name, datatype.name, shape, data)
