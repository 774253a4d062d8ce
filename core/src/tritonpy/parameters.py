"""Values of parameters and settings, which arrive as text, and a warning for unknown parameters."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from difflib import get_close_matches

from tritonpy.errors import InvalidArg
from tritonpy.handles import Model

_FLAGS = {
    "true": True, "on": True, "1": True, "yes": True,
    "false": False, "off": False, "0": False, "no": False,
}  # fmt: skip

_STRATEGY = "TRITON_BATCH_STRATEGY_PATH"
_SERVERS = ("TRITON", "EXECUTION_ENV_PATH")  # how parameters begin that the server itself or its plugins read


def parse_flag(text: str, where: str) -> bool:
    """Read a truth value in any case.

    Args:
        text: true, on, yes or 1, or false, off, no or 0.
        where: names the parameter in the error.

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


def parse_whole(text: str, where: str, least: int = 0) -> int:
    """Read a whole number.

    Args:
        text: digits.
        where: names the parameter in the error.
        least: the smallest number that is allowed.

    Raises:
        InvalidArg: it is none, or smaller than `least`.
    """
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise InvalidArg(f"{where}: got '{text}', expected a whole number, {least} or more")
    return int(text)


def warn_of_unknown_parameters(
    model: Model, known: Sequence[str], without_effect: Collection[str] = ()
) -> None:
    """Log a warning for each parameter of a model that its backend does not read.

    Parameters that begin with `TRITON` belong to the server. A model with a batching strategy may have
    parameters of that strategy, and one with operators of a plugin those of that plugin: of these only the
    ones that look like a known one are named.

    Args:
        model: whose `parameters` are looked at.
        known: what the backend reads.
        without_effect: what Triton's backend reads, or once read, and this one has no use for.
    """
    log = logging.getLogger(f"tritonpy.backend.{model.backend.name}")
    parameters = model.config.get("parameters", {})
    for key in parameters:
        if key in known or key.startswith(_SERVERS):
            continue
        if key in without_effect:
            log.warning("model '%s': parameter '%s' has no effect", model.name, key)
            continue
        close = get_close_matches(key.upper(), known, 1, 0.75)
        if close:
            log.warning(
                "model '%s': parameter '%s' is not known, did you mean '%s'?", model.name, key, close[0]
            )
        elif _STRATEGY not in parameters and not model.plugin_op_libraries:
            log.warning("model '%s': parameter '%s' is not known", model.name, key)
