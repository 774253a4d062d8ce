"""The arguments of a model's call, made from the arrays of a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tritonpy.plugin import Array, Internal, InvalidArg

from tritonpy_backend_pytorch.argument import CONTAINERS, NUMBERS, Argument, Form
from tritonpy_backend_pytorch.arrays import UNDECODABLE, to_tensor
from tritonpy_backend_pytorch.names import Path

Feeds = Mapping[str, Array]
Call = tuple[Sequence[object], Mapping[str, Any]]  # Any: whatever the model takes
"""Positional arguments, and those by name."""

_MISSING = object()


class Feeder(ABC):
    """Makes the arguments of calls; one for a model, used by all its instances at once."""

    @abstractmethod
    def call(self, feeds: Feeds) -> Call:
        """The arguments of one call.

        Raises:
            TritonError: a value cannot be given to the model.
        """


class TensorFeeder(Feeder):
    """Gives tensors one after the other: what most models take, and the quickest.

    Args:
        inputs: name and datatype of each, in the order of the call.
        copies: the model writes to its inputs, so it gets copies.
    """

    def __init__(self, inputs: Sequence[tuple[str, str]], copies: bool) -> None:
        self._inputs = tuple(inputs)
        self._copies = copies

    def call(self, feeds: Feeds) -> Call:
        if self._copies:
            return [to_tensor(feeds[name], datatype).clone() for name, datatype in self._inputs], {}
        return [to_tensor(feeds[name], datatype) for name, datatype in self._inputs], {}


class TreeFeeder(Feeder):
    """Gives tensors inside of tuples, lists and dictionaries whose form is known.

    Args:
        inputs: for each, the index of its value, its name and its datatype.
        values: all values of the call; those of inputs are replaced.
        build: makes the arguments of the values.
        copies: the model writes to its inputs, so it gets copies.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[int, str, str]],
        values: Sequence[object],
        build: Callable[[list[object]], Call],
        copies: bool,
    ) -> None:
        self._inputs = tuple(inputs)
        self._values = list(values)
        self._build = build
        self._copies = copies

    def call(self, feeds: Feeds) -> Call:
        values = self._values.copy()
        for index, name, datatype in self._inputs:
            tensor = to_tensor(feeds[name], datatype)
            values[index] = tensor.clone() if self._copies else tensor
        return self._build(values)


