from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import InvalidArg
from tritonpy_store_cloud.tree import StoredObject, Tree, build_tree, check_path


def tree(*keys: str, directories: dict[str, list[str]] | None = None, sizes: int = 3) -> Tree | None:
    """Keys that end in `0` are empty."""
    objects = [StoredObject(key, f"tag of {key}", 0 if key.endswith("0") else sizes) for key in keys]
    return build_tree(objects, "r/m", lambda key: (directories or {}).get(key, []))


def test_keys_become_files_and_directories() -> None:
    found = tree("r/m/config.pbtxt", "r/m/1/model.py", "r/m/1/deep/er/data")

    assert found is not None
    assert set(found.files) == {"config.pbtxt", "1/model.py", "1/deep/er/data"}
    assert found.directories == {"1", "1/deep", "1/deep/er"}


def test_no_object_is_no_model() -> None:
    assert tree() is None


def test_a_marker_of_the_models_directory_is_a_model_without_files() -> None:
    assert tree("r/m") == Tree({}, frozenset())


def test_an_empty_object_is_a_directory_where_the_store_lists_it_as_one() -> None:
    found = tree("r/m/10", "r/m/empty0", directories={"r/m": ["r/m/10"]})

    assert found is not None
    assert set(found.files) == {"empty0"}
    assert found.directories == {"10"}


def test_an_empty_object_before_other_keys_is_a_directory() -> None:
    found = tree("r/m/10", "r/m/10/model.py")

    assert found is not None
    assert set(found.files) == {"10/model.py"}
    assert found.directories == {"10"}


def test_an_object_with_content_before_other_keys_is_refused() -> None:
    with pytest.raises(
        InvalidArg, match="'r/m/1' is both an object with content and the beginning of other keys"
    ):
        tree("r/m/1", "r/m/1/model.py")


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "a//b",
        "a/./b",
        "a\0b",
        "a\\..\\b",
        "n" * 256,
        "ü" * 128,
        "/".join(["long"] * 500),
    ],
)
def test_keys_that_no_directory_could_hold_are_refused(path: str) -> None:
    with pytest.raises(InvalidArg, match=r"the object 'r/m/.*cannot be a file of a model"):
        tree(f"r/m/{path}")


PARTS = st.sampled_from(["..", ".", "", "a", "1", "\\", "\0", "...", " ", "~", "ü"])


@given(st.lists(PARTS, max_size=6).map("/".join))
def test_no_path_that_is_taken_leads_out_of_the_directory(path: str) -> None:
    try:
        check_path(path, path)
    except InvalidArg:
        return

    assert posixpath.normpath(f"/directory/{path}") == f"/directory/{path}"


def test_long_names_of_objects_are_cut_in_errors() -> None:
    with pytest.raises(InvalidArg) as caught:
        check_path("n" * 5000, "n" * 5000)

    assert len(caught.value.message) < 500


def test_a_fingerprint_holds_tags_sizes_and_directories_but_nothing_hidden() -> None:
    found = tree("r/m/1/model.py", "r/m/1/__pycache__/model.pyc", "r/m/.swp", "r/m/.git/x")

    assert found is not None
    assert found.fingerprint == {("1", 0, -1), ("1/model.py", "tag of r/m/1/model.py", 3)}
