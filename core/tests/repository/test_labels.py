from __future__ import annotations

from pathlib import Path

import pytest
from tritonpy.errors import Internal
from tritonpy.repository.labels import read_labels


def test_a_line_is_a_label_whatever_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"cat\nbig dog\n\n  lead\ncrlf\r\n\xff\nlast")
    config = {"output": [{"name": "OUTPUT0", "label_filename": "labels.txt"}, {"name": "OUTPUT1"}]}

    labels = read_labels(config, tmp_path)

    assert labels == {"OUTPUT0": [b"cat", b"big dog", b"", b"  lead", b"crlf\r", b"\xff", b"last"]}


def test_the_end_of_the_last_line_begins_no_other(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_bytes(b"cat\ndog\n")
    (tmp_path / "empty.txt").write_bytes(b"")
    config = {
        "output": [
            {"name": "OUTPUT0", "label_filename": "labels.txt"},
            {"name": "OUTPUT1", "label_filename": "empty.txt"},
        ]
    }

    assert read_labels(config, tmp_path) == {"OUTPUT0": [b"cat", b"dog"], "OUTPUT1": []}


def test_a_model_without_label_files_has_none(tmp_path: Path) -> None:
    assert read_labels({"output": [{"name": "OUTPUT0", "label_filename": ""}]}, tmp_path) == {}
    assert read_labels({}, tmp_path) == {}


def test_a_missing_label_file_is_named(tmp_path: Path) -> None:
    config = {"output": [{"name": "OUTPUT0", "label_filename": "nope.txt"}]}

    with pytest.raises(
        Internal, match=f"failed to open text file for read {tmp_path}/nope.txt: No such file"
    ):
        read_labels(config, tmp_path)