class ArgumentFeeder(Feeder):
    """Gives any kind of value by the arguments of the model.

    Args:
        arguments: of the model, in order.
        placed: the place of each input.
        datatypes: of each input.
        model_name: for errors.
        copies: the model writes to its inputs, so it gets copies.

    Raises:
        TritonError: an input is of a datatype that its argument cannot be made of.
    """

    def __init__(
        self,
        arguments: Sequence[Argument],
        placed: Mapping[str, Path],
        datatypes: Mapping[str, str],
        model_name: str,
        copies: bool,
    ) -> None:
        self._model_name = model_name
        self._copies = copies
        self._arguments = [
            (
                argument.name,
                argument.is_keyword,
                argument.takes_none and not argument.has_default,
                self._maker(argument, placed, datatypes),
            )
            for argument in arguments
            if any(path[0] == argument.name for path in placed.values())
        ]
        self._fed = [argument.name for argument in arguments]

    def call(self, feeds: Feeds) -> Call:
        values: list[object] = []
        named: dict[str, object] = {}
        for index, (name, is_keyword, takes_none, make) in enumerate(self._arguments):
            value = make(feeds)
            if value is _MISSING:
                if not takes_none:
                    continue
                value = None
            # Behind one that is left out, places count no more.
            if is_keyword or len(values) < index or self._fed[index] != name:
                named[name] = value
            else:
                values.append(value)
        return values, named

    def _maker(
        self, argument: Argument, placed: Mapping[str, Path], datatypes: Mapping[str, str]
    ) -> Callable[[Feeds], object]:
        inside = {name: path[1:] for name, path in placed.items() if path[0] == argument.name}
        if argument.form in CONTAINERS:
            return partial(self._container, argument.form, inside, datatypes)
        (name,) = inside
        datatype = datatypes[name]
        if (datatype == "BYTES") != (argument.form in (Form.STRINGS, Form.TEXTS)):
            raise InvalidArg(
                f"unable to load model '{self._model_name}', configuration expects datatype "
                f"TYPE_{'STRING' if datatype == 'BYTES' else datatype} for input '{name}', model provides "
                f"'{argument.type_name}'"
            )
        if argument.form is Form.STRINGS:
            return partial(self._strings, name)
        if argument.form is Form.TEXTS:
            return partial(self._texts, name)
        if argument.form in NUMBERS:
            return partial(self._number, argument, name)
        return partial(self._tensor, name, datatype)

    def _tensor(self, name: str, datatype: str, feeds: Feeds) -> object:
        array = feeds.get(name)
        if array is None:
            return _MISSING
        tensor = to_tensor(array, datatype)
        return tensor.clone() if self._copies else tensor

    def _texts(self, name: str, feeds: Feeds) -> object:
        strings = self._strings(name, feeds)
        if not isinstance(strings, list):
            return strings
        return [string.decode(errors=UNDECODABLE) for string in strings]

    def _strings(self, name: str, feeds: Feeds) -> object:
        array = feeds.get(name)
        if array is None:
            return _MISSING
        if any(size != 1 for size in array.shape[1:]):
            raise Internal(
                f"Triton only supports 1 dimensional List of String as input for '{name}' for model "
                f"'{self._model_name}'"
            )
        return array.reshape(-1).tolist()  # `bytes`, which need not be UTF-8

    def _number(self, argument: Argument, name: str, feeds: Feeds) -> object:
        array = feeds.get(name)
        if array is None:
            return _MISSING
        values = array.reshape(-1)
        # Requests of one batch may ask for one number only; those of others are tried alone.
        if values.size == 0 or (values.size > 1 and (values != values[0]).any()):
            raise InvalidArg(
                f"input '{name}' of model '{self._model_name}' is argument '{argument.name}: "
                f"{argument.type_name}', "
                f"one number for the whole call; got {values.size} that differ"
            )
        value = values[0].item()
        if argument.form is Form.BOOL:
            return bool(value)
        return int(value) if argument.form is Form.INT else float(value)

    def _container(
        self, form: Form, inside: Mapping[str, Path], datatypes: Mapping[str, str], feeds: Feeds
    ) -> object:
        given = {
            path: tensor
            for name, path in inside.items()
            if (tensor := self._tensor(name, datatypes[name], feeds)) is not _MISSING
        }
        if not given:
            return _MISSING
        return _nest(form, given)


def _nest(form: Form, values: Mapping[Path, object]) -> object:
    """Put values where their keys say; containers inside of containers are lists where keys are numbers."""
    children: dict[object, dict[Path, object]] = {}
    for path, value in values.items():
        children.setdefault(path[0], {})[path[1:]] = value
    built = {key: below[()] if () in below else _nest(Form.OTHER, below) for key, below in children.items()}
    if form is Form.DICT or (form is Form.OTHER and not all(isinstance(key, int) for key in built)):
        return built
    indices = sorted(built)  # type: ignore[type-var]  # all are numbers here
    if indices != list(range(len(indices))):
        raise InvalidArg(
            f"the request brings values {', '.join(map(str, indices))} of a list; optional ones may be left "
            "out at its end only"
        )
    items = [built[key] for key in indices]
    return tuple(items) if form is Form.TUPLE else items


def tensors_of(module: torch.nn.Module) -> frozenset[int]:
    """Addresses of the memory of a module's parameters and buffers."""
    tensors = [*module.parameters(), *module.buffers()]
    return frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors) - {0}
