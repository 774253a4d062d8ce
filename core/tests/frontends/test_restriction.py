"""Which restriction guards what."""

from __future__ import annotations

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.frontends.restriction import Restriction, guards


def test_each_category_has_its_own_guard() -> None:
    restricted = [(("model-repository", "logging"), "Admin-Key", "sesame"), (("health",), "probe", "1")]

    admin, health = Restriction("Admin-Key", "sesame"), Restriction("probe", "1")
    assert guards(restricted) == {"model-repository": admin, "logging": admin, "health": health}


def test_a_category_is_restricted_once() -> None:
    first = (("health",), "a", "1")
    second = (("metadata", "health"), "b", "2")

    with pytest.raises(InvalidArg, match="'health' is restricted twice, by the headers 'a' and 'b'"):
        guards([first, second])


def test_an_unknown_category_is_refused() -> None:
    with pytest.raises(InvalidArg, match=r"cannot restrict 'metrics'.*health, metadata"):
        guards([(("metrics",), "a", "1")])


@pytest.mark.parametrize("value", [None, b"", b"Sesame", b"sesame ", b"sesame2", "sesam", "\udcff"])
def test_only_the_value_opens(value: bytes | str | None) -> None:
    assert not Restriction("key", "sesame").admits(value)


@pytest.mark.parametrize(
    ("value", "said"), [("sesame", b"sesame"), ("sesame", "sesame"), ("é", "é".encode())]
)
def test_the_value_opens(value: str, said: bytes | str) -> None:
    assert Restriction("key", value).admits(said)
