"""Parameters of a configuration that say how a model's interpreters are made."""

from __future__ import annotations

from dataclasses import dataclass

from tritonpy.plugin import Model, parse_flag, parse_whole, usable_core_count, warn_of_unknown_parameters

THREADS, SIGNATURE, XNNPACK = "NUM_THREADS", "SIGNATURE_KEY", "USE_XNNPACK"
KNOWN = (THREADS, SIGNATURE, XNNPACK)
"""Parameters with an effect."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a model's interpreters; equal settings make equal interpreters.

    Attributes:
        thread_count: threads that one operator may use, the instance's own included.
        signature_key: chooses one of the signatures; "" takes the usual one.
        uses_xnnpack: operators that XNNPACK has are run by it.
    """

    thread_count: int = 1
    signature_key: str = ""
    uses_xnnpack: bool = True


def read_settings(model: Model) -> Settings:
    """Read a model's settings; unknown parameters are named in the log.

    Raises:
        InvalidArg: a parameter has a value that it cannot have.
    """
    warn_of_unknown_parameters(model, KNOWN)
    threads, xnnpack = model.parameter(THREADS), model.parameter(XNNPACK)
    count = parse_whole(threads, f"parameter '{THREADS}' of model '{model.name}'") if threads else 1
    return Settings(
        thread_count=count or usable_core_count(),
        signature_key=model.parameter(SIGNATURE),
        uses_xnnpack=parse_flag(xnnpack, f"parameter '{XNNPACK}' of model '{model.name}'")
        if xnnpack
        else True,
    )
