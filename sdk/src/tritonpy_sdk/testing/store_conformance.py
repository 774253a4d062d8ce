"""The tests that every store has to pass."""

from __future__ import annotations

import inspect
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from tritonpy.errors import ErrorCode, TritonError, Unsupported, exception_text
from tritonpy.plugin_manager import Hook, PluginManager
from tritonpy.repository.stores.local import LocalStore
from tritonpy.store import LocalFiles, Store, StoreOptions

from tritonpy_sdk.testing.refusals import check_refusals
from tritonpy_sdk.testing.rules import rule
from tritonpy_sdk.testing.traces import (
    check_no_growth,
    no_temporary_files,
    nothing_printed,
    process_as_it_was,
)

_PAGE = "how-to/write-a-store.md"
_HOOKS = "reference/hooks.md"
_API = "reference/plugin-api.md"
_STORE = "store under test"

_NET: Mapping[str, bytes] = {
    "net/config.pbtxt": b'backend: "identity"\n',
    "net/1/weights": bytes(range(256)) * 4096,
    "net/1/empty": b"",
    "net/1/a/deep/folder/words.txt": "grüße\r\n".encode(),
    "net/1/with space": b" ",
    "net/10/weights": b"ten",
}
_FILES: Mapping[str, bytes] = {
    **_NET,
    "other/1/weights": b"other",
    "net-of-others/1/weights": b"none of net",
    ".hidden/1/weights": b"no model",
    "README": b"no model",
}

T = TypeVar("T")


