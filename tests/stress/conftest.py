"""What the tests under stress share."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def progress(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a line at once: these tests take minutes, and nobody likes to wait without a sign of life."""

    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}", end="", flush=True)

    return show
