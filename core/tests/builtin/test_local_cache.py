from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.builtin import local_cache
from tritonpy.builtin.local_cache import LocalCache
from tritonpy.handles import Cache
from tritonpy.plugin import InvalidArg

KEY = "model:1:{:032x}"
ENTRY = sys.getsizeof(KEY.format(0)) + sys.getsizeof(b"") + 128
"""What an empty entry costs."""


def opened(**settings: str) -> Cache:
    cache = Cache(settings, name="local")
    local_cache.cache_initialize(cache)
    return cache


def test_what_was_used_last_stays() -> None:
    cache = LocalCache(3 * ENTRY)
    for number in range(3):
        cache.add(KEY.format(number), b"")
    cache.get(KEY.format(0))
    cache.add(KEY.format(3), b"")

    assert [cache.get(KEY.format(number)) for number in range(4)] == [b"", None, b"", b""]
    assert (len(cache), cache.eviction_count, cache.used) == (3, 1, 3 * ENTRY)


def test_an_entry_that_is_there_stays_as_it_is() -> None:
    cache = LocalCache(10 * ENTRY)
    cache.add("k", b"first")
    cache.add("k", b"second")

    assert cache.get("k") == b"first"
    assert len(cache) == 1


def test_an_entry_larger_than_the_cache_is_refused_in_tritons_words_and_costs_nobody_his_place() -> None:
    cache = LocalCache(2 * ENTRY)
    cache.add(KEY.format(0), b"")

    with pytest.raises(InvalidArg) as error:
        cache.add(KEY.format(1), bytes(1000))

    size = ENTRY + 1000
    assert error.value.message == f"Requested byte_size: {size} is greater than total cache size: {2 * ENTRY}"
    assert cache.get(KEY.format(0)) == b""


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 700)), max_size=60),
    st.integers(1, 6 * ENTRY),
)
def test_it_never_holds_more_than_it_may(steps: list[tuple[bool, int, int]], byte_size: int) -> None:
    cache = LocalCache(byte_size)
    model: dict[str, bytes] = {}  # in order of use
    for is_lookup, number, size in steps:
        key = KEY.format(number)
        if is_lookup:
            assert cache.get(key) == model.get(key)
            if key in model:
                model[key] = model.pop(key)
            continue
        try:
            cache.add(key, bytes(size))
        except InvalidArg:
            assert ENTRY + size > byte_size
            continue
        if key not in model:
            while sum(ENTRY + len(entry) for entry in model.values()) + ENTRY + size > byte_size:
                del model[next(iter(model))]
            model[key] = bytes(size)

        assert cache.used == sum(ENTRY + len(entry) for entry in model.values()) <= byte_size
        assert len(cache) == len(model)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "config didn't contain a valid 'size' field"),
        ({"foo": "1"}, "config didn't contain a valid 'size' field"),
        ({"size": "much"}, "'size' is 'much', expected a number of bytes"),
        ({"size": "-1"}, "'size' is '-1'"),
        ({"size": "0"}, "'size' is '0'"),
        ({"size": "1e6"}, "'size' is '1e6'"),
        ({"size": "٣"}, "'size' is '٣'"),
        ({"size": "9" * 30}, "expected a number of bytes"),
        ({"size": "1", "ttl": "3"}, "unknown settings ttl; it has 'size'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArg, match=r"^Failed to initialize LocalCache: ") as error:
        opened(**settings)

    assert text in error.value.message


def test_the_hooks_reach_the_cache() -> None:
    cache = opened(size=str(4 * ENTRY))
    local_cache.cache_insert(cache, "k", b"entry")

    assert local_cache.cache_lookup(cache, "k") == b"entry"
    assert local_cache.cache_lookup(cache, "other") is None
    usage = local_cache.cache_usage(cache)
    assert (usage.entry_count, usage.eviction_count) == (1, 0)
    assert 0 < usage.fraction < 1
    assert not cache.is_shared