class StoreConformance:
    """Subclass this in a test module and every rule of stores is tested with yours.

    ```python
    class TestXyz(StoreConformance, store="xyz", wrong_roots=["xyz://"]):
        def make_root(self, directory):
            return f"xyz://{directory}/models.zip"

        def put(self, root, files): ...  # write them, in the place of what is there
    ```

    Class arguments:
        store: the name of an installed one, or a module or object with the hooks. None for directories of
            this machine, or where `open` is overridden.
        environ: variables of the environment that it is opened with.
        secrets: further ones, whose values must not be shown anywhere.
        wrong_roots: roots that `store_open` has to refuse.
        lost_root: a root of the right form with nothing behind it, such as a file that does not exist.
        has_any_names: files may have names such as `../x` where they are kept, as in archives.
    """

    store: ClassVar[str | object | None]
    environ: Mapping[str, str]
    secrets: Mapping[str, str]
    wrong_roots: Sequence[str]
    lost_root: str | None
    has_any_names: bool

    def __init_subclass__(
        cls,
        *,
        store: str | object | None = None,
        environ: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        wrong_roots: Sequence[str] = (),
        lost_root: str | None = None,
        has_any_names: bool = False,
        **rest: object,
    ) -> None:
        super().__init_subclass__(**rest)
        cls.store = staticmethod(store) if inspect.isfunction(store) else store
        cls.environ = dict(environ or {})
        cls.secrets = dict(secrets or {})
        cls.wrong_roots = wrong_roots
        cls.lost_root = lost_root
        cls.has_any_names = has_any_names

    def make_root(self, directory: Path) -> str:
        """The root of a new repository.

        Args:
            directory: is empty and belongs to the test; for what the repository is kept in, if you like.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define make_root(directory) and put(root, files)"
        )

    def put(self, root: str, files: Mapping[str, bytes]) -> None:
        """Let the repository hold these files and no others; those that are the same are not written anew.

        Args:
            root: as `make_root` gave it.
            files: contents by path, such as `net/1/weights`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define make_root(directory) and put(root, files)"
        )

    def open(self, root: str, environ: Mapping[str, str]) -> Store:
        """Open a repository by the plugin's hook."""
        if self.store is None:
            return LocalStore(root)
        store: Store = self._hook("store_open", is_required=True)(root, StoreOptions(environ, timeout_s=5.0))
        return store

    # Opening.

    @rule(
        "store_open reads root and settings, and asks nothing of the place; the store keeps its root",
        "begin connections in the first call of a method, and set self.root to the root that was given",
        _HOOKS,
    )
    def test_it_is_opened_without_asking_its_place(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            root = self.make_root(Path(directory))  # and nothing is put there
            for each in (root, self.lost_root) if self.lost_root is not None else (root,):
                store = self.open(each, self.environ)
                for name in ("model_names", "place_of", "look", "fetch", "stop", "close"):
                    assert callable(getattr(store, name, None)), f"has no method '{name}'"
                assert store.root == each, f"has the root {store.root!r}; it was opened with {each!r}"
                store.stop()
                store.close()

    @rule(
        "store_open refuses a root of a wrong form by an error for the user",
        "raise InvalidArg with the root and what was expected behind ://",
        _PAGE,
    )
    def test_wrong_roots_are_refused_with_words(self) -> None:
        check_refusals(lambda root: self.open(root, self.environ), self.wrong_roots, "wrong_roots")

    @rule(
        "a place that cannot be reached fails the calls by errors that name the repository",
        "catch what the client raises and raise Unavailable, or Internal, with self.root and what would help",
        _API,
    )
    def test_a_place_that_is_not_there_is_named(self) -> None:
        lost_root = self.lost_root
        if lost_root is None:
            pytest.skip("the suite names no lost_root")
        store = self.open(lost_root, self.environ)
        try:
            for what, call in (
                ("model_names", store.model_names),
                ("fetch", lambda: store.fetch("net")),
            ):
                error = _error_of(call)
                assert error is not None, f"{what} found something behind '{lost_root}'"
                assert isinstance(error, TritonError), f"{what} raised {exception_text(error)}"
                assert lost_root in str(error), f"{what} raised an error without the repository: {error}"
        finally:
            store.stop()
            store.close()

    # Looking.

    @rule(
        "model_names gives the directories of the repository, sorted, without those that begin with a dot",
        "take what is before the first slash of each path, once, leave files at the top out, and sort",
        _API,
    )
    def test_models_are_the_directories_at_the_top(self) -> None:
        with self._repository() as (root, store):
            names: object = store.model_names()
            assert names == ["net", "net-of-others", "other"], f"named {names!r}"
            self.put(root, {path: content for path, content in _FILES.items() if path.startswith("other/")})
            names = store.model_names()
            assert names == ["other"], f"named {names!r} when the other models were gone"

    @rule(
        "look is None when there is no such model, and fetch raises NotFound that names it",
        "compare with the whole name and a slash, and raise NotFound with the name and self.root",
        _API,
    )
    def test_a_model_that_is_not_there_is_named(self) -> None:
        with self._repository() as (_, store):
            for name in ("none", "ne", "README"):
                seen: object = store.look(name)
                assert seen is None, f"look gave {seen!r} for '{name}', which is no model"
                error = _error_of(lambda name=name: store.fetch(name))  # type: ignore[misc]  # of this round
                assert isinstance(error, TritonError), (
                    f"fetch of '{name}', which is no model, came to {error!r}"
                )
                assert error.code is ErrorCode.NOT_FOUND, (
                    f"fetch of '{name}' raised {error.code.name}: {error}"
                )
                assert f"'{name}'" in str(error), (
                    f"fetch of '{name}' raised an error without its name: {error}"
                )

    @rule(
        "look gives the same as long as the files of the model are the same",
        "mark each file by what changes with its content: no time of the look, no order, no identity",
        _API,
    )
    def test_a_look_at_the_same_files_is_the_same(self) -> None:
        with self._repository() as (root, store):
            first = store.look("net")
            assert isinstance(first, frozenset), f"look gave {type(first).__name__}; expected a frozenset"
            assert store.look("net") == first, "looked at the same files, and gave another fingerprint"
            self.put(root, {**_FILES, "other/1/weights": b"changed", "net-of-others/2/weights": b"new"})
            assert store.look("net") == first, "gave another fingerprint when another model was changed"

    @rule(
        "look gives something else when a file of the model is changed, added, deleted or called otherwise",
        "have a mark of the content for each file, at any depth: a tag or checksum, not the size",
        _API,
    )
    def test_a_look_shows_every_change(self) -> None:
        changes: Mapping[str, Mapping[str, bytes]] = {
            "a file was changed": {**_FILES, "net/10/weights": b"11!"},
            "a deep file was changed": {**_FILES, "net/1/a/deep/folder/words.txt": b"12345678901"},
            "a file was added": {**_FILES, "net/1/new": b""},
            "a file was deleted": {path: _FILES[path] for path in _FILES if path != "net/10/weights"},
            "a file was called otherwise": {
                ("net/11/weights" if path == "net/10/weights" else path): _FILES[path] for path in _FILES
            },
        }
        with self._repository() as (root, store):
            before = store.look("net")
            for what, files in changes.items():
                self.put(root, files)
                assert store.look("net") != before, f"did not see that {what}"
                self.put(root, _FILES)
                before = store.look("net")

    @rule(
        "place_of gives the same text for the same files, and another for others",
        "make it of the place's full address and the model's name",
        _API,
    )
    def test_a_place_is_that_of_one_model(self) -> None:
        with self._repository() as (root, store):
            place: object = store.place_of("net")
            assert isinstance(place, str), f"place_of gave {place!r}"
            assert store.place_of("net") == place, "place_of gave two texts for one model"
            assert store.place_of("other") != place, f"place_of gave {place!r} for two models"
            again = self.open(root, self.environ)
            try:
                found = again.place_of("net")
                assert found == place, f"place_of gave {found!r} and {place!r} for one root, opened twice"
            finally:
                again.stop()
                again.close()
            with self._repository() as (other_root, other):
                assert other.place_of("net") != place, f"place_of is the same for {root} and {other_root}"

    # Fetching.

    @rule(
        "fetch brings all files of a model, as they lie in the repository, into a directory called like it",
        "make the directories above each file, write bytes, and leave nothing out that is empty or deep",
        _API,
    )
    def test_a_fetch_is_complete(self) -> None:
        wanted = {path.partition("/")[2]: content for path, content in _NET.items()}
        with self._repository() as (_, store):
            files = store.fetch("net")
            assert isinstance(files, LocalFiles), f"fetch gave {type(files).__name__}; expected LocalFiles"
            assert files.directory.name == "net", f"fetched 'net' into '{files.directory.name}'"
            got = _contents(files.directory)
            missing, further = sorted(wanted.keys() - got.keys()), sorted(got.keys() - wanted.keys())
            assert not missing, f"fetched a model without '{missing[0]}'"
            assert not further, f"fetched a model with '{further[0]}', which is not its file"
            for path, content in wanted.items():
                assert got[path] == content, (
                    f"fetched '{path}' with other bytes than it has in the repository"
                )

    @rule(
        "the fingerprint that fetch gives is that of the files it has brought",
        "give what look gives, seen after the last file was copied, or None if files stay where they are",
        _API,
    )
    def test_a_fetch_tells_what_it_brought(self) -> None:
        with self._repository() as (root, store):
            for files in (_FILES, {**_FILES, "net/10/weights": b"11!"}):
                self.put(root, files)
                fetched = store.fetch("net")
                if fetched.fingerprint is None:
                    pytest.skip("files stay where they are")
                assert fetched.fingerprint == store.look("net"), "fetch gave another fingerprint than look"

    @rule(
        "what a fetch gave is not changed by later ones, nor by changes of the repository",
        "make a new directory for each fetch, with TemporaryDirectories, and say is_temporary=True",
        _API,
    )
    def test_what_was_fetched_stays_as_it_is(self) -> None:
        with self._repository() as (root, store):
            first = store.fetch("net")
            if first.fingerprint is None:
                pytest.skip("files stay where they are")
            before = _contents(first.directory)
            self.put(root, {"net/1/weights": b"changed"})
            second = store.fetch("net")
            assert _contents(first.directory) == before, "changed the files of an earlier fetch"
            assert _contents(second.directory) == {"1/weights": b"changed"}, (
                "fetched other files than there are"
            )
            if first.is_temporary:
                shutil.rmtree(first.directory.parent)  # as the server does when the model is gone
                assert _contents(second.directory) == {"1/weights": b"changed"}, (
                    "lays two fetches into one directory, which the server removes after the first"
                )

    @rule(
        "no file of a model is written outside of its directory, whatever it is called in the repository",
        "refuse by InvalidArg a path that is absolute or has '..', or leave it out",
        _PAGE,
    )
    def test_names_do_not_lead_out_of_the_model(self) -> None:
        if not self.has_any_names:
            pytest.skip("the suite does not say has_any_names")
        mark = "escaped-from-its-model"
        with self._repository() as (root, store):
            for path in (f"net/../{mark}", f"net/../../{mark}", f"net/1/../../../{mark}"):
                self.put(root, {**_NET, path: b"!"})
                outcome = _outcome_of(lambda: store.fetch("net"))
                if isinstance(outcome, LocalFiles):
                    outside = [above for above in outcome.directory.parents[:3] if (above / mark).exists()]
                    for above in outside:
                        (above / mark).unlink()
                    assert not outside, f"wrote '{path}' outside of the directory of its model"
                else:
                    assert isinstance(outcome, TritonError), (
                        f"fetch raised {exception_text(outcome)} for '{path}'"
                    )

    # Side by side, and the end.

    @rule(
        "several calls are made at once, on threads of their own",
        "give each call a connection or cursor of its own, or guard what they share with a lock",
        _HOOKS,
    )
    def test_calls_are_made_at_the_same_time(self) -> None:
        with self._repository() as (_, store), ThreadPoolExecutor(8) as threads:
            look, other = store.look("net"), store.look("other")
            wanted = _contents(store.fetch("net").directory)
            fetches = [threads.submit(store.fetch, "net") for _ in range(4)]
            looks = [threads.submit(store.look, name) for name in ("net", "other") * 8]
            names = [threads.submit(store.model_names) for _ in range(4)]
            assert [each.result() for each in looks] == [look, other] * 8, "looked otherwise at the same time"
            assert all(each.result() == ["net", "net-of-others", "other"] for each in names), (
                "named other models while it was asked for others"
            )
            for each in fetches:
                assert _contents(each.result().directory) == wanted, "fetched other files at the same time"

    @rule(
        "stop ends fetches under way and refuses later ones, and close follows; neither raises",
        "let calls that are made after stop raise Unavailable, and let any thread call both",
        _API,
    )
    def test_it_ends_without_an_accident(self) -> None:
        with self._repository() as (_, store):
            store.fetch("net")
            store.stop()
            outcome = _outcome_of(lambda: store.fetch("net"))
            assert isinstance(outcome, LocalFiles | TritonError), (
                f"fetch raised {exception_text(outcome)} after stop"
            )
            store.stop()

    @rule(
        "close leaves nothing on the disk",
        "remove there what fetch has made: TemporaryDirectories.close() does",
        _API,
    )
    def test_nothing_is_left_on_the_disk(self) -> None:
        with no_temporary_files():
            with self._repository() as (_, store):
                files = [store.fetch("net"), store.fetch("other")]
            left = [each.directory for each in files if each.is_temporary and each.directory.exists()]
            assert not left, f"left '{left[0].name}' of a fetch on the disk"

    @rule(
        "a server that stops gets back all that a store holds",
        "close clients and end threads in close()",
        _API,
    )
    def test_nothing_grows_with_the_number_of_servers(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            root = self.make_root(Path(directory))
            self.put(root, _FILES)

            def live() -> None:
                store = self.open(root, self.environ)
                store.model_names()
                store.look("net")
                files = store.fetch("other")
                if files.is_temporary:
                    shutil.rmtree(files.directory.parent)
                store.stop()
                store.close()

            check_no_growth(live, "each life of a server")

    # What it must not do.

    @rule(
        "values of secret variables are shown nowhere, and their names are declared",
        "name the variables in store_secret_variables, and put no value of them into a text",
        _HOOKS,
    )
    def test_secrets_are_kept(self) -> None:
        if not self.secrets:
            pytest.skip("the suite names no secrets")
        declare = self._hook("store_secret_variables")
        declared = list(declare()) if declare is not None else []
        odd = [name for name in declared if not isinstance(name, str)]
        assert not odd, f"declared {odd[0]!r} as a secret variable"
        open_ones = sorted(self.secrets.keys() - set(declared))
        assert not open_ones, f"does not declare '{open_ones[0]}' as a secret variable"

        environ = {**self.environ, **self.secrets}
        texts: list[str] = []
        with _logged(texts), tempfile.TemporaryDirectory() as directory:
            root = self.make_root(Path(directory))
            self.put(root, _FILES)
            for each in (root, *self.wrong_roots, *([self.lost_root] if self.lost_root else [])):
                texts += self._texts_of(each, environ)
        for name, value in self.secrets.items():
            showing = [text for text in texts if value in text]
            assert not showing, f"shows the value of '{name}': {showing[0].replace(value, '***')}"

    @rule(
        "standard output belongs to the server",
        "use logging.getLogger(__name__), which the server's log takes",
        _PAGE,
    )
    def test_nothing_is_printed(self) -> None:
        with nothing_printed(), self._repository() as (_, store):
            store.model_names()
            store.look("net")
            store.fetch("net")

    @rule(
        "what all of a process share belongs to the server",
        "give paths, modes and limits to functions instead of changing those of the process",
        _HOOKS,
    )
    def test_the_process_stays_as_it_was(self) -> None:
        with process_as_it_was(), self._repository() as (_, store):
            store.model_names()
            store.fetch("net")

    # How.

    def _hook(self, name: str, *, is_required: bool = False) -> Hook:
        store = type(self).store
        if inspect.isfunction(store):
            store = store()
        manager = PluginManager("stores", discover=isinstance(store, str))
        if not isinstance(store, str):
            manager.register(_STORE, store)
        hook = manager.bind(manager.load(store if isinstance(store, str) else _STORE), name)
        if hook is None and is_required:
            raise Unsupported(f"the store does not implement {name}")
        return hook  # type: ignore[return-value]  # None where it is not required

    @contextmanager
    def _repository(self) -> Iterator[tuple[str, Store]]:
        """A repository with models, and its store, which is ended afterwards."""
        with tempfile.TemporaryDirectory() as directory:
            root = self.make_root(Path(directory))
            self.put(root, _FILES)
            store = self.open(root, self.environ)
            try:
                yield root, store
            finally:
                store.stop()
                store.close()

    def _texts_of(self, root: str, environ: Mapping[str, str]) -> Iterator[str]:
        """What can be read of a repository from outside."""
        try:
            store = self.open(root, environ)
        except Exception as exc:
            yield exception_text(exc)
            return
        yield store.root
        yield store.place_of("net")
        for call in (store.model_names, lambda: store.look("net"), lambda: store.fetch("none")):
            error = _error_of(call)
            if error is not None:
                yield exception_text(error)
        store.stop()
        store.close()


def _error_of(call: Callable[[], object]) -> Exception | None:
    outcome = _outcome_of(call)
    return outcome if isinstance(outcome, Exception) else None


def _outcome_of(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except Exception as exc:
        return exc


def _contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@contextmanager
def _logged(texts: list[str]) -> Iterator[None]:
    """Collect the lines that are logged meanwhile, whatever their level."""

    class _Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            """Keep the line."""
            texts.append(self.format(record))

    collector, root = _Collector(), logging.getLogger()
    level = root.level
    root.addHandler(collector)
    root.setLevel(logging.NOTSET)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(collector)
