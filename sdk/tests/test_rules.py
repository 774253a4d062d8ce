"""What a kit says of a plugin that breaks a rule."""

from __future__ import annotations

import inspect
import threading

import pytest
from tritonpy_sdk.testing.rules import PluginFault, Rule, rule, rules_of


class Kit:
    @rule("there is bread", "bake some", "how-to/bread.md")
    def test_bread(self, oven: str) -> None:
        assert oven == "hot", f"the oven is {oven}"
        if oven != "hot":
            raise KeyError("unreachable")

    @rule("there is salt", "buy some", "how-to/salt.md")
    def test_salt(self) -> None:
        raise ExceptionGroup("two", [KeyError("cellar"), ValueError()])

    def test_nothing(self) -> None: ...

    @rule("there is tea", "boil water", "how-to/tea.md")
    def test_tea(self, boiled: threading.Event) -> None:
        boiled.wait()


def test_a_fault_says_what_was_done_what_holds_what_to_do_and_where_to_read() -> None:
    Kit().test_bread("hot")
    with pytest.raises(PluginFault) as caught:
        Kit().test_bread("cold")

    did, *rest = str(caught.value).splitlines()
    assert did.startswith("the plugin: the oven is cold")
    assert rest[-3:] == ["the interface: there is bread", "to do: bake some", "read: docs/how-to/bread.md"]


def test_exceptions_are_what_the_plugin_did() -> None:
    with pytest.raises(PluginFault, match=r"the plugin: raised KeyError: 'cellar'; raised ValueError\n"):
        Kit().test_salt()


def test_a_check_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonpy_sdk.testing.rules.CHECK_LIMIT_S", 0.05)
    boiled = threading.Event()

    with pytest.raises(PluginFault, match=r"did not come back within 0\.05 seconds"):
        Kit().test_tea(boiled)
    boiled.set()


def test_a_kit_lists_its_rules_and_pytest_sees_the_arguments_of_its_checks() -> None:
    assert dict(rules_of(Kit)) == {
        "test_bread": Rule("there is bread", "bake some", "how-to/bread.md"),
        "test_salt": Rule("there is salt", "buy some", "how-to/salt.md"),
        "test_tea": Rule("there is tea", "boil water", "how-to/tea.md"),
    }
    assert list(inspect.signature(Kit.test_bread).parameters) == ["self", "oven"]
