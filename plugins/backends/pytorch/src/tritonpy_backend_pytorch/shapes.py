"""Sizes that a model's file asks for and no configuration can say, checked before each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tritonpy.plugin import Array, InvalidArg

from tritonpy_backend_pytorch.tensor_info import TensorInfo


class ShapeRules:
    """Bounds of dimensions of any size, and dimensions that are equal.

    A compiled model checks no shapes by itself, and reads behind the end of a tensor that is too small.

    Args:
        model_name: for errors.
        inputs: what the file says of each input, by its name in the configuration.
    """

    def __init__(self, model_name: str, inputs: Mapping[str, TensorInfo]) -> None:
        self._model_name = model_name
        uses = Counter(symbol for info in inputs.values() for symbol in info.symbols if symbol)
        self._rules = [
            (name, axis, symbol if uses[symbol] > 1 else "", *info.bounds[axis])
            for name, info in inputs.items()
            for axis, symbol in enumerate(info.symbols)
            if symbol and (uses[symbol] > 1 or info.bounds[axis] != (0, -1))
        ]

    def check(self, feeds: Mapping[str, Array]) -> None:
        """Compare the arrays of one call.

        Raises:
            InvalidArg: a size is out of its bounds, or differs from one that it has to equal.
        """
        sizes: dict[str, tuple[int, str]] = {}
        for name, axis, symbol, smallest, largest in self._rules:
            size = feeds[name].shape[axis]
            if size < smallest or (largest >= 0 and size > largest):
                bounds = f"at least {smallest}" if largest < 0 else f"{smallest} to {largest}"
                raise InvalidArg(
                    f"input '{name}' of model '{self._model_name}' has size {size} in dimension {axis}, "
                    f"the model takes {bounds}"
                )
            if symbol:
                first, where = sizes.setdefault(symbol, (size, name))
                if first != size:
                    raise InvalidArg(
                        f"input '{name}' of model '{self._model_name}' has size {size} in dimension {axis}, "
                        f"expected {first} as in input '{where}'"
                    )
