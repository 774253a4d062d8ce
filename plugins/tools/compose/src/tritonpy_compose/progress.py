"""What is being done and for how long, on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]
"""Shows a line of what is going on, in the place of the one before."""


@contextmanager
def step(title: str) -> Iterator[Say]:
    """Show a title and the time while something goes on, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda line: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(escape(title), total=None)

        def say(line: str) -> None:
            room = max(20, console.width - len(title) - 15)
            progress.update(task, description=f"{escape(title)} [dim]{escape(line.strip()[:room])}[/dim]")

        yield say
