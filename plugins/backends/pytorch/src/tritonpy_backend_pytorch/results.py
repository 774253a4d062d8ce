"""The outputs of a model, taken out of whatever its call returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from tritonpy.plugin import DATATYPES, Array, Binding, Internal, InvalidArg, TritonError

from tritonpy_backend_pytorch.arrays import datatype_of, strings_to_array, to_array
from tritonpy_backend_pytorch.names import Key, Path, ordinal_of, split_name

_WRONG_TYPE = (
    "output must be of type Tensor, List[str] or Tuple containing one of these two types. It should not be a "
    "List / Dictionary of Tensors or a Scalar"
)
_NUMBERS = {bool: "BOOL", int: "INT64", float: "FP32"}


Fetch = Callable[[Sequence[object]], list[object]]
"""Brings those of some values that are tensors on a device to the host."""


class Picker:
    """Finds the outputs of a configuration in the results of calls.

    Names say where: `<name>__<index>` counts values, and `RESULT[scores][0]` or `scores` leads to one; the
    rest
    are taken in the order of the configuration. Values inside of tuples, lists and dictionaries count one by
    one, in order.

    Args:
        bindings: the outputs, in the order of the configuration.
        known: places that the model's file tells, by name; they come before all other rules.
        owned: addresses of memory that belongs to the model; outputs in it are copied, because the next call
            may write there.
        copies: the next call may write to any output, so that all of them are copied.
        fetch: brings the wanted values to the host, all of them together; None where they are there.
    """

    def __init__(
        self,
        bindings: Sequence[Binding],
        known: Mapping[str, int] | None = None,
        owned: frozenset[int] = frozenset(),
        copies: bool = False,
        fetch: Fetch | None = None,
    ) -> None:
        self._fetch = fetch
        self._bindings = {binding.name: binding for binding in bindings}
        self._owned = owned
        self._copies = copies
        names = list(self._bindings)
        ordinals = [ordinal_of(name) for name in names]
        self._indices: dict[str, int] = {}
        self._paths: dict[str, Path] = {}
        if known is not None and all(name in known for name in names):
            self._indices = {name: known[name] for name in names}
        elif None not in ordinals:
            self._indices = {
                name: index for name, index in zip(names, ordinals, strict=True) if index is not None
            }
        else:
            self._order = {name: index for index, name in enumerate(names)}
            self._paths = {name: _path(name) for name in names}

    def pick(self, result: object, wanted: Sequence[str]) -> list[Array]:
        """The wanted outputs of one call.

        Raises:
            TritonError: one is not there, or of another type than the configuration says.
        """
        found = self._found(result, wanted)
        if self._fetch is not None:
            found = self._fetch(found)
        return [self._array(self._bindings[name], value) for name, value in zip(wanted, found, strict=True)]

    def _found(self, result: object, wanted: Sequence[str]) -> list[object]:
        """The values of the wanted outputs."""
        if self._paths:
            named = self._named(result, wanted)
            if named is not None:
                return [named[name] for name in wanted]
            indices = self._order
        else:
            indices = self._indices
        values = [result] if isinstance(result, torch.Tensor) else list(_values(result))
        found = []
        for name in wanted:
            index = indices[name]
            if index >= len(values):
                raise InvalidArg(
                    f"The output {name} in the model configuration refers to an output index which "
                    "doesn't exist. "
                    f"This model has {len(values)} outputs"
                )
            found.append(values[index])
        return found

    def _named(self, result: object, wanted: Sequence[str]) -> dict[str, object] | None:
        """The wanted outputs by their names; None when these lead to no values, so that their order counts.

        Raises:
            InvalidArg: some names lead to a value and a wanted one does not, and the order contradicts them.
        """
        found: dict[str, object] = {}
        for name, path in self._paths.items():
            value: object = result
            for key in path:
                value = _inside(value, key)
            if value is not None:
                found[name] = value
        missing = next((name for name in wanted if name not in found), None)
        if missing is None:
            return found
        if found:
            self._check_order(result, found, missing)
        return None

    def _check_order(self, result: object, found: Mapping[str, object], missing: str) -> None:
        """Refuse to go by order where the names that are found contradict it, or the keys have no order."""
        values = list(_values(result))
        in_order = all(
            self._order[name] < len(values) and values[self._order[name]] is value
            for name, value in found.items()
        )
        if in_order and not isinstance(result, Mapping):
            return
        raise InvalidArg(
            f"output '{missing}' leads to nothing in the result of the model, which has "
            f"{', '.join(name for name, _ in named_values(result))}"
        )

    def _array(self, binding: Binding, value: object) -> Array:
        if isinstance(value, torch.Tensor):
            datatype = datatype_of(value)
            if datatype != binding.datatype:
                raise _wrong_datatype(
                    binding, (datatype and DATATYPES[datatype].config_name) or str(value.dtype)
                )
            if self._copies or (self._owned and value.untyped_storage().data_ptr() in self._owned):
                value = value.clone()
            array = to_array(value)
        elif isinstance(value, list) and _is_strings(value):
            if binding.datatype != "BYTES":
                raise _wrong_datatype(binding, "TYPE_STRING")
            array = strings_to_array(value)
            if binding.batches and binding.dims:
                array = array.reshape(-1, *(1 for _ in binding.dims))
            return array
        elif type(value) in _NUMBERS:
            datatype = binding.datatype
            if datatype == "BYTES":
                raise _wrong_datatype(binding, f"TYPE_{_NUMBERS[type(value)]}")
            array = np.array(value, DATATYPES[datatype].numpy) if datatype != "BF16" else _bfloat16(value)
        else:
            raise Internal(f"{_WRONG_TYPE}; output '{binding.name}' is {type(value).__name__}")
        if array.ndim == 0 and not binding.is_scalar:
            if binding.batches or any(dim not in (-1, 1) for dim in binding.dims):
                raise InvalidArg(f"output '{binding.name}' is a scalar which is not supported.")
            array = array.reshape((1,) * len(binding.dims))
        return array


def named_values(result: object) -> Iterator[tuple[str, object]]:
    """The values of a result, each by its key or field, else by its index as `OUTPUT__0`."""
    if isinstance(result, Mapping) and not any(isinstance(value, tuple | list) for value in result.values()):
        yield from ((str(key), value) for key, value in result.items())
        return
    values = list(_values(result))
    fields = getattr(result, "_fields", ())
    names = fields if len(fields) == len(values) else [f"OUTPUT__{index}" for index in range(len(values))]
    yield from zip(names, values, strict=True)


def _values(result: object) -> Iterator[object]:
    """The values of a result in order, out of all tuples, lists and dictionaries."""
    if isinstance(result, Mapping):
        for value in result.values():
            yield from _values(value)
    elif isinstance(result, tuple) or (isinstance(result, list) and not _is_strings(result)):
        for value in result:
            yield from _values(value)
    else:
        yield result


def _is_strings(values: list[object]) -> bool:
    return all(isinstance(value, str | bytes) for value in values)  # an empty list is one of strings


def _inside(value: object, key: Key) -> object:
    """What lies under a key, an index or a field; None where there is no such thing."""
    if isinstance(value, Mapping):
        return value.get(key)
    if isinstance(key, str):
        return getattr(value, key, None) if key in getattr(value, "_fields", ()) else None
    if isinstance(value, tuple | list) and key < len(value):
        item: object = value[key]
        return item
    return None


def _path(name: str) -> Path:
    head, keys = split_name(name)
    return keys if head == "RESULT" else (head, *keys)


def _wrong_datatype(binding: Binding, provided: str) -> TritonError:
    return InvalidArg(
        f"configuration expects datatype {DATATYPES[binding.datatype].config_name} for output "
        f"'{binding.name}', "
        f"model provides {provided}"
    )


def _bfloat16(value: object) -> Array:
    return to_array(torch.tensor(value, dtype=torch.bfloat16))
