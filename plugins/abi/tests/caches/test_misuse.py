"""A cache that does what no cache should is told what is wrong, and does no harm.

What the real server says in the same cases is compared in `tests/shared_objects/test_caches.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy.plugin import AlreadyExists, Internal, InvalidArg, Unavailable
from tritonpy_abi.caches import open_cache as open_shared
from tritonpy_abi.caches.failures import CacheFailure
from tritonpy_sdk.testing import open_cache

NO_MEMORY = "Invalid argument: buffer 0 of the entry has no memory: give it some with "
WRONG_COUNT = "Internal: Expected number of responses in cache does not match. Expected: 1, received: "

INSERTIONS = [
    [
        "count without a place for it: Invalid argument: entry or count was nullptr",
        "count of nothing: Invalid argument: entry or count was nullptr",
        "get 99: Invalid argument: index was greater than count",
        "set 1: Invalid argument: index was greater than count",
    ],
    ["copy without allocator: Invalid argument: allocator or entry was nullptr"],
    [f"copy what was not set: {NO_MEMORY}TRITONCACHE_CacheEntrySetBuffer"],
    ["copy: good", "copy again: good"],
    ["copy smaller: Internal: Serialized buffer size does not match. Expected: 100, received: 99"],
    ["copy larger: Internal: Serialized buffer size does not match. Expected: 100, received: 101"],
    [
        "set on a GPU: Invalid argument: Only buffers in CPU memory are allowed in cache currently",
        f"copy to a GPU: {NO_MEMORY}TRITONCACHE_CacheEntrySetBuffer",
    ],
    [f"copy to too many: {WRONG_COUNT}2"],
    ["copy to pinned: good"],
    ["all is tried"],
]
LOOKUPS: list[list[str]] = [
    ["get 0: Invalid argument: index was greater than count"],
    [f"copy nothing: {WRONG_COUNT}0"],
    [],
    ["copy: good"],
    ["answer: Unavailable: only trying"],
    ["add on a GPU: Invalid argument: Only buffers in CPU memory are allowed in cache currently"],
    ["add nothing: Invalid argument: Buffer byte size was zero"],
    ["add pinned: good"],
    [f"answer: {WRONG_COUNT}2"],
    ["copy: good"],
    ["add without copy: good"],
    ["all is tried"],
]
WITHOUT_COPY = "TRITONCACHE_CacheLookup succeeded without a call of TRITONCACHE_Copy that did"
ENTRY = bytes(range(100))
# What comes of each lookup: an entry, nothing, or an error.
OUTCOMES = [
    None,
    None,
    (Internal, WITHOUT_COPY),
    ENTRY,
    (Unavailable, "only trying"),
    (Internal, WRONG_COUNT.removeprefix("Internal: ")),
    (Internal, WRONG_COUNT.removeprefix("Internal: ")),
    ENTRY,
    (Internal, WRONG_COUNT.removeprefix("Internal: ")),
    ENTRY,
    (Internal, WITHOUT_COPY),
    None,
]


def test_wrong_calls_are_answered_with_errors(compiled: Callable[..., Path], tmp_path: Path) -> None:
    report = tmp_path / "report"
    tries = open_shared(str(compiled("caches/tries.c")))
    with open_cache(tries, {"report": str(report), "reckless": "1"}) as cache:
        for _ in INSERTIONS[:-1]:
            with pytest.raises(CacheFailure, match="Unavailable: only trying"):
                cache.insert("key", ENTRY)
        with pytest.raises(AlreadyExists):
            cache.insert("key", ENTRY)
        for outcome in OUTCOMES:
            if isinstance(outcome, tuple):
                error, text = outcome
                with pytest.raises(error, match=text):
                    cache.lookup("key")
            else:
                assert cache.lookup("key") == outcome

    beginning, *tried = report.read_text().split("-- ")
    assert "version 0.1" in beginning.splitlines()
    assert "version without a place for it: Invalid argument" in beginning
    expected = [f"insertion {number}" for number in range(len(INSERTIONS))]
    expected += [f"lookup {number}" for number in range(len(LOOKUPS))]
    for name, lines, said in zip(expected, INSERTIONS + LOOKUPS, tried, strict=True):
        assert said.splitlines()[0] == name
        assert set(lines) <= set(said.splitlines()), name
    assert tried[-1].splitlines()[-1] == "finalize: ours"


def test_memory_that_a_lookup_takes_back_is_not_read(compiled: Callable[..., Path]) -> None:
    library = open_shared(str(compiled("caches/throwing.cc")))

    with open_cache(library, {"memory": "none"}) as cache:
        for _ in range(2):
            with pytest.raises(InvalidArg, match="buffer 0 of the entry has no memory"):
                cache.lookup("key")


def test_an_exception_may_be_without_a_text(compiled: Callable[..., Path]) -> None:
    library = open_shared(str(compiled("caches/throwing.cc")))

    with (
        open_cache(library, {"where": "Lookup", "what": "nothing"}) as cache,
        pytest.raises(Internal, match=r"TRITONCACHE_CacheLookup threw a C\+\+ exception: it says nothing"),
    ):
        cache.lookup("key")
