from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.repository.layout import check_model_name, read_versions


@pytest.mark.parametrize("name", ["resnet", "a b", "ü", "model.onnx", "a..b", "~", "$HOME", "a\\b"])
def test_usual_and_unusual_names_are_names(name: str) -> None:
    check_model_name(name)


def test_a_name_is_as_long_as_file_systems_take(tmp_path: Path) -> None:
    check_model_name("n" * 255)
    for name in ("n" * 256, "ü" * 128, "n" * 1_000_000):
        with pytest.raises(InvalidArg, match="of at most 255 bytes") as error:
            check_model_name(name)
        assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("", " ", "\t\n"), "Model name cannot be empty. Please enter a valid name to deploy."),
        ((".", "..", "a/b", "/a", "a/../b"), "model name must not contain path traversal characters"),
        ((".hidden", "a\0b"), "is no name of a model"),
    ],
)
def test_a_name_that_is_not_one_directory_is_none(names: tuple[str, ...], text: str) -> None:
    for name in names:
        with pytest.raises(InvalidArg, match=re.escape(text)):
            check_model_name(name)


_NO_NUMBER = "fails to convert to integral number"
_LEADING_ZERO = "contains leading zeros in its directory name"


@pytest.mark.parametrize(
    ("name", "objection"),
    [
        *((name, "") for name in ("0", "3", "10", "4294967297", "9223372036854775807")),
        *((name, _LEADING_ZERO) for name in ("00", "07", "0000000000000000000000001")),
        *(
            (name, _NO_NUMBER)
            for name in ("abc", "-1", "-0", "+3", "1x", "x1", " 1", "1 ", "1.0", "0x10", "1_0")
        ),
        *(
            (name, _NO_NUMBER) for name in ("\u0661", "\uff11", "\u00b2", "1e3", "v1")
        ),  # digits of other scripts
        *((name, _NO_NUMBER) for name in ("9223372036854775808", "9" * 100, "9" * 255)),
    ],
)
def test_a_version_directory_is_a_number_of_64_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, objection: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "2").mkdir(exist_ok=True)

    with caplog.at_level(logging.WARNING):
        versions = read_versions(tmp_path)

    assert versions == ((2,) if objection else tuple(sorted({2, int(name)})))
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == bool(objection)
    if objection:
        assert warnings[0].startswith(f"ignore version directory '{name}' which {objection}")
        assert warnings[0].endswith(f", of model '{tmp_path.name}'")


def test_what_is_no_version_by_its_kind_is_passed_over_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("1", "warmup", "configs", "initial_state", "__pycache__", ".git", ".ipynb_checkpoints"):
        (tmp_path / name).mkdir()
    (tmp_path / "5").write_text("a file")
    (tmp_path / "6").symlink_to("nowhere")
    (tmp_path / "7").symlink_to("7")
    (tmp_path / "8").symlink_to("1")

    with caplog.at_level(logging.WARNING):
        assert read_versions(tmp_path) == (1, 8)

    assert caplog.records == []
