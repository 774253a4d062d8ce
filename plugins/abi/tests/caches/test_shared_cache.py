"""Caches that are shared objects, called as a server calls them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.plugin import AlreadyExists, ErrorCode, Internal, InvalidArg, NotFound, TritonError
from tritonpy_abi.build import library
from tritonpy_abi.caches import open_cache as open_shared
from tritonpy_abi.caches.failures import CacheFailure
from tritonpy_sdk.testing import open_cache

from ..conftest import Compiled


@pytest.fixture
def table(compiled: Compiled) -> object:
    return open_shared(str(compiled("caches/table.c")))


@pytest.mark.parametrize("byte_size", [1, 64, 4096, 3_000_000])
def test_what_was_inserted_is_found(table: object, byte_size: int) -> None:
    entry = bytes(number % 251 for number in range(min(byte_size, 5000))).ljust(byte_size, b"x")
    with open_cache(table, {"size": "10000000"}) as cache:
        cache.insert("one", entry)
        cache.insert("two", entry[::-1])

        assert cache.lookup("one") == entry
        assert cache.lookup("two") == entry[::-1]
        assert cache.lookup("three") is None


def test_what_was_found_stays_when_the_cache_has_let_go_of_it(table: object) -> None:
    with open_cache(table, {"size": "1000"}) as cache:
        cache.insert("one", b"1" * 600)
        found = cache.lookup("one")
        cache.insert("two", b"2" * 600)

        assert cache.lookup("one") is None
    assert found == b"1" * 600


def test_what_was_found_cannot_be_written_over(table: object) -> None:
    with open_cache(table, {"size": "1000"}) as cache:
        cache.insert("one", b"1")

        found = cache.lookup("one")

    assert found is not None
    assert memoryview(found).readonly


def test_what_was_not_used_for_longest_goes(table: object) -> None:
    with open_cache(table, {"size": "300"}) as cache:
        for name in ("one", "two", "three"):
            cache.insert(name, name.encode() * 20)
        assert cache.lookup("one")
        cache.insert("four", b"4" * 90)

        assert [entry is not None for entry in cache.lookup_all(["one", "two", "three", "four"])] == [
            True,
            False,
            True,
            True,
        ]


@pytest.mark.parametrize("flags", [(), ("-Wl,--no-as-needed", str(library()))])
def test_it_is_opened_by_its_path_whether_it_names_the_library_it_needs_or_not(
    compiled: Compiled, flags: tuple[str, ...]
) -> None:
    with open_cache(compiled("caches/table.c", *flags), {"size": "1000"}) as cache:
        cache.insert("one", b"1")

        assert cache.lookup("one") == b"1"


def test_two_caches_of_one_library_have_nothing_in_common(table: object) -> None:
    with open_cache(table, {"size": "1000"}) as first, open_cache(table, {"size": "1000"}) as second:
        first.insert("one", b"1")

        assert second.lookup("one") is None
        assert first.lookup("one") == b"1"


def test_what_it_says_of_an_entry_keeps_its_code(table: object) -> None:
    with open_cache(table, {"size": "1000"}) as cache:
        cache.insert("one", b"1")
        with pytest.raises(AlreadyExists, match="there is an entry already"):
            cache.insert("one", b"2")
        with pytest.raises(InvalidArg, match="the entry is larger than the cache"):
            cache.insert("two", b"2" * 1001)

        assert cache.lookup("one") == b"1"


def test_a_cache_that_does_not_want_to_begin_says_why(table: object) -> None:
    text = "cache 'table' needs --cache-config table,size=<bytes>"
    with pytest.raises(TritonError, match=text) as error, open_cache(table, {"size": "many"}):
        pass

    assert error.value.code is ErrorCode.INVALID_ARG


def test_keys_must_be_those_of_the_files_since_entries_may_outlive_the_server(table: object) -> None:
    with open_cache(table, {"size": "1000"}) as cache:
        assert cache.handle.is_shared


def test_settings_are_a_json_object_of_texts(compiled: Compiled) -> None:
    echo = open_shared(str(compiled("caches/throwing.cc")))
    settings = {"where": "nowhere", "size": "5", "odd": 'q"u\\o\nte ü'}
    with open_cache(echo, settings) as cache:  # whatever is looked up, it has its configuration
        config = cache.lookup("any")

    assert config is not None
    assert bytes(config).decode() == r'{"where":"nowhere","size":"5","odd":"q\"u\\o\nte ü"}'


@pytest.mark.parametrize("what", ["exception", "number"])
@pytest.mark.parametrize("function", ["Initialize", "Lookup", "Insert", "Finalize"])
def test_a_thrown_exception_is_an_error_with_its_text(compiled: Compiled, function: str, what: str) -> None:
    library = open_shared(str(compiled("caches/throwing.cc")))
    says = "went too far" if what == "exception" else "that is no std::exception"
    text = f"TRITONCACHE_Cache{function} threw a C\\+\\+ exception.*{says}"

    def use() -> None:
        with open_cache(library, {"where": function, "what": what}) as cache:
            cache.insert("one", b"1")
            cache.lookup("one")

    with pytest.raises(TritonError, match=text) as error:
        use()

    assert error.value.code is ErrorCode.INTERNAL


def test_an_internal_error_is_a_failure_of_the_cache_while_its_lookups_fail_too(compiled: Compiled) -> None:
    library = open_shared(str(compiled("caches/throwing.cc")))
    with open_cache(library, {"where": "Lookup", "also": "Insert"}) as cache:
        with pytest.raises(Internal, match="Insert went too far"):
            cache.insert("one", b"1")
        with pytest.raises(Internal, match="Lookup went too far"):
            cache.lookup("one")

        with pytest.raises(CacheFailure, match=r"Internal: .*Insert went too far"):
            cache.insert("one", b"1")


@pytest.mark.parametrize("has", [0, 2, 3])
def test_a_library_without_all_four_functions_is_refused_by_their_names(compiled: Compiled, has: int) -> None:
    library = compiled("caches/partial.c", f"-DHAS={has}")
    names = [f"'TRITONCACHE_Cache{name}'" for name in ("Initialize", "Finalize", "Lookup", "Insert")]

    with pytest.raises(NotFound) as error, open_cache(open_shared(str(library))):
        pass

    missing = ", ".join(names[has:])
    assert f"unable to find required entrypoint {missing} in shared library: {library}" in str(error.value)


def test_a_success_without_a_cache_is_none(compiled: Compiled) -> None:
    library = open_shared(str(compiled("caches/partial.c", "-DHAS=4")))

    text = r"Failed to initialize cache implementation: .* made no cache"
    with pytest.raises(TritonError, match=text), open_cache(library):
        pass


@pytest.mark.usefixtures("library")
def test_a_file_that_is_no_library_is_refused_in_the_words_of_the_linker(tmp_path: Path) -> None:
    text = tmp_path / "text.so"
    text.write_text("hello")

    words = r"unable to load shared library: .*file too short"
    with pytest.raises(NotFound, match=words), open_cache(open_shared(str(text))):
        pass
