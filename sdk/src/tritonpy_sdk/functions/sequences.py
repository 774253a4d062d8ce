"""Settings of functions whose requests belong to sequences: strategies, controls, and states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.tensor import Tensor as WireTensor

from tritonpy_sdk.functions.tensors import Tensor

_CORRELATION_ID_DATATYPES = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")
_FALSE_TRUE_FIELDS = {"INT32": "int32_false_true", "FP32": "fp32_false_true", "BOOL": "bool_false_true"}
_FOLDER = "initial_state"


class ControlKind(Enum):
    """What a control input tells of its request."""

    START = "CONTROL_SEQUENCE_START"
    """It is the first of its sequence."""
    END = "CONTROL_SEQUENCE_END"
    """It is the last one."""
    READY = "CONTROL_SEQUENCE_READY"
    """It is a request, and not what keeps an empty place in a batch of `DirectStrategy`."""
    CORRID = "CONTROL_SEQUENCE_CORRID"
    """The id of its sequence."""


@dataclass(frozen=True, slots=True)
class Control:
    """An input that the server adds to every request of a sequence, with one element for each row.

    Attributes:
        name: of the input, which is not among those that are bound.
        kind: what it tells.
        dtype: as of a `Tensor`: BOOL, INT32 or FP32, or of an id one of UINT64, INT64, UINT32, INT32 and
            strings; None for BOOL, of an id for UINT64.
        false_true: its two values; not of an id.
    """

    name: str
    kind: ControlKind
    dtype: npt.DTypeLike | None = None
    false_true: tuple[float, float] = (0, 1)

    def config(self) -> JsonObject:
        """As a configuration has it.

        Raises:
            InvalidArg: its kind cannot have this type, or these values.
        """
        is_id = self.kind is ControlKind.CORRID
        given = self.dtype if self.dtype is not None else "UINT64" if is_id else "BOOL"
        datatype = Tensor((1,), given, self.name).datatype
        expected = _CORRELATION_ID_DATATYPES if is_id else tuple(_FALSE_TRUE_FIELDS)
        if datatype not in expected:
            raise InvalidArg(
                f"control '{self.name}': got dtype {datatype}, expected one of {', '.join(expected)} for "
                f"{self.kind.value}"
            )
        control: JsonObject = {"kind": self.kind.value}
        if is_id:
            control["data_type"] = DATATYPES[datatype].config_name
        else:
            control[_FALSE_TRUE_FIELDS[datatype]] = self._values(datatype)
        return {"name": self.name, "control": [control]}

    def _values(self, datatype: str) -> list[float]:
        if len(self.false_true) == 2:
            values: list[float] = np.asarray(self.false_true, DATATYPES[datatype].numpy).tolist()
            if values == list(self.false_true):
                return values
        raise InvalidArg(
            f"control '{self.name}': got false_true={self.false_true}, expected two values of {datatype}"
        )


@dataclass(frozen=True, slots=True)
class InitialState:
    """What a sequence begins with.

    Attributes:
        data: an array of the shape that the state has in one request, without the dimension of the batch; or
            a file with its elements in the protocol's binary form; or None for zeros, or empty strings.
        shape: of what it begins with; None for that of the array, or of the state.
        name: in messages; None for that of the state's input.
    """

    data: npt.ArrayLike | Path | None = None
    shape: Sequence[int] | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that the server keeps from one request of a sequence to the next.

    A function has it as one more input, and gives the next one as one more output. Clients see neither.

    Attributes:
        input_name: of the input.
        output_name: of the output; a function that returns a list has it behind those that are bound.
        shape: without the dimension of the batch; -1 for a dimension that may change.
        dtype: as of a `Tensor`.
        initial: what a sequence begins with; None for zeros, or empty strings, of this shape, with 1 in
            place of -1.
        use_same_buffer: read from configurations of Triton; changes nothing.
        use_growable_memory: likewise; refused for instances that are not on a GPU, as all functions are.
    """

    input_name: str
    output_name: str
    shape: Sequence[int]
    dtype: npt.DTypeLike
    initial: InitialState | None = None
    use_same_buffer: bool = False
    use_growable_memory: bool = False

    @property
    def output(self) -> Tensor:
        """The output that has the next state."""
        return Tensor(self.shape, self.dtype, self.output_name)

    def config(self, file: str) -> JsonObject:
        """As a configuration has it.

        Args:
            file: the name that the file of its initial state gets, where it has an array.

        Raises:
            InvalidArg: what it begins with does not fit.
        """
        entry: JsonObject = {
            "input_name": self.input_name,
            "output_name": self.output_name,
            "data_type": DATATYPES[self.output.datatype].config_name,
            "dims": [int(dim) for dim in self.shape],
        }
        if (initial := self.initial) is not None:
            array = self._initial_array()
            own = self.shape if array is None else array.shape
            shape = own if initial.shape is None else initial.shape
            if array is not None:
                for expected in (self.shape, shape):
                    if fault := Tensor(expected, self.dtype).fault(array):
                        raise InvalidArg(f"initial state of '{self.input_name}': {fault}")
            entry["initial_state"] = [
                {
                    "name": initial.name or self.input_name,
                    "data_type": entry["data_type"],
                    "dims": [int(dim) for dim in shape],
                    **({"zero_data": True} if initial.data is None else {"data_file": file}),
                }
            ]
        if self.use_same_buffer:
            entry["use_same_buffer_for_input_output"] = True
        if self.use_growable_memory:
            entry["use_growable_memory"] = True
        return entry

    def initial_bytes(self) -> bytes | None:
        """The elements of its initial state in the protocol's binary form; None where it has no file.

        Raises:
            InvalidArg: a file cannot be read.
        """
        if self.initial is not None and isinstance(path := self.initial.data, Path):
            try:
                return path.read_bytes()
            except OSError as exc:
                raise InvalidArg(
                    f"initial state of '{self.input_name}': cannot read '{path}': {exc.strerror}"
                ) from None
        array = self._initial_array()
        if array is None:
            return None
        datatype = self.output.datatype
        tensor = WireTensor.from_numpy(self.input_name, array, "BF16" if datatype == "BF16" else None)
        return bytes(tensor.wire())

    def _initial_array(self) -> npt.NDArray[np.generic] | None:
        if self.initial is None or self.initial.data is None or isinstance(self.initial.data, Path):
            return None
        datatype = self.output.datatype
        array: npt.NDArray[np.generic] = np.asarray(self.initial.data)
        if datatype != "BYTES" and array.dtype != DATATYPES[datatype].numpy:
            if not np.can_cast(array.dtype, DATATYPES[datatype].numpy, "same_kind"):
                return array  # which is told to be no such tensor
            array = array.astype(DATATYPES[datatype].numpy)
        return array


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectStrategy:
    """A sequence has a place of its own in every batch of its instance.

    Attributes:
        max_queue_delay_microseconds: how long a request may wait for others.
        minimum_slot_utilization: the share of places, up to 1, that have to have a request for a batch to go
            before that; 0 for any.
    """

    max_queue_delay_microseconds: int = 0
    minimum_slot_utilization: float = 0.0

    def config(self) -> JsonObject:
        """As a configuration has it."""
        return {
            "direct": {
                "max_queue_delay_microseconds": self.max_queue_delay_microseconds,
                "minimum_slot_utilization": self.minimum_slot_utilization,
            }
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class OldestStrategy:
    """Requests of different sequences form batches, those first that have waited for longest.

    Attributes:
        max_candidate_sequences: sequences of an instance whose requests may form batches.
        max_queue_delay_microseconds: how long a request may wait for others.
        preferred_batch_size: batches of these sizes go at once.
        preserve_ordering: answers come in the order of the requests.
    """

    max_candidate_sequences: int
    max_queue_delay_microseconds: int = 0
    preferred_batch_size: Sequence[int] | None = None
    preserve_ordering: bool = False

    def config(self) -> JsonObject:
        """As a configuration has it."""
        entry: JsonObject = {
            "max_candidate_sequences": self.max_candidate_sequences,
            "max_queue_delay_microseconds": self.max_queue_delay_microseconds,
        }
        if self.preferred_batch_size:
            entry["preferred_batch_size"] = [int(size) for size in self.preferred_batch_size]
        if self.preserve_ordering:
            entry["preserve_ordering"] = True
        return {"oldest": entry}


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceBatcher:
    """Brings the requests of a sequence to the same instance, in their order.

    A function finds what it needs in its requests: `sequence_id`, `is_sequence_start`, `is_sequence_end`. Or
    it is given that as inputs, by `controls`; `@batch` has them with a row for each request.

    Attributes:
        strategy: how requests of different sequences share batches.
        max_sequence_idle_microseconds: after which a sequence that sends nothing is ended.
        controls: inputs that the server adds.
        states: tensors that the server keeps for each sequence.
        iterative: a request is a sequence, and may be executed many times: `Request.reschedule`.
    """

    strategy: DirectStrategy | OldestStrategy = DirectStrategy()
    max_sequence_idle_microseconds: int = 1_000_000
    controls: Sequence[Control] = ()
    states: Sequence[State] = ()
    iterative: bool = False

    def config(self) -> JsonObject:
        """As a configuration has it.

        Raises:
            InvalidArg: a control or a state cannot be as it is said to be.
        """
        entry: JsonObject = {
            "max_sequence_idle_microseconds": self.max_sequence_idle_microseconds,
            **self.strategy.config(),
        }
        if self.controls:
            entry["control_input"] = [control.config() for control in self.controls]
        if self.states:
            entry["state"] = [
                state.config(_file_name(index, state)) for index, state in enumerate(self.states)
            ]
        if self.iterative:
            entry["iterative_sequence"] = True
        return {"sequence_batching": entry}

    def files(self) -> dict[str, bytes]:
        """Contents of the files of initial states, by path in the model's directory.

        Raises:
            InvalidArg: one cannot be read.
        """
        found = {
            f"{_FOLDER}/{_file_name(index, state)}": state.initial_bytes()
            for index, state in enumerate(self.states)
        }
        return {path: content for path, content in found.items() if content is not None}


def _file_name(index: int, state: State) -> str:
    """No two states have the same, and no part of it leads elsewhere."""
    return f"{index}-{re.sub(r'[^A-Za-z0-9_-]', '_', state.input_name)}"
