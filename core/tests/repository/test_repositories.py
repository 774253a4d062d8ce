from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.fingerprint import Fingerprint
from tritonpy.repository.layout import ModelKey
from tritonpy.repository.repositories import Repositories
from tritonpy.repository.stores.local import LocalStore


def make(root: Path, *names: str) -> str:
    for name in names:
        (root / name / "1").mkdir(parents=True)
    return str(root)


def test_a_model_is_found_in_whichever_repository_it_lies(tmp_path: Path) -> None:
    repositories = Repositories((make(tmp_path / "a", "one"), make(tmp_path / "b", "two"))).open()

    (found,) = repositories.find("two")

    assert (found.key, found.store.root) == (ModelKey("two"), str(tmp_path / "b"))
    assert found.fingerprint == {("1", 0, -1)}


def test_a_model_of_two_repositories_is_refused_unless_they_are_one(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a", "m"), make(tmp_path / "b", "m", "n")
    (tmp_path / "c").symlink_to(tmp_path / "a")

    with pytest.raises(InvalidArg, match="'m' is not unique across all model repositories"):
        Repositories((one, other)).open().find("m")
    assert len(Repositories((one, str(tmp_path / "c"))).open().find("m")) == 1
    look = Repositories((one, other)).open().look()
    assert list(look.found) == [ModelKey("n")]
    reason = f"model appears in two or more repositories: {one}/m and {other}/m"
    assert look.refused == {"m": reason}
    assert Repositories((one, other)).open().listed() == {ModelKey("m"): reason, ModelKey("n"): ""}


def test_with_namespaces_two_models_of_one_name_are_two_models(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a", "m"), make(tmp_path / "b", "m")
    repositories = Repositories((one, other), namespacing=True).open()

    keys = {ModelKey("m", one), ModelKey("m", other)}
    assert {found.key for found in repositories.find("m")} == keys
    look = repositories.look()
    assert (set(look.found), look.refused) == (keys, {})
    assert repositories.listed() == dict.fromkeys(keys, "")


@pytest.mark.parametrize("spelling", ["{a}", "{a}/", "{a}//", "{b}/../a", "{link}", "{link}/./"])
@pytest.mark.parametrize("namespacing", [False, True])
def test_a_directory_that_is_named_twice_is_one_repository(
    tmp_path: Path, spelling: str, namespacing: bool
) -> None:
    one = make(tmp_path / "a", "m")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "b").mkdir()
    other = spelling.format(a=one, b=tmp_path / "b", link=tmp_path / "link")
    repositories = Repositories((one, other), namespacing=namespacing).open()

    assert [found.store.root for found in repositories.find("m")] == [one]
    look = repositories.look()
    assert [key.name for key in look.found] == ["m"]
    assert look.refused == {}


def test_a_repository_inside_another_one_is_seen_as_a_model_of_it(tmp_path: Path) -> None:
    outer, inner = make(tmp_path, "x"), make(tmp_path / "inner", "y")

    assert {key.name for key in Repositories((outer, inner)).open().listed()} == {"inner", "x", "y"}


def test_a_relative_repository_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "a", "m")
    monkeypatch.chdir(tmp_path)

    assert len(Repositories(("a", str(tmp_path / "a"))).open().find("m")) == 1


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")

    with pytest.raises(NotFound, match="model 'm' not found in any model repository"):
        Repositories((str(tmp_path),)).open().find("m")
    assert Repositories((str(tmp_path),)).open().listed() == {}


def test_a_repository_that_cannot_be_read_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, gone, file = (
        make(tmp_path / "a", "one", "two", ".hidden"),
        str(tmp_path / "gone"),
        tmp_path / "file",
    )
    file.write_text("")
    repositories = Repositories((gone, root, str(file))).open()

    with caplog.at_level(logging.ERROR):
        assert repositories.listed() == {ModelKey("one"): "", ModelKey("two"): ""}

    assert "gone" in caplog.text
    look = repositories.look()
    assert set(look.found) == {ModelKey("one"), ModelKey("two")}
    assert {root: type(error) for root, error in look.unread.items()} == {
        gone: Internal,
        str(file): InvalidArg,
    }
    with pytest.raises(Internal, match="there is no such model repository"):
        repositories.check()


class Failing(LocalStore):
    """Lists its models, and then gives an error for each."""

    def __init__(self, root: str, error: TritonError) -> None:
        super().__init__(root)
        self.error = error
        self.asked: list[str] = []

    def look(self, name: str) -> Fingerprint | None:
        self.asked.append(name)
        raise self.error


@pytest.mark.parametrize(
    ("error", "asked"), [(Unavailable("no answer in time"), ["a"]), (Internal("forbidden"), ["a", "b", "c"])]
)
def test_a_store_that_has_not_answered_for_one_model_is_not_asked_for_the_others(
    tmp_path: Path, error: TritonError, asked: list[str]
) -> None:
    """Each would take as long, and models of other repositories would wait."""
    failing = Failing(make(tmp_path / "failing", "a", "b", "c"), error)
    good = LocalStore(make(tmp_path / "good", "d"))
    stores = {failing.root: failing, good.root: good}

    look = Repositories(list(stores), open_store=stores.__getitem__).open().look()

    assert failing.asked == asked
    assert look.unread == {failing.root: error}
    assert list(look.found) == [ModelKey("d")]
