"""What holds for the tests of all distributions."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Let interrupts reach what tests start: a run in the background ignores them, as its children would."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
