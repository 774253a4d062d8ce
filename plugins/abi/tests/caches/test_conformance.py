"""Shared objects keep to the rules of all caches, and the kit names those that do not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tritonpy_sdk.testing import CacheConformance, PluginFault
from tritonpy_sdk.testing.rules import rules_of

from ..conftest import Compiled

CHECKS = [name for name, _ in rules_of(CacheConformance)]


def suite(path: Path, settings: Mapping[str, str], room: int | None = None) -> CacheConformance:
    class Suite(CacheConformance, cache=path, settings=settings, room=room): ...

    return Suite()


def test_a_right_shared_object_passes(compiled: Compiled, library: Path) -> None:
    cache = suite(compiled("caches/table.c"), {"size": "1048576"}, 1048576)
    passed = []
    for check in CHECKS:
        try:
            getattr(cache, check)()
            passed.append(check)
        except pytest.skip.Exception:
            pass

    assert len(passed) >= len(CHECKS) - 4


@pytest.mark.parametrize(
    ("where", "fault", "check", "did"),
    [
        ("CacheLookup", "error", "an_unknown_key_is_a_miss", "CacheLookup had no wish to"),
        ("CacheFinalize", "error", "it_begins_and_ends_with_its_server", "CacheFinalize had no wish to"),
        ("no", "no", "a_hit_is_what_was_inserted", "does not have an output BOOL[2, 3]"),
    ],
)
def test_a_wrong_shared_object_is_named(
    where: str, fault: str, check: str, did: str, compiled: Compiled, library: Path
) -> None:
    wrong = suite(compiled("caches/faulty.cc"), {"where": where, "fault": fault})

    with pytest.raises(PluginFault) as caught:
        getattr(wrong, f"test_{check}")()

    assert did in caught.value.did
