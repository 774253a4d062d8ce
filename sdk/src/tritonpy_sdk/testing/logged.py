"""Exceptions for faults that a server only logs: a test should fail there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Collector(logging.Handler):
    """Keeps the exceptions that are logged."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], Exception):
            self.errors.append(record.exc_info[1])


@contextmanager
def raising_what_is_logged(logger: logging.Logger, what: str) -> Iterator[None]:
    """Raise at the end what was logged meanwhile.

    Args:
        logger: where a server writes it.
        what: what failed, for the error.

    Raises:
        ExceptionGroup: exceptions were logged.
    """
    collector = _Collector()
    logger.addHandler(collector)
    try:
        yield
    finally:
        logger.removeHandler(collector)
    if collector.errors:
        raise ExceptionGroup(f"{what} failed where a server goes on and logs it", collector.errors)
