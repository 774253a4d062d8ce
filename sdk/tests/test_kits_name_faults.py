"""Every kit names what is wrong with a plugin before any of its hooks is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tritonpy.hookspecs import API_VERSION
from tritonpy.plugin import TritonError
from tritonpy.plugin_faults import REQUIRED_HOOKS
from tritonpy_sdk.testing import (
    BackendConformance,
    CacheConformance,
    FrontendConformance,
    OpLibraryConformance,
    PluginFault,
    RepoAgentConformance,
    StoreConformance,
    StrategyConformance,
)

Run = Callable[[object], None]


def backend(plugin: object) -> None:
    class Suite(BackendConformance, backend=plugin, models=Path(__file__).parent / "models/identity"): ...

    Suite().test_attributes_are_told_before_the_backend_is_initialized()


def strategy(plugin: object) -> None:
    class Suite(StrategyConformance, strategy=plugin): ...

    Suite().test_it_begins_and_ends_with_its_model()


def agent(plugin: object) -> None:
    class Suite(RepoAgentConformance, agent=plugin): ...

    Suite().test_it_acts_from_load_to_unload()


def cache(plugin: object) -> None:
    class Suite(CacheConformance, cache=plugin): ...

    Suite().test_it_begins_and_ends_with_its_server()


def store(plugin: object) -> None:
    class Suite(StoreConformance, store=plugin):
        def make_root(self, directory: Path) -> str:
            return "xyz://models"

    Suite().test_it_is_opened_without_asking_its_place()


def frontend(plugin: object) -> None:
    class Suite(FrontendConformance, frontend=plugin): ...

    Suite().test_it_tells_where_it_listens()


def ops(plugin: object) -> None:
    class Suite(OpLibraryConformance, ops=plugin): ...

    Suite().test_a_model_that_calls_them_gets_libraries()


KITS: dict[str, Run] = {
    "backends": backend,
    "batching": strategy,
    "repo_agents": agent,
    "caches": cache,
    "stores": store,
    "frontends": frontend,
    "op_libraries": ops,
}
HOOKS = {kind: REQUIRED_HOOKS[kind][0] if REQUIRED_HOOKS[kind] else "model_instance_execute" for kind in KITS}
LATER = (API_VERSION[0] + 1, 0)
FAULTS = {
    "a misspelt hook": ("@hookimpl\ndef {hook}s(): ...", "unknown hook '{hook}s'"),
    "a wrong argument": ("@hookimpl\ndef {hook}(wrong): ...", "has the argument 'wrong'"),
    "a hook without its mark": ("def {hook}(): ...", "is called like a hook and not marked with @hookimpl"),
    "a generator": ("@hookimpl\ndef {hook}(): yield", "has a `yield`, so calling it runs nothing"),
    "a missing hook": ("", "{hook}"),
    "a later version": (
        f"TRITONPY_API_VERSION = {LATER}",
        f"it needs version {LATER[0]}.0 of the plugin interface",
    ),
}


def said(run: Run, plugin: object) -> str:
    """What a kit says of a plugin; where it looks at it while tests are collected, the server's error."""
    with pytest.raises((PluginFault, TritonError)) as caught:
        run(plugin)
    return str(caught.value)


@pytest.mark.parametrize("kind", KITS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_module_is_named(kind: str, fault: str) -> None:
    source, expected = (text.format(hook=HOOKS[kind]) for text in FAULTS[fault])
    module = ModuleType("wrong_plugin")
    exec(f"from tritonpy.plugin import hookimpl\n{source}\n", vars(module))

    assert expected in said(KITS[kind], module)


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Install a distribution that consists of one entry point."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def offer(distribution: str, kind: str, value: str) -> None:
        info = tmp_path / f"{distribution}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[tritonpy.{kind}]\nwrong = {value}\n")

    return offer


@pytest.mark.parametrize("kind", KITS)
def test_an_entry_point_that_leads_nowhere_is_named(
    kind: str, offer: Callable[[str, str, str], None]
) -> None:
    offer("wrong-one", kind, "no_such_module")

    text = said(KITS[kind], "wrong")

    assert "entry point 'wrong = no_such_module' of wrong-one names a module that is not there" in text


@pytest.mark.parametrize("kind", KITS)
def test_two_plugins_of_one_name_are_named(kind: str, offer: Callable[[str, str, str], None]) -> None:
    offer("wrong_one", kind, "json")
    offer("wrong_two", kind, "json")

    text = said(KITS[kind], "wrong")

    assert "several distributions" in text
    assert "wrong_one" in text
    assert "wrong_two" in text
