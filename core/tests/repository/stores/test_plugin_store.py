from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable
from tritonpy.fingerprint import Fingerprint
from tritonpy.repository.stores.plugin_store import PluginStore
from tritonpy.store import LocalFiles

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
