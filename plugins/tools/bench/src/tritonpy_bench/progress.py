"""One line about what is being measured, on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]
"""Shows a line in the place of the one before."""


@contextmanager
def live_line(title: str) -> Iterator[Say]:
    """Show a line and the time while something goes on, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda line: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(escape(title), total=None)
        yield lambda line: progress.update(task, description=escape(f"{title}  {line}"))
