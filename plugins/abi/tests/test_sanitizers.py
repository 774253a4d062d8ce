"""The library and a shared object under sanitizers, driven by a program in C."""

from __future__ import annotations

import pytest

from .driver import SUBJECTS, Driver, make_driver

pytestmark = [pytest.mark.toolchain, pytest.mark.timeout(240)]

ADDRESS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    # Plugins are written in C, where an enumeration may hold any number; compilers of C++ take it for an int.
    "-fno-sanitize=enum",
)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp("address"), *ADDRESS)


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp("thread"), "-fsanitize=thread")


@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_byte_is_used_that_is_not_there_and_none_is_lost(addresses: Driver, subject: str) -> None:
    done = addresses.run(subject)

    assert (done.returncode, done.stdout) == (0, f"{subject}: done\n"), done.stderr
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr


@pytest.mark.parametrize("subject", SUBJECTS)
def test_threads_do_not_race(threads: Driver, subject: str) -> None:
    done = threads.run(subject)

    assert (done.returncode, done.stdout) == (0, f"{subject}: done\n"), done.stderr
    assert "Sanitizer" not in done.stderr


@pytest.mark.parametrize(
    ("mistake", "words"), [("leak", "detected memory leaks"), ("overrun", "heap-buffer-overflow")]
)
def test_the_address_sanitizer_is_awake(addresses: Driver, mistake: str, words: str) -> None:
    done = addresses.run(mistake)

    assert done.returncode != 0
    assert words in done.stderr


def test_the_thread_sanitizer_is_awake(threads: Driver) -> None:
    done = threads.run("race")

    assert done.returncode != 0
    assert "ThreadSanitizer: data race" in done.stderr
