from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import ErrorCode, Internal, InvalidArg, TritonError, Unsupported
from tritonpy.hookspecs import hookimpl
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.stores.local import LocalStore
from tritonpy.repository.stores.opener import check_root, masked, open_store, prefix_of
from tritonpy.repository.stores.plugin_store import PluginStore
from tritonpy.store import StoreOptions

OPTIONS = StoreOptions({"KEY": "value"}, 7)


def manager(disabled: tuple[str, ...] = (), **plugins: object) -> PluginManager:
    stores = PluginManager("stores", discover=False, disabled=disabled)
    for name, plugin in plugins.items():
        stores.register(name, plugin)
    return stores


def opens(result: Any) -> object:
    """A plugin that opens a store, or raises what it is given."""

    @hookimpl
    def store_open(root: str, options: StoreOptions) -> object:
        if isinstance(result, Exception):
            raise result
        return result(root, options)

    return SimpleNamespace(store_open=store_open)


def test_a_root_with_a_prefix_is_opened_by_the_plugin_of_that_name() -> None:
    given: list[object] = []
    plugin = opens(lambda *arguments: given.extend(arguments) or SimpleNamespace(place_of=str.upper))

    store = open_store("xyz://place/a", manager(xyz=plugin), OPTIONS)

    assert given == ["xyz://place/a", OPTIONS]
    assert isinstance(store, PluginStore)
    assert (store.root, store.place_of("m")) == ("xyz://place/a", "M")


@pytest.mark.parametrize(
    "root", ["/models", "models", "C:\\models", "", "s3:/x", "user@host/models", "what?", "/a://b@c"]
)
def test_all_others_are_directories(root: str) -> None:
    store = open_store(root, manager(), OPTIONS)

    assert isinstance(store, LocalStore)
    assert store.root == root
    assert prefix_of(root) == ""
    check_root(root, manager())


@pytest.mark.parametrize("root", ["s3://bucket/a", "gs://bucket", "as://account/container"])
def test_a_prefix_of_a_plugin_of_this_project_names_the_command_that_installs_it(root: str) -> None:
    text = f"{root[:2]}:// file-system not supported (model repository {root}); to install it: "

    with pytest.raises(Unsupported, match=f"^{re.escape(text)}pip install tritonpy-store-cloud$"):
        open_store(root, manager(), OPTIONS)


def test_an_unknown_prefix_is_refused_with_those_that_are_known() -> None:
    stores = manager(abc=opens(None), xyz=opens(None))

    with pytest.raises(InvalidArg, match=r"unknown prefix 'hdfs://'; expected .*: abc://, xyz:// \(--model"):
        open_store("hdfs://host/models", stores, OPTIONS)
    with pytest.raises(InvalidArg, match=r"installed stores: none \(--model-repository\)"):
        check_root("hdfs://host/models", manager())
    check_root("xyz://host/models", stores)


@pytest.mark.parametrize(
    "root",
    [
        "xyz://AKIA:s3cr3t@bucket/a",
        "xyz://AKIA:s3/cr3t@bucket/a",
        "xyz://https://user:s3cr3t@host:9000/bucket/a",
        "xyz://s3cr3t@bucket",
        "xyz://account/container?sv=2024&sig=s3cr3t",
        "hdfs://user:s3cr3t@host/path",
    ],
)
def test_roots_with_secrets_are_refused_without_showing_them(root: str) -> None:
    with pytest.raises(InvalidArg, match="must not hold credentials or a query") as caught:
        open_store(root, manager(xyz=opens(lambda root, options: pytest.fail("was asked"))), OPTIONS)

    assert "cr3t" not in caught.value.message
    assert "AKIA" not in caught.value.message
    assert "***" in caught.value.message
    assert "cr3t" not in masked(root)


def test_a_plugin_that_is_disabled_opens_nothing() -> None:
    with pytest.raises(Internal, match="'xyz' of kind 'stores' is disabled by --disable-plugin stores:xyz"):
        open_store("xyz://a", manager(disabled=("xyz",)), OPTIONS)


def test_a_plugin_without_the_hook_is_named() -> None:
    with pytest.raises(Internal, match="plugin 'xyz' of kind 'stores' has no hook 'store_open'"):
        open_store("xyz://a", manager(xyz=SimpleNamespace()), OPTIONS)


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (TritonError("come later", ErrorCode.UNAVAILABLE), "come later"),
        (KeyError("region"), "model repository xyz://a cannot be opened: KeyError: 'region'"),
    ],
)
def test_what_a_plugin_raises_is_told(raised: Exception, text: str) -> None:
    with pytest.raises(TritonError) as caught:
        open_store("xyz://a", manager(xyz=opens(raised)), OPTIONS)

    assert caught.value.message == text


def test_a_plugin_that_opens_nothing_is_told() -> None:
    with pytest.raises(Internal, match="xyz://a cannot be opened: 'store_open' of 'xyz' returned None"):
        open_store("xyz://a", manager(xyz=opens(lambda root, options: None)), OPTIONS)


def test_a_repository_in_a_directory_loads_no_plugin(tmp_path: Path) -> None:
    stores = manager()
    stores.load = lambda name: pytest.fail("loaded")  # type: ignore[method-assign]

    open_store(str(tmp_path), stores, OPTIONS)
