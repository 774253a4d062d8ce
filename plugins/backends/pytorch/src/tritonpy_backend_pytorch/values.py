"""Values that arrive as text in parameters and settings."""

from __future__ import annotations

from tritonpy.plugin import InvalidArg

_FLAGS = {
    "true": True, "on": True, "1": True, "yes": True,
    "false": False, "off": False, "0": False, "no": False,
}  # fmt: skip


def parse_flag(text: str, where: str) -> bool:
    """Read a truth value in any case; `where` names the parameter in the error.

    Raises:
        InvalidArg: it is none, in Triton's words.
    """
    flag = _FLAGS.get(text.lower())
    if flag is None:
        raise InvalidArg(
            f"failed to convert '{text}' to boolean: {where}, expected true, on, yes or 1, or false, "
            "off, no or 0"
        )
    return flag


def parse_count(text: str, where: str) -> int:
    """Read a whole number from 1; `where` names the parameter in the error.

    Raises:
        InvalidArg: it is none.
    """
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidArg(f"{where}: got '{text}', expected a whole number, 1 or more")
    return int(text)
