"""Sizes that a model's file asks for and no configuration can say, checked before each call."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tritonpy.plugin import Array, InvalidArg

from tritonpy_backend_pytorch.tensor_info import TensorInfo

UNKNOWN = "?"
"""How the name of a size begins of which nobody knows whether it is that of another dimension, too."""

_LINEAR = re.compile(
    r"(?:(?P<factor>[0-9]+)\*)?(?P<base>[A-Za-z_]\w*)(?: (?P<offset>[+-] [0-9]+))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class LinearSize:
    """A size that is so many times another, and some more: `4*b + 1`.

    Attributes:
        base: name of the other size.
        factor: how often it is taken.
        offset: what is added.
    """

    base: str
    factor: int = 1
    offset: int = 0

    @property
    def is_plain(self) -> bool:
        """It is the other size itself."""
        return (self.factor, self.offset) == (1, 0)

    def __str__(self) -> str:
        factor = "n" if self.factor == 1 else f"{self.factor}*n"
        return f"{factor}{self.offset:+d}" if self.offset else factor


def read_size(symbol: str) -> LinearSize | None:
    """Read PyTorch's words for a size; None for one that is computed in another way."""
    match = _LINEAR.fullmatch(symbol)
    if match is None:
        return None
    return LinearSize(
        match["base"], int(match["factor"] or 1), int((match["offset"] or "0").replace(" ", ""))
    )


def smallest_size(symbol: str, smallest: int) -> int:
    """The smallest size that a model asks for; 0 where its sample alone asks.

    PyTorch takes sizes of 0 and 1 for special and leaves them out of all bounds; the code holds for them.
    """
    size = read_size(symbol) or LinearSize(symbol)
    return smallest if smallest > 2 * size.factor + size.offset else 0


class ShapeRules:
    """Bounds of dimensions of any size, dimensions that are equal, and those that follow from others.

    A compiled model checks no shapes by itself, and reads behind the end of a tensor that is too small.

    Args:
        model_name: for errors.
        inputs: what the file says of each input, by its name in the configuration.
    """

    def __init__(self, model_name: str, inputs: Mapping[str, TensorInfo]) -> None:
        self._model_name = model_name
        sizes = {
            (name, axis): size
            for name, info in inputs.items()
            for axis, symbol in enumerate(info.symbols)
            if symbol and (size := read_size(symbol) or LinearSize(symbol))
        }
        uses = Counter(size.base for size in sizes.values())
        self._rules = [
            (name, axis, size, uses[size.base] > 1, *inputs[name].bounds[axis])
            for (name, axis), size in sizes.items()
            if uses[size.base] > 1 or not size.is_plain or inputs[name].bounds[axis] != (0, -1)
        ]

    def check(self, feeds: Mapping[str, Array]) -> None:
        """Compare the arrays of one call.

        Raises:
            InvalidArg: a size is out of its bounds, or differs from the one that the others ask for.
        """
        known: dict[str, tuple[int, str]] = {}
        for name, axis, size, is_shared, smallest, largest in self._rules:
            given = feeds[name].shape[axis]
            if given < smallest or (largest >= 0 and given > largest):
                bounds = f"at least {smallest}" if largest < 0 else f"{smallest} to {largest}"
                raise self._wrong(name, given, axis, f"the model takes {bounds}")
            base, rest = divmod(given - size.offset, size.factor)
            if rest or base < 0:
                raise self._wrong(name, given, axis, f"the model takes sizes of the form {size}")
            if is_shared:
                first, where = known.setdefault(size.base, (base, name))
                if first != base:
                    relation = "as in" if size.is_plain else "which follows from"
                    wanted = f"expected {first * size.factor + size.offset} {relation} input '{where}'"
                    raise self._wrong(name, given, axis, wanted)

    def _wrong(self, name: str, given: int, axis: int, expected: str) -> InvalidArg:
        return InvalidArg(
            f"input '{name}' of model '{self._model_name}' has size {given} in dimension {axis}, {expected}"
        )
