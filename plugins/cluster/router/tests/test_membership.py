"""The servers of a command line, of a file that changes, and of a name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy_router.membership import (
    FileMembership,
    Membership,
    NameMembership,
    StaticMembership,
    read_place,
    read_places,
)
from tritonpy_router.replica import Place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("gpu1", Place("gpu1:8000", "gpu1", 8000, 8001)),
        ("gpu1:9000", Place("gpu1:9000", "gpu1", 9000, 8001)),
        ("gpu1:9000:9001", Place("gpu1:9000", "gpu1", 9000, 9001)),
        ("left=gpu1:9000", Place("left", "gpu1", 9000, 8001)),
        ("gpu1:9000:9001:9004", Place("gpu1:9000", "gpu1", 9000, 9001, 9004)),
        ("[::1]:9000:9001", Place("[::1]:9000", "::1", 9000, 9001)),
        ("a=[fe80::1]", Place("a", "fe80::1", 8000, 8001)),
    ],
)
def test_a_server_is_read(text: str, place: Place) -> None:
    assert read_place(text) == place


@pytest.mark.parametrize("text", ["", ":8000", "a:b", "a:0", "a:70000", "a:1:2:3:4", "name="])
def test_what_is_no_server_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidArg, match=r"expected \[NAME=\]HOST"):
        read_place(text)


def test_a_file_has_one_to_a_line_or_is_json() -> None:
    lines = read_places("# two\n\na=one:1:2\n  b=two:3:4\n")

    assert lines == read_places('["a=one:1:2", "b=two:3:4"]')
    assert [place.name for place in lines] == ["a", "b"]
    with pytest.raises(InvalidArg, match="two servers are called 'a'"):
        read_places("a=one\na=two")


def seen(
    make: Callable[[Callable[[float], Awaitable[None]]], Membership], steps: Sequence[object]
) -> list[object]:
    """What a membership says while `steps` are done in its pauses; the last one ends it."""
    told: list[object] = []
    left = list(steps)

    async def pause(_: float) -> None:
        if not left:
            raise asyncio.CancelledError
        step = left.pop(0)
        if callable(step):
            step()

    async def run() -> None:
        async for places in make(pause).changes():
            told.append([place.host for place in places])

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    return told


def test_a_file_is_read_again_and_what_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file, faults = tmp_path / "servers", list[str]()
    file.write_text("one\n")
    steps = [
        lambda: None,
        lambda: file.write_text("one\ntwo\n"),
        lambda: file.write_text("one:x\n"),
        lambda: None,
        file.unlink,
        lambda: file.write_text("two\n"),
    ]

    told = seen(lambda pause: FileMembership(file, 1, faults.append, pause), steps)

    assert told == [["one"], ["one", "two"], ["two"]]
    assert len(faults) == 2
    assert "'one:x' is not understood" in faults[0]


def test_a_name_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses, faults = [["10.0.0.2", "10.0.0.1"], [], ["10.0.0.2"]], list[str]()

    async def look_up(self: object, host: str, port: int, **_: object) -> list[object]:
        found = addresses.pop(0) if addresses else ["10.0.0.2"]
        if not found:
            raise socket.gaierror(-3, "try again")
        return [(2, 1, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)

    place = read_place("models:1:2:3")
    told = seen(lambda pause: NameMembership(place, 1, faults.append, pause), [None] * 4)

    assert told == [["10.0.0.1", "10.0.0.2"], ["10.0.0.2"]]
    assert len(faults) == 1


def test_a_list_is_told_once() -> None:
    async def run() -> list[object]:
        return [places async for places in StaticMembership([read_place("a")]).changes()]

    assert asyncio.run(run()) == [[read_place("a")]]
