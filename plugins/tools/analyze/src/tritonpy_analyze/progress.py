"""How far a search is and how good the best is, on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Say(Protocol):
    """Shows what goes on."""

    def __call__(self, line: str, done: int | None = None) -> None:
        """Show a line in the place of the one before, and how many trials are done."""


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Say]:
    """Show a bar while something goes on, if standard error is a terminal.

    Args:
        title: of it.
        total: trials that there may be; None where nobody knows.
    """
    if not sys.stderr.isatty():
        yield lambda line, done=None: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
    from rich.progress import TimeElapsedColumn as Elapsed

    console = Console(stderr=True)
    counts = (BarColumn(20), MofNCompleteColumn()) if total else ()
    columns = (SpinnerColumn(), *counts, Elapsed(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(escape(title), total=total)

        def say(line: str, done: int | None = None) -> None:
            room = max(20, console.width - 50)
            bar.update(task, description=escape(line[:room]))
            if done is not None:
                bar.update(task, completed=done)

        yield say
