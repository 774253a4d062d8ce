"""Conversion of arguments that are not of their own type, as Triton's binding converts them.

Text may come as UTF-8 in `bytes`, as a BYTES tensor gives it; integers as anything with `__index__` or
`__int__`, such as numpy's, except floats; truth as anything with `__bool__` except None.
"""

from __future__ import annotations


def text(what: str, value: object) -> str:
    """A plain `str`.

    Raises:
        TypeError: it is no text; the message begins with `what`.
    """
    if type(value) is str:
        return value
    if isinstance(value, str):  # numpy's strings and members of enumerations cannot travel
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise TypeError(f"{what} must be UTF-8, got {bytes(value)!r}") from None
    raise TypeError(f"{what} must be a str, got {type(value).__name__}")


def integer(what: str, value: object, least: int, most: int) -> int:
    """A plain `int`.

    Raises:
        TypeError: it is no integer, or not from `least` to `most`; the message begins with `what`.
    """
    number = value if type(value) is int else _to_int(value)
    if number is None:
        raise TypeError(f"{what} must be an int, got {type(value).__name__}")
    if not least <= number <= most:
        raise TypeError(f"{what} must be from {least} to {most}, got {number}")
    return number


def flag(what: str, value: object) -> bool:
    """A plain `bool`.

    Raises:
        TypeError: it has no truth of its own; the message begins with `what`.
    """
    if value is None or not hasattr(type(value), "__bool__"):
        raise TypeError(f"{what} must be a bool, got {type(value).__name__}")
    return bool(value)


def _to_int(value: object) -> int | None:
    if isinstance(value, (float, str, bytes, bytearray)):
        return None
    for name in ("__index__", "__int__"):
        convert = getattr(type(value), name, None)
        if convert is not None:
            try:
                return int(convert(value))
            except TypeError:  # such as an array of several elements
                continue
    return None
