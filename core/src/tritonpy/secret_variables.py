"""Variables of the environment that hold the server's own secrets, which the code of models does not see."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

_OWN = re.compile(r"OTEL_EXPORTER_OTLP_(TRACES_)?HEADERS|TRITON[A-Z0-9_]*_(PASSWORD|SECRET|TOKEN)")
"""Names that response caches and exporters of traces take their rights from."""

_declared: set[str] = set()


def keep_secret(names: Iterable[str]) -> None:
    """Leave out these variables, too, from now on in this process."""
    _declared.update(names)


def without_secrets(environ: Mapping[str, str], passed: Container[str] = ()) -> dict[str, str]:
    """The variables that a process gets which runs the code of a model.

    Args:
        environ: those of the server.
        passed: names that are handed on all the same (`--worker-environment`); `*` stands for all.
    """
    if "*" in passed:
        return dict(environ)
    return {
        name: value
        for name, value in environ.items()
        if name in passed or not (name in _declared or _OWN.fullmatch(name))
    }
