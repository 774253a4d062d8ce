"""Schemes of members: found by entry points, and strangers' among them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.server import Server
from tritonpy_router import membership
from tritonpy_router.membership import (
    GROUP,
    FileMembership,
    Membership,
    MembershipOptions,
    NameMembership,
    StaticMembership,
    open_membership,
    read_place,
)
from tritonpy_router.replica import Place

from .conftest import RouterThread

ROOT = Path(__file__).parents[4]
OPTIONS = MembershipOptions({"WHERE": "here"}, lambda text: None)


class Strange:
    """A stranger's membership: it fails once, then says what it was opened with."""

    def __init__(self, rest: str, options: MembershipOptions) -> None:
        self.rest, self.options = rest, options
        self.attempts = 0

    async def changes(self) -> AsyncIterator[Sequence[Place]]:
        self.attempts += 1
        if self.attempts == 1:
            raise RuntimeError("no luck")
        yield [read_place(self.rest)]


def opened_badly(rest: str, options: MembershipOptions) -> Membership:
    raise KeyError(rest)


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("static://a,left=b:1:2", StaticMembership),
        ("file:///etc/servers", FileMembership),
        ("file://servers", FileMembership),
        ("dns://models.default.svc:8000", NameMembership),
    ],
)
def test_those_of_this_distribution_come_in_by_the_same_door(url: str, kind: type) -> None:
    assert isinstance(open_membership(url, OPTIONS), kind)


def test_a_strangers_scheme_is_opened_with_the_rest_and_the_options() -> None:
    found = open_membership("strange://gpu1:1:2", OPTIONS, lambda: [entry("strange", f"{__name__}:Strange")])

    assert isinstance(found, Strange)
    assert (found.rest, found.options.environ["WHERE"]) == ("gpu1:1:2", "here")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("gpu1", "expected SCHEME://REST, of the schemes bad, none, strange, twice"),
        ("://gpu1", "expected SCHEME://REST"),
        ("other://x", "no installed distribution brings the scheme 'other'; there are bad, none"),
        ("twice://x", "several distributions bring the scheme 'twice'"),
        ("none://x", "'no_such_module:open' of the scheme 'none' failed: ModuleNotFoundError"),
        ("bad://x", "of the scheme 'bad' failed: KeyError: 'x'"),
    ],
)
def test_what_cannot_be_opened_is_refused(url: str, text: str) -> None:
    entries = [
        entry("strange", f"{__name__}:Strange"),
        entry("twice", f"{__name__}:Strange"),
        entry("twice", f"{__name__}:opened_badly"),
        entry("none", "no_such_module:open"),
        entry("bad", f"{__name__}:opened_badly"),
    ]

    with pytest.raises(InvalidArg) as refused:
        open_membership(url, OPTIONS, lambda: entries)

    assert text in refused.value.message


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("static://", "server '' is not understood"),
        ("static://x=a,x=b", "two servers are called 'x'"),
        ("file://", "expected file://PATH"),
        ("dns://a:b", "server 'a:b' is not understood"),
    ],
)
def test_each_scheme_refuses_another_form(url: str, text: str) -> None:
    with pytest.raises(InvalidArg) as refused:
        open_membership(url, OPTIONS)

    assert text in refused.value.message


def test_a_membership_that_raises_is_logged_and_followed_anew(
    make_server: Callable[..., Server],
    make_router: Callable[..., RouterThread],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = make_server("echo")
    strange = Strange(f"127.0.0.1:{server.http_port}:{server.grpc_port}", OPTIONS)

    make_router(membership=strange, ready=1)

    assert strange.attempts == 2
    assert "the servers cannot be followed; trying again in 1 s" in caplog.text
    assert "RuntimeError: no luck" in caplog.text


def test_the_scheme_of_the_page_tells_its_servers() -> None:
    page = (ROOT / "docs/how-to/route-to-several-servers.md").read_text()
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)

    async def first() -> Sequence[Place]:
        options = MembershipOptions({"INVENTORY": "a b"}, lambda text: None)
        return await anext(names["open_inventory"]("rack7", options).changes())

    assert asyncio.run(first()) == [read_place("a=a.rack7:8000:8001"), read_place("b=b.rack7:8000:8001")]


def test_the_installed_schemes_are_those_of_the_page() -> None:
    assert {"dns", "file", "k8s", "static"} <= {found.name for found in membership.installed_memberships()}


def test_all_servers_of_a_name_have_its_ports() -> None:
    async def first() -> Sequence[Place]:
        return await anext(aiter(open_membership("dns://127.0.0.1:1:2:3", OPTIONS).changes()))

    assert asyncio.run(first()) == [Place("127.0.0.1:1", "127.0.0.1", 1, 2, 3)]


def test_a_file_is_read_through_the_door(tmp_path: Path) -> None:
    async def first() -> Sequence[Place]:
        async for places in open_membership(f"file://{tmp_path}/servers", OPTIONS).changes():
            return places
        return ()

    with open(f"{tmp_path}/servers", "w") as file:
        file.write("a=gpu1\n")

    assert asyncio.run(first()) == [read_place("a=gpu1")]
