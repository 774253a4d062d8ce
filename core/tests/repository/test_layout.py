from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.repository.layout import check_model_name, read_versions


@pytest.mark.parametrize("name", ["resnet", "a b", "ü", "model.onnx", "a..b", "~", "$HOME", "a\\b"])
def test_usual_and_unusual_names_are_names(name: str) -> None:
    check_model_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/a", "a/../b", "a\0b"])
def test_a_name_that_is_not_one_directory_is_none(name: str) -> None:
    with pytest.raises(InvalidArg, match="is no name of a model"):
        check_model_name(name)


def test_version_directories_are_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("0", "3", "10", "07", "abc", "-1", "warmup", "configs", "initial_state", ".git"):
        (tmp_path / name).mkdir()
    (tmp_path / "5").write_text("a file")

    with caplog.at_level(logging.WARNING):
        assert read_versions(tmp_path) == (0, 3, 10)

    assert sorted(record.getMessage().split("'")[1] for record in caplog.records) == ["-1", "07", "abc"]
