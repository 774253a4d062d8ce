from __future__ import annotations

import errno
import threading
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import ErrorCode, Internal, InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.handles import Backend, Model
from tritonpy.plugin_manager import PluginManager
from tritonpy.scheduler.strategy_finder import StrategyFinder
from tritonpy_store_cloud import remote
from tritonpy_store_cloud.download import Downloader
from tritonpy_store_cloud.remote import RemoteStore

from .conftest import ROOT, FakeClient


@pytest.fixture(autouse=True)
def repository(client: FakeClient) -> None:
    client.put("models/m/config.pbtxt", b"config")
    client.put("models/m/1/model.py", b"one")
    client.put("models/n/1/model.py", b"one")
    client.put("models/README", b"no model")
    client.put("models/.hidden/x", b"no model")
    client.put("models-of-others/x/1/model.py", b"none of ours")


def test_models_are_the_directories_of_the_repository(store: RemoteStore) -> None:
    assert store.model_names() == ["m", "n"]


def test_a_model_is_copied_whole(store: RemoteStore) -> None:
    files = store.fetch("m")

    assert files.is_temporary
    assert files.directory.name == "m"
    assert {
        str(path.relative_to(files.directory)): path.read_bytes()
        for path in files.directory.rglob("*")
        if path.is_file()
    } == {"config.pbtxt": b"config", "1/model.py": b"one"}
    assert files.fingerprint == store.look("m")


def test_a_look_differs_exactly_when_a_file_does(store: RemoteStore, client: FakeClient) -> None:
    first, again = store.look("m"), store.look("m")
    client.put("models/m/1/model.py", b"two")
    changed = store.look("m")
    client.put("models/m/2/model.py", b"two")

    assert first == again
    assert first != changed
    assert changed != store.look("m")


def test_a_model_that_is_not_there(store: RemoteStore) -> None:
    assert store.look("nowhere") is None
    with pytest.raises(NotFound, match=f"model 'nowhere' not found in model repository {ROOT}"):
        store.fetch("nowhere")


def test_only_what_has_changed_is_copied_again(store: RemoteStore, client: FakeClient) -> None:
    first = store.fetch("m")
    client.read.clear()
    client.put("models/m/1/model.py", b"two")
    second = store.fetch("m")

    assert client.read == ["models/m/1/model.py"]
    assert (first.directory / "1/model.py").read_bytes() == b"one"
    assert (second.directory / "1/model.py").read_bytes() == b"two"
    assert (second.directory / "config.pbtxt").read_bytes() == b"config"


def test_what_arrived_before_a_store_failed_is_not_copied_again(
    store: RemoteStore, client: FakeClient
) -> None:
    for number in range(20):
        client.put(f"models/m/1/part{number}", b"x")

    def fail(key: str) -> None:
        if len(client.read) > 15:
            raise RuntimeError("kind: TimedOut")

    client.before_get = fail
    with pytest.raises(TritonError, match="no answer in time"):
        store.fetch("m")
    failed_after = len(client.read)
    client.before_get = lambda key: None
    client.read.clear()
    files = store.fetch("m")

    assert failed_after > 15
    assert len(client.read) <= 22 - 8  # eight at once may have been under way
    assert len(list((files.directory / "1").iterdir())) == 21


def test_files_that_have_gone_are_not_in_the_next_copy(store: RemoteStore, client: FakeClient) -> None:
    client.put("models/m/2/model.py", b"two")
    store.fetch("m")
    client.delete("models/m/2/model.py")

    assert not (store.fetch("m").directory / "2").exists()


def test_a_model_that_changes_while_it_is_copied_is_copied_again(
    store: RemoteStore, client: FakeClient
) -> None:
    changes = iter(range(3))

    def change(key: str) -> None:
        if key.endswith("model.py") and next(changes, None) is not None:
            client.put("models/m/config.pbtxt", b"changed %d" % len(client.read))

    client.before_get = change
    files = store.fetch("m")

    assert (files.directory / "config.pbtxt").read_bytes().startswith(b"changed")
    assert files.fingerprint == store.look("m")


def test_a_model_that_changes_all_the_time_is_given_up(store: RemoteStore, client: FakeClient) -> None:
    client.before_get = lambda key: client.put("models/m/config.pbtxt", b"changed %d" % len(client.read))

    with pytest.raises(Unavailable, match=f"model 'm' in {ROOT} changed while it was copied, 5 times"):
        store.fetch("m")


