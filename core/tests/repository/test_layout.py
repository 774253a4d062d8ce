from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.repository.layout import check_model_name, find_model, list_models, read_repositories


def make(root: Path, *names: str) -> str:
    for name in names:
        (root / name / "1").mkdir(parents=True)
    return str(root)


def test_a_model_is_found_in_whichever_repository_it_lies(tmp_path: Path) -> None:
    roots = (make(tmp_path / "a", "one"), make(tmp_path / "b", "two"))

    found = find_model(roots, "two")

    assert (found.name, found.path, found.versions) == ("two", tmp_path / "b/two", (1,))


def test_a_model_of_two_repositories_is_refused_unless_they_are_one(tmp_path: Path) -> None:
    one, other = make(tmp_path / "a", "m"), make(tmp_path / "b", "m")
    (tmp_path / "c").symlink_to(tmp_path / "a")

    with pytest.raises(InvalidArg, match="'m' is not unique across all model repositories"):
        find_model((one, other), "m")
    assert find_model((one, str(tmp_path / "c")), "m").path == tmp_path / "a/m"
    models, refused = read_repositories((one, other))
    assert models == []
    assert list(refused) == ["m"]


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")

    with pytest.raises(NotFound, match="model 'm' not found in any model repository"):
        find_model((str(tmp_path),), "m")


@pytest.mark.parametrize("name", ["resnet", "a b", "ü", "model.onnx", "a..b", "~", "$HOME", "a\\b"])
def test_usual_and_unusual_names_are_names(name: str) -> None:
    check_model_name(name)


def test_listing_skips_what_is_no_model_and_repositories_that_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = make(tmp_path / "a", "one", "two", ".hidden")
    (tmp_path / "a/file").write_text("")

    with caplog.at_level(logging.ERROR):
        found = list_models((str(tmp_path / "gone"), root))

    assert found == {"one": tmp_path / "a/one", "two": tmp_path / "a/two"}
    assert "gone" in caplog.text
