from __future__ import annotations

import hashlib
import itertools
import os
import queue
import threading
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import ErrorCode, Internal, InvalidArg, TritonError, Unavailable
from tritonpy_store_cloud.download import ChangedMeanwhileError, Downloader, make_all, tag_of
from tritonpy_store_cloud.refusal import Refusal
from tritonpy_store_cloud.tree import StoredObject

from .conftest import FakeClient

PART = 1000


def refuse(error: Exception) -> Refusal:
    is_missing = isinstance(error, FileNotFoundError)
    code = ErrorCode.UNAVAILABLE if isinstance(error, TimeoutError) else ErrorCode.INTERNAL
    return Refusal(str(error), code, is_missing=is_missing)


def ignored(path: Path) -> None:
    """For tests that look at the files themselves."""


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def downloader(client: FakeClient, stopping: threading.Event) -> Downloader:
    return Downloader(client, refuse, stopping, part_byte_size=PART)  # type: ignore[arg-type]  # has what is used


def stored(client: FakeClient, key: str, content: bytes) -> StoredObject:
    client.put(key, content)
    meta = client.memory.head(key)
    return StoredObject(key, tag_of(meta), meta["size"])


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 10 * PART + 7])
def test_objects_of_any_size_are_copied(
    size: int, downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    content = os.urandom(size)
    found = stored(client, "k", content)

    downloader.download({tmp_path / "f": found}, ignored)

    assert (tmp_path / "f").read_bytes() == content
    assert len(client.read) == -(-size // PART)


def test_many_objects_are_copied_each_to_its_file(
    downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    wanted = {tmp_path / f"f{i}": stored(client, f"k{i}", b"%d" % i * 700) for i in range(40)}

    downloader.download(wanted, ignored)

    assert all((tmp_path / f"f{i}").read_bytes() == b"%d" % i * 700 for i in range(40))


def test_files_that_are_complete_are_told_though_others_fail(
    downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    wanted = {tmp_path / f"f{i}": stored(client, f"k{i}", b"x" * 2500) for i in range(20)}
    done: list[Path] = []

    def fail(key: str) -> None:
        if key == "k15":
            raise PermissionError("forbidden")

    client.before_get = fail
    with pytest.raises(TritonError, match="forbidden"):
        downloader.download(wanted, done.append)

    assert tmp_path / "f0" in done
    assert tmp_path / "f15" not in done
    assert len(done) == len(set(done)) < 20
    assert all(path.read_bytes() == b"x" * 2500 for path in done)


def test_a_part_that_breaks_goes_on_where_it_broke(
    downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    content = os.urandom(PART)
    found = stored(client, "k", content)
    asked: list[tuple[int, int]] = []
    real = client.get

    def get(key: str, **options: Any) -> Any:
        asked.append(options["options"]["range"])
        answer = real(key, **options)
        return Broken(answer, after=400) if len(asked) == 1 else answer

    client.get = get  # type: ignore[method-assign]

    downloader.download({tmp_path / "f": found}, ignored)

    assert (tmp_path / "f").read_bytes() == content
    assert asked == [(0, PART), (400, PART)]


class Broken:
    """An answer that ends in the middle, with an error or without."""

    def __init__(self, answer: Any, after: int, error: Exception | None = None) -> None:
        self.meta = answer.meta
        self._content = bytes(answer.bytes())[:after]
        self._error = error or TimeoutError("stalled")

    def stream(self, size: int) -> Any:
        yield self._content
        raise self._error


def test_a_store_that_fails_all_the_time_is_given_up(
    downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    found = stored(client, "k", b"x" * PART)

    def fail(key: str) -> None:
        raise TimeoutError("stalled")

    client.before_get = fail

    with pytest.raises(TritonError, match="stalled") as caught:
        downloader.download({tmp_path / "f": found}, ignored)

    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert client.read == ["k"] * 3


def test_a_store_that_refuses_is_asked_once(
    downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    found = stored(client, "k", b"x" * PART)

    def fail(key: str) -> None:
        raise PermissionError("forbidden")

    client.before_get = fail

    with pytest.raises(TritonError, match="forbidden"):
        downloader.download({tmp_path / "f": found}, ignored)

    assert client.read == ["k"]


def test_an_answer_that_ends_too_early_without_an_error_is_no_copy(
    downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    found = stored(client, "k", b"x" * PART)
    real = client.get

    class Short(Broken):
        def stream(self, size: int) -> Any:
            yield from ()

    client.get = lambda key, **options: Short(real(key, **options), 0)  # type: ignore[method-assign]

    with pytest.raises(Unavailable, match="ended its answer for 'k' after 0 of 1000 bytes, 3 times"):
        downloader.download({tmp_path / "f": found}, ignored)


def test_an_object_that_has_changed_is_noticed(
    downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    found = stored(client, "k", b"x" * 10 * PART)
    # Not `== 5`: threads read at once, and each may have been overtaken before it counts.
    client.before_get = lambda key: client.put("k", b"y" * 10 * PART) if len(client.read) >= 5 else None

    with pytest.raises(ChangedMeanwhileError):
        downloader.download({tmp_path / "f": found}, ignored)


def test_an_object_that_has_gone_is_noticed(
    downloader: Downloader, client: FakeClient, tmp_path: Path
) -> None:
    found = stored(client, "k", b"x")
    client.delete("k")

    with pytest.raises(ChangedMeanwhileError):
        downloader.download({tmp_path / "f": found}, ignored)


def test_a_stopped_download_ends_soon(
    downloader: Downloader, client: FakeClient, stopping: threading.Event, tmp_path: Path
) -> None:
    found = stored(client, "k", b"x" * 500 * PART)
    client.before_get = lambda key: stopping.set() if len(client.read) >= 5 else None  # as above

    with pytest.raises(Unavailable, match="the server stops"):
        downloader.download({tmp_path / "f": found}, ignored)

    assert len(client.read) < 50


class Digests:
    """A store whose tags are what a test says, and whose content may be damaged on the way."""

    def __init__(self, client: FakeClient, tag: str, contents: list[bytes]) -> None:
        self._client = client
        self._tag = tag
        self._contents = itertools.chain(contents, itertools.repeat(contents[-1]))
        self.count = 0

    def get(self, key: str, **options: Any) -> Any:
        self.count += 1
        self._client.put(key, next(self._contents))
        answer = self._client.memory.get(key, **options)
        meta = dict(answer.meta) | {"e_tag": self._tag}
        content = bytes(answer.bytes())

        class Answer:
            def __init__(self) -> None:
                self.meta = meta

            def stream(self, size: int) -> Any:
                yield content

        return Answer()


def digests(client: FakeClient, contents: list[bytes]) -> tuple[Digests, Downloader, StoredObject]:
    tag = hashlib.md5(b"good").hexdigest()
    store = Digests(client, f'"{tag}"', contents)
    return store, Downloader(store, refuse, threading.Event()), StoredObject("k", tag, 4)  # type: ignore[arg-type]  # as above


def test_a_tag_that_is_a_digest_is_checked(client: FakeClient, tmp_path: Path) -> None:
    store, downloader, found = digests(client, [b"good"])

    downloader.download({tmp_path / "f": found}, ignored)

    assert store.count == 1


def test_a_copy_that_was_damaged_on_the_way_is_made_again(client: FakeClient, tmp_path: Path) -> None:
    store, downloader, found = digests(client, [b"gOod", b"good"])

    downloader.download({tmp_path / "f": found}, ignored)

    assert (tmp_path / "f").read_bytes() == b"good"
    assert store.count == 2


def test_copies_that_are_always_damaged_are_refused(client: FakeClient, tmp_path: Path) -> None:
    _, downloader, found = digests(client, [b"gOod", b"goOd"])

    with pytest.raises(Internal, match="copies of 'k' are damaged"):
        downloader.download({tmp_path / "f": found}, ignored)


def test_tags_of_encrypted_objects_look_like_digests_and_are_none(client: FakeClient, tmp_path: Path) -> None:
    store, downloader, found = digests(client, [b"same"])

    downloader.download({tmp_path / "f": found}, ignored)
    downloader.download({tmp_path / "g": found}, ignored)

    assert (tmp_path / "g").read_bytes() == b"same"
    assert store.count == 3


def fail(text: str) -> None:
    raise InvalidArg(text)


def test_many_calls_are_made_some_at_once() -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    made: list[int] = []
    four = threading.Barrier(4)

    def call(number: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        if number < 4:
            four.wait(20)
        with lock:
            at_once -= 1
            made.append(number)

    make_all([lambda number=number: call(number) for number in range(50)], 4)  # type: ignore[misc]  # mypy#15459

    assert sorted(made) == list(range(50))
    assert most == 4


def test_after_the_first_that_fails_no_call_is_begun() -> None:
    begun: list[int] = []
    failing: queue.SimpleQueue[threading.Thread] = queue.SimpleQueue()

    def call(number: int) -> None:
        begun.append(number)
        if number == 3:
            for _ in range(3):  # one for each of the others
                failing.put(threading.current_thread())
            fail("the third")
        elif number > 3:
            failing.get(timeout=20).join(20)  # it ends when its failure is known

    with pytest.raises(InvalidArg, match="the third"):
        make_all([lambda number=number: call(number) for number in range(1000)], 4)  # type: ignore[misc]  # the same

    assert len(begun) <= 7


def test_no_calls_are_made_of_none() -> None:
    make_all([], 4)
