"""The search space: settings of models, and of the load, each with the values that it may have."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tritonpy.errors import InvalidArg

Value = int | float | str | None | tuple[int, ...]
"""Of a setting; None leaves it as the model's configuration has it, a tuple is a list of sizes."""
Point = tuple[int, ...]
"""A place in a space: for each dimension the index of a value."""
Choice = Mapping[str, Value]
"""The values of a point, by the names of dimensions."""

LOAD_SETTINGS = ("concurrency", "rate")
"""Names of dimensions that are no configuration: requests at once, or requests a second."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One setting.

    Attributes:
        name: `MODEL.SETTING`, see `tritonpy_analyze.overrides`; or one of `LOAD_SETTINGS`.
        values: in an order in which neighbours are alike.
    """

    name: str
    values: tuple[Value, ...]


class Space:
    """All combinations of the values of some dimensions.

    Raises:
        InvalidArg: a dimension has no values, has one twice, or is there twice.
    """

    def __init__(self, dimensions: Iterable[Dimension]) -> None:
        self.dimensions = tuple(dimensions)
        for dimension in self.dimensions:
            if not dimension.values:
                raise InvalidArg(f"'{dimension.name}' has no values to try")
            if len(set(dimension.values)) < len(dimension.values):
                raise InvalidArg(f"'{dimension.name}' has a value twice: {shown_values(dimension.values)}")
        names = [dimension.name for dimension in self.dimensions]
        if twice := {name for name in names if names.count(name) > 1}:
            raise InvalidArg(f"'{min(twice)}' is there twice; give all of its values at once")

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(len(dimension.values) for dimension in self.dimensions)

    def choice(self, point: Point) -> dict[str, Value]:
        """The values of a point."""
        pairs = zip(self.dimensions, point, strict=True)
        return {dimension.name: dimension.values[index] for dimension, index in pairs}

    def point(self, choice: Choice) -> Point:
        """The point with these values; for a missing or unknown one the nearest number, or the first."""
        return tuple(_index(dimension, choice.get(dimension.name)) for dimension in self.dimensions)

    def points(self) -> Iterator[Point]:
        """All points, the last dimension running fastest."""
        counts = [len(dimension.values) for dimension in self.dimensions]
        for number in range(self.size):
            point = []
            for count in reversed(counts):
                number, index = divmod(number, count)
                point.append(index)
            yield tuple(reversed(point))


def _index(dimension: Dimension, value: Value) -> int:
    if value in dimension.values:
        return dimension.values.index(value)
    if isinstance(value, int | float):
        numbers = [
            (abs(each - value), index)
            for index, each in enumerate(dimension.values)
            if isinstance(each, int | float)
        ]
        if numbers:
            return min(numbers)[1]
    return 0


_RANGE = re.compile(r"(\d+):(\d+)(?::(x?)(\d+))?")


def parse_values(text: str) -> tuple[Value, ...]:
    """Values as text: `1,2,4`, a range `1:8`, `0:1000:250` with a step, `1:64:x2` with a factor.

    Sizes that belong together are joined by `+`: `none,4+8` is no preferred size, or the two.

    Raises:
        InvalidArg: a range without end, or nothing at all.
    """
    values: list[Value] = []
    for part in text.split(","):
        if match := _RANGE.fullmatch(part.strip()):
            values += _range(part, int(match[1]), int(match[2]), match[3] == "x", int(match[4] or 1))
        else:
            values.append(_value(part.strip()))
    if not values or values == [""]:
        raise InvalidArg(f"'{text}': expected values, such as 1,2,4 or 1:64:x2")
    return tuple(values)


def _range(text: str, first: int, last: int, is_factor: bool, step: int) -> Iterator[int]:
    if first > last or step < 1 or (is_factor and (step < 2 or first < 1)):
        raise InvalidArg(f"'{text}' is no range; expected FIRST:LAST, FIRST:LAST:STEP or FIRST:LAST:xFACTOR")
    while first <= last:
        yield first
        first = first * step if is_factor else first + step


def _value(text: str) -> Value:
    if text.lower() in ("none", "null", "~"):
        return None
    if re.fullmatch(r"\d+(\+\d+)+", text):
        return tuple(map(int, text.split("+")))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def values_of(given: object, name: str) -> tuple[Value, ...]:
    """Values from a document: text as `parse_values` reads it, or a list of plain values and lists of sizes.

    Raises:
        InvalidArg: it is something else.
    """
    if isinstance(given, str):
        return parse_values(given)
    if isinstance(given, bool) or not isinstance(given, list | int | float):
        raise InvalidArg(f"'{name}': got {given!r}, expected a list of values or text such as '1:64:x2'")
    return tuple(_plain(each, name) for each in (given if isinstance(given, list) else [given]))


def _plain(value: object, name: str) -> Value:
    if isinstance(value, list) and value and all(type(size) is int for size in value):
        return tuple(value)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, int | float | str):
        return value
    raise InvalidArg(f"'{name}': got {value!r}, expected a number, text, null or a list of sizes")


def shown_value(value: Value) -> str:
    """A value as `parse_values` reads it."""
    if value is None:
        return "none"
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def shown_values(values: Sequence[Value]) -> str:
    """Values as `parse_values` reads them."""
    return ",".join(map(shown_value, values))


def shown_choice(choice: Choice, *, without_model: bool) -> str:
    """A choice on one line."""
    parts = []
    for name, value in choice.items():
        setting = name.partition(".")[2]
        parts.append(f"{setting if setting and without_model else name}={shown_value(value)}")
    return " ".join(parts)
