"""Rules that plugins keep to, and what a check says of one that does not.

All kits report in the same four lines: what the plugin did, what its interface says, what to do, and the page
to read.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from tritonpy_sdk.testing.patience import DEADLINE_S

CHECK_LIMIT_S = DEADLINE_S
"""Seconds after which a check of a kit says that the plugin does not come back."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that an interface asks of plugins.

    Attributes:
        says: what the interface says, without a full stop.
        remedy: what to do about a plugin that breaks it, in one sentence without a full stop.
        page: where to read about it, below `docs/`.
    """

    says: str
    remedy: str
    page: str


class PluginFault(AssertionError):
    """A plugin breaks a rule of its kind.

    Attributes:
        rule: the one it breaks.
        did: what it did.
    """

    def __init__(self, rule: Rule, did: str) -> None:
        super().__init__(rule, did)
        self.rule = rule
        self.did = did

    def __str__(self) -> str:
        return (
            f"the plugin: {self.did}\n"
            f"the interface: {self.rule.says}\n"
            f"to do: {self.rule.remedy}\n"
            f"read: docs/{self.rule.page}"
        )


def rule(
    says: str, remedy: str, page: str, *, is_bounded: bool = True
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a check of a kit with the rule that it is about.

    Whatever the check raises becomes a `PluginFault`: a failed assertion says what the plugin did, and so
    does an exception of its own. A check that takes longer than `CHECK_LIMIT_S` is one, too, except in a
    debugger.

    Args:
        says: see `Rule`.
        remedy: see `Rule`.
        page: see `Rule`.
        is_bounded: `CHECK_LIMIT_S` holds. False for a check that waits for processes, which have limits of
            their own.
    """
    broken = Rule(says, remedy, page)

    def mark(check: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(check)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            __tracebackhide__ = True
            try:
                if not is_bounded or sys.gettrace() is not None:
                    return check(*args, **kwargs)
                return _within_limit(lambda: check(*args, **kwargs))
            except PluginFault:
                raise
            except Exception as exc:
                raise PluginFault(broken, what_it_did(exc)) from exc

        checked.rule = broken  # type: ignore[attr-defined]
        return checked

    return mark


def _within_limit(act: Callable[[], T]) -> T:
    """Call on a thread that can be left alone, because a plugin that hangs must not hang the tests."""
    outcome: list[T] = []
    error: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append(context.run(act))
        except BaseException as exc:  # skips too: raised again below, where pytest sees them
            error.append(exc)

    thread = threading.Thread(target=run, name="check of a plugin", daemon=True)
    thread.start()
    thread.join(CHECK_LIMIT_S)
    if thread.is_alive():
        raise AssertionError(f"did not come back within {CHECK_LIMIT_S:g} seconds")
    if error:
        raise error.pop()
    return outcome.pop()


def what_it_did(error: Exception) -> str:
    """What an exception out of a check says of the plugin."""
    if isinstance(error, AssertionError):
        return str(error) or "a check failed without a word"
    if isinstance(error, ExceptionGroup):
        return "; ".join(what_it_did(each) for each in error.exceptions)
    return f"raised {type(error).__name__}: {error}" if str(error) else f"raised {type(error).__name__}"


def rules_of(kit: type) -> Iterator[tuple[str, Rule]]:
    """The checks of a kit that have rules, in the order in which they are written down."""
    for cls in reversed(kit.__mro__):
        for name, check in vars(cls).items():
            if name.startswith("test_") and isinstance(found := getattr(check, "rule", None), Rule):
                yield name, found
