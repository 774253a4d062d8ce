"""The repository index of a running server, and its changes as they happen."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from difflib import get_close_matches
from typing import Any, TypeVar

import click

from tritonpy.cli.http_client import HttpClient
from tritonpy.cli.table import format_table

Entry = dict[str, Any]  # Any: JSON
Result = TypeVar("Result")

INTERVAL_S = 0.2
_MOVING = ("LOADING", "UNLOADING")
_COLUMNS = ("name", "version", "state", "reason")
_MOST_NAMES = 20


def read_index(client: HttpClient, *, ready: bool = False) -> list[Entry]:
    """The repository index; where the server does not show it, the ready models, from the statistics."""
    body = json.dumps({"ready": True}).encode() if ready else b""
    answer = client.send("POST", "/v2/repository/index", body)
    if answer.status == 200:
        entries: list[Entry] = answer.json()
        return entries
    stats = client.get_json("/v2/models/stats")
    return [
        {"name": entry["name"], "version": entry["version"], "state": "READY"}
        for entry in stats["model_stats"]
    ]


def unknown_model_hint(client: HttpClient, name: str) -> str:
    """The models that the server knows, to follow an error about an unknown one; else ""."""
    try:
        return hint_of_names(name, (str(entry["name"]) for entry in read_index(client)))
    except click.ClickException:
        return ""


def hint_of_names(wanted: str, known: Iterable[str]) -> str:
    """A suggestion for a mistyped name, followed by all known names; "" if `wanted` is known."""
    names = sorted(set(known))
    if wanted in names:
        return ""
    if not names:
        return "; the server knows no models"
    close = get_close_matches(wanted, names)
    meant = f"; did you mean {' or '.join(close)}?" if close else "."
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f"{meant} The server knows {', '.join(names[:_MOST_NAMES])}{more}"


def index_table(entries: Sequence[Entry]) -> str:
    """Name, version, state and reason of each entry, one line each."""
    return format_table(_COLUMNS, [[str(entry.get(key, "")) for key in _COLUMNS] for entry in entries])


class IndexWatch:
    """Shows the changing states of models until they no longer change.

    On a terminal it is a table that is drawn anew in its place; elsewhere a line for each change.

    Args:
        client: asks the server.
        names: the models to show; none for all.
        is_terminal: whether lines can be drawn anew; None to find out.
        now_s, sleep: the clock.
    """

    def __init__(
        self,
        client: HttpClient,
        names: Sequence[str] = (),
        *,
        is_terminal: bool | None = None,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._names = frozenset(names)
        self._is_terminal = sys.stdout.isatty() if is_terminal is None else is_terminal
        self._now_s = now_s
        self._sleep = sleep
        self._start_s = now_s()
        self._shown: dict[tuple[str, str], tuple[str, str]] | None = None
        self._line_count = 0
        self._is_cut = False

    def run(self, is_done: Callable[[], bool] = lambda: True) -> None:
        """Show what changes; returns when `is_done` and no model is on its way to another state."""
        while True:
            was_done = is_done()  # first, so that what was done before shows in the index
            entries = self._read()
            self._show(entries)
            if was_done and not any(entry.get("state") in _MOVING for entry in entries):
                if self._is_cut:
                    self._draw(index_table(entries), is_last=True)
                return
            self._sleep(INTERVAL_S)

    def _read(self) -> list[Entry]:
        entries = read_index(self._client)
        return [entry for entry in entries if not self._names or entry["name"] in self._names]

    def _show(self, entries: Sequence[Entry]) -> None:
        states = {
            (entry["name"], str(entry.get("version", ""))): (entry.get("state", ""), entry.get("reason", ""))
            for entry in entries
        }
        if states == self._shown:
            return
        before = self._shown or {}
        if self._is_terminal:
            self._draw(index_table(entries))
        else:
            for key in sorted(states.keys() | before.keys()):
                if states.get(key) != before.get(key):
                    self._tell(key, *states.get(key, ("gone", "")))
        self._shown = states

    def _draw(self, table: str, *, is_last: bool = False) -> None:
        if self._line_count:
            click.echo(f"\x1b[{self._line_count}A\x1b[J", nl=False, color=True)  # up, and clear from there on
        size = shutil.get_terminal_size()
        lines = [line[: size.columns] for line in table.splitlines()]  # a line that wraps would be two
        most = max(3, size.lines - 1)  # what has left the screen at its top cannot be drawn anew
        self._is_cut = len(lines) > most and not is_last
        if self._is_cut:
            lines[most - 1 :] = [f"... and {len(lines) - most + 1} more"]
        click.echo("\n".join(lines))
        self._line_count = len(lines)

    def _tell(self, key: tuple[str, str], state: str, reason: str) -> None:
        name, version = key
        line = f"{self._now_s() - self._start_s:6.1f} s  {name}  {version or '-'}  {state or '-'}"
        click.echo(f"{line}  {reason.splitlines()[0]}" if reason else line)


def watch_action(url: str, timeout_s: float, names: Sequence[str], action: Callable[[], Result]) -> Result:
    """Show the states of models while `action` changes them; returns what it returns.

    Interrupted, nothing more is shown, and the server goes on with what it was asked.
    """
    results: list[Result] = []
    failures: list[Exception] = []

    def act() -> None:
        try:
            results.append(action())
        except Exception as exc:
            failures.append(exc)

    thread = threading.Thread(target=act, daemon=True)
    with closing(HttpClient(url, timeout_s)) as client:
        watch = IndexWatch(client, names)
        thread.start()
        watch.run(lambda: not thread.is_alive())
    if failures:
        raise failures[0]
    return results[0]