def test_two_fetches_at_once_give_two_directories(store: RemoteStore) -> None:
    found = []
    threads = [threading.Thread(target=lambda: found.append(store.fetch("m"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({files.directory for files in found}) == 4
    assert all((files.directory / "1/model.py").read_bytes() == b"one" for files in found)


def test_a_look_at_all_models_asks_once_for_each_and_once_for_their_names(
    store: RemoteStore, client: FakeClient
) -> None:
    asked: list[None] = []
    client.before_list = lambda: asked.append(None)

    for name in store.model_names():
        store.look(name)

    assert len(asked) == 1 + len(["m", "n"])


def test_a_bad_key_concerns_its_model_only(store: RemoteStore, client: FakeClient, tmp_path: Path) -> None:
    client.put("models/bad/1/back\\slash", b"x")
    good, bad = store.look("m"), store.look("bad")

    assert store.model_names() == ["bad", "m", "n"]
    assert good is not None
    assert bad is not None  # so that it is loaded, and the reason told
    with pytest.raises(InvalidArg, match="cannot be a file of a model"):
        store.fetch("bad")
    client.delete("models/bad/1/back\\slash")
    client.put("models/bad/1/model.py", b"x")
    assert store.look("bad") != bad


def test_a_prefix_without_objects_is_no_repository(store: RemoteStore, client: FakeClient) -> None:
    for page in client.memory.list("models"):
        for meta in page:
            client.delete(meta["path"])

    with pytest.raises(Internal, match=f"failed to stat file {ROOT}: no object in bucket 'bucket' begins"):
        store.model_names()


def test_a_repository_whose_last_model_has_gone_is_empty(store: RemoteStore, client: FakeClient) -> None:
    store.model_names()
    for page in client.memory.list("models"):
        for meta in page:
            client.delete(meta["path"])

    assert store.model_names() == []
    assert store.look("m") is None


def test_a_disk_without_room_is_found_before_anything_is_copied(
    store: RemoteStore, client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", ["total", "used", "free"])
    monkeypatch.setattr(remote.shutil, "disk_usage", lambda path: usage(100, 95, 5))

    with pytest.raises(Internal, match=r"does not fit on the disk of .*: 9 bytes are to be copied") as caught:
        store.fetch("m")

    assert "5 are free" in caught.value.message
    assert "TRITON_AWS_MOUNT_DIRECTORY" in caught.value.message
    assert client.read == []


def test_a_disk_that_is_full_in_the_middle_is_told(
    store: RemoteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(downloader: Downloader, wanted: object, done: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Downloader, "download", fill)

    with pytest.raises(Internal, match=f"'m' of {ROOT} cannot be copied to {tmp_path}: the disk is full"):
        store.fetch("m")

    assert list(tmp_path.glob("*/*/parts/*")) == list(tmp_path.glob("*/*/snapshots/*")) == []


def test_a_store_that_cannot_be_reached_is_told_with_its_name_and_without_secrets(
    store: RemoteStore, client: FakeClient
) -> None:
    def fail() -> None:
        raise RuntimeError("<Message>s3cr3t</Message> Connection refused s3cr3t")

    client.before_list = fail

    for call in (store.model_names, lambda: store.look("m"), lambda: store.fetch("m")):
        with pytest.raises(TritonError, match=f"{ROOT} cannot be reached: connection refused") as caught:
            call()
        assert caught.value.code is ErrorCode.UNAVAILABLE
        assert "s3cr3t" not in caught.value.message
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_a_stopped_store_takes_no_more_calls(store: RemoteStore) -> None:
    store.stop()

    with pytest.raises(Unavailable, match="the server stops"):
        store.fetch("m")


def test_a_closed_store_leaves_nothing(store: RemoteStore, tmp_path: Path) -> None:
    store.fetch("m")
    store.close()

    assert list(tmp_path.iterdir()) == []


def test_more_objects_than_a_model_has_are_refused(
    store: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_MOST_OBJECTS", 1)

    with pytest.raises(InvalidArg, match="over 1 objects begin with 'models/m/'; that is no model"):
        store.fetch("m")


def test_a_place_is_the_same_for_the_same_files(store: RemoteStore) -> None:
    assert store.place_of("m") == "s3://bucket/models/m"


def test_the_repr_of_a_store_shows_nothing(store: RemoteStore) -> None:
    assert repr(store).startswith("<tritonpy_store_cloud.remote.RemoteStore object at")


def test_a_strategy_in_a_copy_lies_inside_its_model(store: RemoteStore, client: FakeClient) -> None:
    for name in ("batchstrategy.py", "strategies/mine.py"):
        client.put(f"models/m/{name}", b"")
    directory = store.fetch("m").directory
    managers = [PluginManager(kind, discover=False) for kind in ("batching", "loaders")]
    finder = StrategyFinder(*managers, is_strict=True)
    backend: Any = SimpleNamespace()
    given = {"TRITON_BATCH_STRATEGY_PATH": {"string_value": "strategies/mine.py"}}

    for parameters, expected in (({}, "batchstrategy.py"), (given, "strategies/mine.py")):
        model = Model("m", 1, {"parameters": parameters}, directory, Backend("b"))
        with pytest.raises(
            InvalidArg, match=f"batching strategy '{directory}/{expected}' does not define all"
        ):
            finder.find(model, backend, is_strict=True)  # it was opened, and has no hooks
