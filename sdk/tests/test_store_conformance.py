"""A right store passes every check of the kit; each wrong one is named with what to do about it."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from tritonpy.plugin import (
    Internal,
    InvalidArg,
    LocalFiles,
    NotFound,
    TemporaryDirectories,
    Unavailable,
    hookimpl,
)
from tritonpy_sdk.testing import DEADLINE_S, PluginFault, StoreConformance
from tritonpy_sdk.testing.rules import rules_of

SHELVES: dict[str, dict[str, bytes]] = {}
"""The files of all repositories, by what is behind `shelf://`."""
NUMBERS = itertools.count()
SECRET = "open sesame"


class ShelfStore:
    """Models that lie in a dict."""

    def __init__(self, root, options):
        self.root = root
        self.options = options
        self.copies = TemporaryDirectories()
        self.is_stopped = False

    @property
    def files(self):
        try:
            return SHELVES[self.root.partition("://")[2]]
        except KeyError:
            raise Internal(f"there is no shelf {self.root}") from None

    def of(self, name):
        files = {path: content for path, content in self.files.items() if path.startswith(f"{name}/")}
        return {path.removeprefix(f"{name}/"): content for path, content in files.items()}

    def mark(self, path, content):
        return (path, hashlib.sha256(content).hexdigest(), len(content))

    def model_names(self):
        names = {path.partition("/")[0] for path in self.files if "/" in path}
        return sorted(name for name in names if not name.startswith("."))

    def place_of(self, name):
        return f"{self.root}/{name}"

    def look(self, name):
        return frozenset(self.mark(path, content) for path, content in self.of(name).items()) or None

    def directory(self, name):
        return self.copies.make("shelf-") / name

    def write(self, directory, path, content):
        if ".." in path.split("/"):
            raise InvalidArg(f"{self.root}: {path} leads out of its model")
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(content)

    def check(self, name):
        if self.is_stopped:
            raise Unavailable("the server stops")
        if self.look(name) is None:
            raise NotFound(f"model '{name}' not found in model repository {self.root}")

    def fetch(self, name):
        self.check(name)
        directory = self.directory(name)
        files = self.of(name)
        for path, content in files.items():
            self.write(directory, path, content)
        return LocalFiles(directory, self.look(name), is_temporary=True)

    def stop(self):
        self.is_stopped = True

    def close(self):
        self.copies.close()


class Shelf:
    store = ShelfStore

    @hookimpl
    def store_open(self, root, options):
        if not root.partition("://")[2]:
            raise InvalidArg(f"model repository {root}: expected the name of a shelf behind ://")
        return self.store(root, options)

    @hookimpl
    def store_secret_variables(self):
        return ["SHELF_KEY"]


def shelf(**changes):
    """A plugin whose store differs from the right one by these methods."""
    return type("Wrong", (Shelf,), {"store": type("WrongStore", (ShelfStore,), changes)})


class AsksWhenOpened(Shelf):
    @hookimpl
    def store_open(self, root, options):
        opened = Shelf.store_open(self, root, options)
        opened.model_names()
        return opened


class TakesAnyRoot(Shelf):
    @hookimpl
    def store_open(self, root, options):
        return self.store(root, options)


class TellsNoSecret(Shelf):
    @hookimpl
    def store_secret_variables(self):
        return []


class ShowsItsSecret(Shelf):
    @hookimpl
    def store_open(self, root, options):
        if root.endswith("://"):
            raise InvalidArg(f"model repository {root} with {options.environ['SHELF_KEY']}")
        return self.store(root, options)


def other_root(self, root, options):
    ShelfStore.__init__(self, root, options)
    self.root = root.lower() + "/"


def lost_key(self):
    return sorted({path.partition("/")[0] for path in SHELVES[self.root.partition("://")[2]]})


def nameless(self):
    if self.root.partition("://")[2] not in SHELVES:
        raise Unavailable("cannot connect")
    return ShelfStore.model_names(self)


def all_names(self):
    return sorted({path.partition("/")[0] for path in self.files})


def unsorted_names(self):
    return ShelfStore.model_names(self)[::-1]


def remembered_names(self):
    self.names = getattr(self, "names", None) or ShelfStore.model_names(self)
    return self.names


def of_prefix(self, name):
    files = {path: content for path, content in self.files.items() if path.startswith(name)}
    return {path.removeprefix(name).lstrip("/"): content for path, content in files.items()}


def missing_key(self, name):
    if name not in ShelfStore.model_names(self):
        raise KeyError(name)


def missing_without_a_name(self, name):
    if self.look(name) is None:
        raise NotFound("no such model")


def look_by_the_clock(self, name):
    return ShelfStore.look(self, name) and frozenset({("", str(next(NUMBERS)), 0)})


def look_at_all(self, name):
    if ShelfStore.look(self, name) is None:
        return None
    return frozenset(self.mark(path, content) for path, content in self.files.items())


def look_in_a_list(self, name):
    return sorted(ShelfStore.look(self, name) or ()) or None


def look_at_sizes(self, name):
    return frozenset((path, 0, len(content)) for path, content in self.of(name).items()) or None


def look_at_the_top(self, name):
    found = {path: content for path, content in self.of(name).items() if path.count("/") < 2}
    return frozenset(self.mark(path, content) for path, content in found.items()) or None


def look_at_names_only(self, name):
    return (
        frozenset((path.rpartition("/")[2], 0, hash(content)) for path, content in self.of(name).items())
        or None
    )


def place_of_this_store(self, name):
    return f"{id(self)}/{name}"


def place_without_root(self, name):
    return f"shelf/{name}"


def skip_empty(self, directory, path, content):
    if content:
        ShelfStore.write(self, directory, path, content)


def write_text(self, directory, path, content):
    text = content.decode(errors="replace").replace("\r\n", "\n")
    ShelfStore.write(self, directory, path, text.encode())


def write_note(self, directory, path, content):
    ShelfStore.write(self, directory, path, content)
    (directory / "fetched").touch()


def write_anywhere(self, directory, path, content):
    (directory / path).parent.mkdir(parents=True, exist_ok=True)
    (directory / path).write_bytes(content)


def write_with_a_trace(self, directory, path, content):
    if ".." in path:
        raise ValueError(path)
    ShelfStore.write(self, directory, path, content)


def directory_without_name(self, name):
    return self.copies.make("shelf-")


def one_directory(self, name):
    self.only = getattr(self, "only", None) or self.copies.make("shelf-")
    shutil.rmtree(self.only / name, ignore_errors=True)
    return self.only / name


def inside_the_first(self, name):
    if not hasattr(self, "only"):
        self.only = self.copies.make("shelf-")
        return self.only / name
    return self.only / str(next(NUMBERS)) / name


def own_directory(self, name):
    return Path(tempfile.mkdtemp()) / name


def fetch_before_look(self, name):
    fetched = ShelfStore.fetch(self, name)
    self.seen = getattr(self, "seen", fetched.fingerprint)
    return LocalFiles(fetched.directory, self.seen, is_temporary=True)


class OneCursor(ShelfStore):
    """As a client that has one cursor, and says so when two threads use it."""

    def __init__(self, root, options):
        super().__init__(root, options)
        self.count = itertools.count()
        self.cursor = threading.Lock()
        self.intruded = threading.Event()

    def look(self, name):
        if not self.cursor.acquire(blocking=False):
            self.intruded.set()
            raise RuntimeError("recursive use of cursors")
        try:
            if next(self.count) >= 4:  # two looks and a fetch, with two more, were made one after the other
                self.intruded.wait(DEADLINE_S / 10)
            return super().look(name)
        finally:
            self.cursor.release()


class OneCursorPlugin(Shelf):
    store = OneCursor


class ClosesWhenStopped(ShelfStore):
    def stop(self):
        self.copies = None

    def fetch(self, name):
        return super().fetch(name if self.copies.make else "")

    def close(self):
        pass


class ClosesWhenStoppedPlugin(Shelf):
    store = ClosesWhenStopped


def open_for_ever(self, root, options):
    ShelfStore.__init__(self, root, options)
    KEPT.append(open(__file__, "rb"))  # noqa: SIM115


KEPT = []


def print_names(self):
    print("asked")
    return ShelfStore.model_names(self)


def fetch_where_it_works(self, name):
    fetched = ShelfStore.fetch(self, name)
    os.chdir(fetched.directory)
    return fetched


def fetch_and_log_the_key(self, name):
    import logging

    logging.getLogger("shelf").debug("%s", self.options.environ)
    return ShelfStore.fetch(self, name)


IN = "models_are_the_directories_at_the_top"
WRONG = [
    (AsksWhenOpened, "it_is_opened_without_asking_its_place", "there is no shelf", "in the first call"),
    (shelf(__init__=other_root), "it_is_opened_without_asking_its_place", "has the root", "set self.root"),
    (shelf(stop=None), "it_is_opened_without_asking_its_place", "has no method 'stop'", "begin connections"),
    (TakesAnyRoot, "wrong_roots_are_refused_with_words", "took 'shelf://'", "raise InvalidArg"),
    (shelf(model_names=lost_key), "a_place_that_is_not_there_is_named", "KeyError", "catch what the client"),
    (
        shelf(model_names=nameless),
        "a_place_that_is_not_there_is_named",
        "without the repository",
        "self.root",
    ),
    (shelf(model_names=all_names), IN, "'README'", "before the first slash"),
    (shelf(model_names=unsorted_names), IN, "named ['other', 'net-of-others', 'net']", "and sort"),
    (shelf(model_names=remembered_names), IN, "when the other models were gone", "before the first slash"),
    (shelf(of=of_prefix), "a_model_that_is_not_there_is_named", "for 'ne', which is no", "the whole name"),
    (shelf(check=missing_key), "a_model_that_is_not_there_is_named", "KeyError('none')", "raise NotFound"),
    (
        shelf(check=missing_without_a_name),
        "a_model_that_is_not_there_is_named",
        "without its name",
        "with the name",
    ),
    (shelf(look=look_by_the_clock), "a_look_at_the_same_files_is_the_same", "looked at the same", "no time"),
    (
        shelf(look=look_at_all),
        "a_look_at_the_same_files_is_the_same",
        "another model was changed",
        "its content",
    ),
    (shelf(look=look_in_a_list), "a_look_at_the_same_files_is_the_same", "look gave list", "mark each file"),
    (shelf(look=look_at_sizes), "a_look_shows_every_change", "that a file was changed", "not the size"),
    (
        shelf(look=look_at_the_top),
        "a_look_shows_every_change",
        "that a deep file was changed",
        "at any depth",
    ),
    (shelf(look=look_at_names_only), "a_look_shows_every_change", "was called otherwise", "for each file"),
    (shelf(place_of=place_of_this_store), "a_place_is_that_of_one_model", "opened twice", "full address"),
    (shelf(place_of=place_without_root), "a_place_is_that_of_one_model", "is the same for", "full address"),
    (shelf(write=skip_empty), "a_fetch_is_complete", "without '1/empty'", "leave nothing out"),
    (shelf(write=write_text), "a_fetch_is_complete", "with other bytes", "write bytes"),
    (shelf(write=write_note), "a_fetch_is_complete", "with 'fetched'", "leave nothing out"),
    (
        shelf(directory=directory_without_name),
        "a_fetch_is_complete",
        "fetched 'net' into 'shelf-",
        "make the",
    ),
    (
        shelf(fetch=fetch_before_look),
        "a_fetch_tells_what_it_brought",
        "another fingerprint than look",
        "look gives",
    ),
    (
        shelf(directory=one_directory),
        "what_was_fetched_stays_as_it_is",
        "of an earlier fetch",
        "a new directory",
    ),
    (shelf(directory=inside_the_first), "what_was_fetched_stays_as_it_is", "two fetches into one", "a new"),
    (
        shelf(write=write_anywhere),
        "names_do_not_lead_out_of_the_model",
        "outside of the directory",
        "refuse by",
    ),
    (
        shelf(write=write_with_a_trace),
        "names_do_not_lead_out_of_the_model",
        "raised ValueError",
        "InvalidArg",
    ),
    (OneCursorPlugin, "calls_are_made_at_the_same_time", "recursive use of cursors", "of its own"),
    (ClosesWhenStoppedPlugin, "it_ends_without_an_accident", "AttributeError", "raise Unavailable"),
    (shelf(close=lambda self: None), "nothing_is_left_on_the_disk", "of a fetch on the disk", "close() does"),
    (shelf(directory=own_directory), "nothing_is_left_on_the_disk", "left 'net' of a fetch", "close() does"),
    (
        shelf(__init__=open_for_ever),
        "nothing_grows_with_the_number_of_servers",
        "more file desc",
        "close clients",
    ),
    (TellsNoSecret, "secrets_are_kept", "does not declare 'SHELF_KEY'", "store_secret_variables"),
    (ShowsItsSecret, "secrets_are_kept", "shelf:// with ***", "no value of them"),
    (shelf(fetch=fetch_and_log_the_key), "secrets_are_kept", "shows the value of 'SHELF_KEY'", "no value"),
    (shelf(model_names=print_names), "nothing_is_printed", "wrote 'asked", "logging.getLogger"),
    (shelf(fetch=fetch_where_it_works), "the_process_stays_as_it_was", "the working directory", "give paths"),
]
CHECKS = [name for name, _ in rules_of(StoreConformance)]


@pytest.fixture
def little_patience(monkeypatch):
    monkeypatch.setattr("tritonpy_sdk.testing.traces._GRACE_S", 0.0)
    yield
    while KEPT:
        KEPT.pop().close()


def run(plugin, check):
    class Suite(
        StoreConformance,
        store=plugin(),
        secrets={"SHELF_KEY": SECRET},
        wrong_roots=["shelf://"],
        lost_root="shelf://nowhere",
        has_any_names=True,
    ):
        def make_root(self, directory):
            return f"shelf://Shelf{next(NUMBERS)}"

        def put(self, root, files):
            SHELVES[root.partition("://")[2]] = dict(files)

    getattr(Suite(), check)()


@pytest.mark.parametrize("check", CHECKS)
def test_right_store_passes(check):
    run(Shelf, check)


@pytest.mark.parametrize(("plugin", "check", "did", "remedy"), WRONG)
def test_wrong_store_is_named_with_what_to_do(plugin, check, did, remedy, little_patience):
    with pytest.raises(PluginFault) as caught:
        run(plugin, f"test_{check}")

    assert did in caught.value.did
    assert remedy in caught.value.rule.remedy
    assert SECRET not in str(caught.value)


def test_every_check_of_the_kit_can_fail():
    assert {f"test_{check}" for _, check, _, _ in WRONG} == set(CHECKS)


def test_a_suite_says_what_it_lacks():
    class Suite(StoreConformance, store=Shelf()): ...

    with pytest.raises(PluginFault, match=r"Suite must define make_root\(directory\) and put"):
        Suite().test_a_fetch_is_complete()
    for check in (
        "secrets_are_kept",
        "a_place_that_is_not_there_is_named",
        "wrong_roots_are_refused_with_words",
    ):
        with pytest.raises(pytest.skip.Exception, match="the suite names no"):
            getattr(Suite(), f"test_{check}")()


def test_a_plugin_without_the_hook_is_told():
    class Suite(StoreConformance, store=object()):
        def make_root(self, directory):
            return "x://y"

        def put(self, root, files):
            pass

    with pytest.raises(PluginFault, match="store_open"):
        Suite().test_a_fetch_is_complete()
