"""Values that arrive as text in parameters and settings."""

from __future__ import annotations

from tritonpy.plugin import InvalidArg

_FLAGS = {"1": True, "true": True, "0": False, "false": False}


def parse_flag(text: str, where: str) -> bool:
    """Read 0, 1, true or false in any case; `where` names the parameter in the error."""
    flag = _FLAGS.get(text.lower())
    if flag is None:
        raise InvalidArg(f"{where}: got '{text}', expected 0, 1, true or false")
    return flag
