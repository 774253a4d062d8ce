"""The plan of an image or environment: its plugins, the distributions that bring them, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritonpy.errors import InvalidArg, TritonError

from tritonpy_compose.catalog import CORE, Catalog
from tritonpy_compose.models import Need

_MOST_REASONS = 2


@dataclass(frozen=True, slots=True)
class Planned:
    """A plugin of the plan.

    Attributes:
        kind, name: of the plugin.
        distribution: which brings it.
        reasons: why it is there.
    """

    kind: str
    name: str
    distribution: str
    reasons: tuple[str, ...]

    @property
    def why(self) -> str:
        """The reasons on one line, the first two of many."""
        more = len(self.reasons) - _MOST_REASONS
        return "; ".join(self.reasons[:_MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")


def make_plan(needs: Iterable[Need], catalog: Catalog) -> list[Planned]:
    """The plugins that are needed, each once, with their distributions.

    A model that wants answers from a cache does not say from which: without another it is `local`.

    Raises:
        InvalidArg: there are no such plugins; a line for each.
    """
    needs = list(needs)
    caches = [need.name for need in needs if need.kind == "caches" and need.name] or ["local"]
    reasons: dict[tuple[str, str], list[str]] = {}
    for need in needs:
        for name in [need.name] if need.name else caches:
            reasons.setdefault((need.kind, name), []).append(need.reason)
    plan, problems = [], []
    for (kind, name), why in sorted(reasons.items()):
        try:
            plan.append(Planned(kind, name, catalog.distribution(kind, name), tuple(why)))
        except TritonError as error:
            problems.append(f"{why[0]}: {error.message}")
    if problems:
        raise InvalidArg("\n".join(problems))
    return plan


def distributions(plan: Sequence[Planned]) -> list[str]:
    """The distributions of a plan, the server first, each once."""
    return list(dict.fromkeys([CORE, *sorted({planned.distribution for planned in plan})]))
