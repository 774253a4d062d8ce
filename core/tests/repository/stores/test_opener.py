from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import ErrorCode, Internal, InvalidArg, TritonError, Unavailable, Unsupported
from tritonpy.fingerprint import Fingerprint
from tritonpy.hookspecs import hookimpl
from tritonpy.plugin_manager import PluginManager
from tritonpy.repository.stores.local import LocalStore
from tritonpy.repository.stores.opener import (
    PluginStore,
    check_root,
    masked,
    open_store,
    prefix_of,
    secret_variables,
)
from tritonpy.store import LocalFiles, StoreOptions

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


ROOT = "mem://place"


class Memory:
    """A store whose every call first does what a test wants."""

    root = ROOT

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.before = before
        self.ends: list[str] = []

    def model_names(self) -> list[str]:
        self.before()
        return ["n", ".hidden", "m"]

    def place_of(self, name: str) -> str:
        self.before()
        return f"{ROOT}/{name}"

    def look(self, name: str) -> Fingerprint | None:
        self.before()
        return frozenset({("config.pbtxt", name, 1)})

    def fetch(self, name: str) -> LocalFiles:
        self.before()
        return LocalFiles(Path(name), frozenset())

    def stop(self) -> None:
        self.ends.append("stop")
        self.before()

    def close(self) -> None:
        self.ends.append("close")
        self.before()


def fail(error: BaseException) -> None:
    raise error


def calls_of(store: PluginStore) -> list[Callable[[], object]]:
    return [store.model_names, lambda: store.look("m"), lambda: store.fetch("m")]


def test_a_call_gives_what_the_plugin_gives() -> None:
    store = PluginStore(ROOT, Memory())

    assert store.model_names() == ["m", "n"]
    assert store.place_of("m") == "mem://place/m"
    assert store.look("m") == {("config.pbtxt", "m", 1)}
    assert store.fetch("m") == LocalFiles(Path("m"), frozenset())


def test_an_error_of_triton_stays_what_it_is() -> None:
    store = PluginStore(ROOT, Memory(lambda: fail(InvalidArg("as it is"))))

    for call in (*calls_of(store), lambda: store.place_of("m")):
        with pytest.raises(InvalidArg, match=r"^as it is$"):
            call()


@pytest.mark.parametrize("error", [KeyError("m"), SystemExit("bye"), KeyboardInterrupt()])
def test_any_other_exception_names_the_repository_and_itself(error: BaseException) -> None:
    store = PluginStore(ROOT, Memory(lambda: fail(error)))

    for call in (*calls_of(store), lambda: store.place_of("m")):
        with pytest.raises(Internal) as caught:
            call()
        assert caught.value.message.startswith(
            f"the store of model repository {ROOT}: {type(error).__name__}"
        )
        assert caught.value.__cause__ is error


@pytest.mark.parametrize("number", range(3))
def test_whoever_waits_for_a_call_that_hangs_is_let_go_when_the_server_stops(number: int) -> None:
    is_called, go_on = threading.Event(), threading.Event()
    memory = Memory(lambda: (is_called.set(), go_on.wait(20)))
    store = PluginStore(ROOT, memory)
    errors: list[TritonError] = []

    def wait() -> None:
        try:
            calls_of(store)[number]()
        except TritonError as exc:
            errors.append(exc)

    waiting = threading.Thread(target=wait)
    waiting.start()
    is_called.wait(20)
    memory.before = lambda: None
    store.stop()
    waiting.join(20)
    was_let_go = not waiting.is_alive()
    go_on.set()

    assert was_let_go
    assert [(type(error), error.message) for error in errors] == [(Unavailable, "the server stops")]


def test_a_stopped_store_is_asked_nothing_but_to_end() -> None:
    memory = Memory()
    store = PluginStore(ROOT, memory)
    store.stop()
    memory.before = lambda: pytest.fail("asked")

    for call in calls_of(store):
        with pytest.raises(Unavailable):
            call()
    memory.before = lambda: None
    store.close()
    assert memory.ends == ["stop", "close"]


def test_a_store_that_cannot_end_is_logged_and_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    store = PluginStore(ROOT, Memory(lambda: fail(OSError("disk gone"))))

    with caplog.at_level(logging.ERROR, "tritonpy.repository"):
        store.stop()
        store.close()

    text = f"the store of model repository {ROOT}: OSError: disk gone"
    assert [record.getMessage() for record in caplog.records] == [text, text]
    assert all(record.exc_info for record in caplog.records)


def test_a_store_without_the_methods_it_needs_fails_its_calls_and_nothing_else() -> None:
    store = PluginStore(ROOT, object())  # type: ignore[arg-type]  # on purpose

    for call in calls_of(store):
        with pytest.raises(Internal, match="AttributeError: 'object' object has no attribute"):
            call()
    store.stop()
    store.close()


def test_calls_are_made_on_threads_that_do_not_keep_the_program() -> None:
    seen: list[tuple[str, bool]] = []

    def note() -> None:
        thread = threading.current_thread()
        seen.append((thread.name, thread.daemon))

    PluginStore(ROOT, Memory(note)).look("m")

    assert seen == [("model-store", True)]


def test_the_secret_variables_of_all_stores_come_together_though_some_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def declares(names: Callable[[], list[str]]) -> object:
        @hookimpl
        def store_secret_variables() -> list[str]:
            return names()

        return SimpleNamespace(store_secret_variables=store_secret_variables)

    stores = manager(
        ("off",),
        a=declares(lambda: ["A_KEY", "TOKEN"]),
        b=declares(lambda: ["B_KEY", "TOKEN"]),
        broken=declares(lambda: 1 / 0),  # type: ignore[arg-type, return-value]
        silent=opens(None),
    )

    assert secret_variables(stores) == {"A_KEY", "B_KEY", "TOKEN"}
    assert caplog.messages == ["a plugin of kind 'stores' failed to name its secret variables"]
