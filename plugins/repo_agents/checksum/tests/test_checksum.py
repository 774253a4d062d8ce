from __future__ import annotations

import hashlib
import os
import re
import tracemalloc
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import tritonpy_repo_agent_checksum as checksum
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.plugin import Internal, InvalidArg, NotFound, RepoAgentModel
from tritonpy_repo_agent_checksum.parameters import read_parameters

CONTENT = b"weights of a model"
MD5 = hashlib.md5(CONTENT).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "net"
    (path / "1").mkdir(parents=True)
    (path / "1/model.onnx").write_bytes(CONTENT)
    (path / "config.pbtxt").write_text('backend: "onnxruntime"')
    return path


def load(directory: Path, parameters: Mapping[str, str]) -> None:
    checksum.repo_agent_model_action(RepoAgentModel("net", directory, parameters, {}), "LOAD")


@pytest.mark.parametrize(
    "parameters",
    [
        {"MD5:1/model.onnx": MD5},
        {"SHA256:1/model.onnx": SHA256},
        {"SHA-256:1/model.onnx": SHA256},
        {"sha256:1/model.onnx": SHA256.upper()},
        {"MD5:1/model.onnx": MD5.upper(), "SHA256:./1//model.onnx": SHA256},
        {"MD5:1/../1/model.onnx": MD5},
    ],
)
def test_files_that_are_what_they_have_to_be_are_let_in(
    directory: Path, parameters: Mapping[str, str]
) -> None:
    load(directory, parameters)


@pytest.mark.parametrize(("algorithm", "digest"), [("MD5", MD5), ("SHA256", SHA256)])
def test_a_file_that_has_changed_is_named_with_both_checksums(
    directory: Path, algorithm: str, digest: str
) -> None:
    path = directory / "1/model.onnx"
    path.write_bytes(CONTENT + b"!")
    found = hashlib.new(algorithm, path.read_bytes()).hexdigest()

    with pytest.raises(InvalidArg) as caught:
        load(directory, {f"{algorithm}:1/model.onnx": digest})

    assert str(caught.value) == (
        f"Mismatched {algorithm} hash for file {path}, expect: {digest}, got: {found} (model 'net')"
    )


def test_each_file_that_is_listed_counts(directory: Path) -> None:
    (directory / "labels.txt").write_text("cat")

    with pytest.raises(InvalidArg, match=r"Mismatched MD5 hash for file .*/labels\.txt"):
        load(directory, {"MD5:1/model.onnx": MD5, "MD5:labels.txt": MD5})


@pytest.mark.parametrize("action", ["LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE"])
def test_only_a_load_is_checked(tmp_path: Path, action: str) -> None:
    model = RepoAgentModel("net", tmp_path, {"MD5:1/model.onnx": MD5}, {})

    checksum.repo_agent_model_action(model, action)


def test_a_file_that_is_missing_is_named(directory: Path) -> None:
    with pytest.raises(NotFound) as caught:
        load(directory, {"MD5:2/model.onnx": MD5})

    assert str(caught.value) == (
        f"model 'net': {directory}/2/model.onnx is not there; its MD5 checksum is expected to be {MD5}"
    )


def test_a_directory_has_no_checksum(directory: Path) -> None:
    with pytest.raises(InvalidArg, match=r"model 'net': .*/net/1 is no file, so it has no SHA256 checksum"):
        load(directory, {"SHA256:1": SHA256})


def test_a_pipe_that_nobody_writes_to_does_not_hold_the_load_up(directory: Path) -> None:
    os.mkfifo(directory / "1/pipe")

    with pytest.raises(InvalidArg, match=r"1/pipe is no file"):
        load(directory, {"MD5:1/pipe": MD5})


def test_a_file_that_cannot_be_read_is_named(directory: Path) -> None:
    path = directory / "1/model.onnx"
    path.unlink()
    path.symlink_to("model.onnx")  # a circle, which root cannot read either

    with pytest.raises(Internal, match=r"1/model\.onnx cannot be read to make its MD5 checksum: Too many"):
        load(directory, {"MD5:1/model.onnx": MD5})


def test_a_path_that_is_too_long_is_an_error_that_names_it(directory: Path) -> None:
    with pytest.raises(Internal, match=r"xxx cannot be read to make its MD5 checksum: File name too long"):
        load(directory, {f"MD5:{'x' * 300}": MD5})


@pytest.mark.parametrize("path", ["../secret", "1/../../secret", "/etc/hostname", ".."])
def test_no_file_outside_of_the_model_is_read(directory: Path, path: str) -> None:
    (directory.parent / "secret").write_bytes(CONTENT)

    with pytest.raises(InvalidArg) as caught:
        load(directory, {f"MD5:{path}": MD5})

    assert str(caught.value) == (
        f"model 'net': parameter 'MD5:{path}' of repository agent 'checksum': the path leads out of the "
        f"model's directory"
    )


@given(st.text(max_size=20))
def test_any_path_stays_inside_or_is_refused(path: str) -> None:
    try:
        (read,) = read_parameters("net", {f"MD5:{path}": MD5}).checksums
    except InvalidArg:
        return
    resolved = os.path.normpath(f"/models/net/{read.path}")
    assert resolved.startswith("/models/net/")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("SHA1:1/model.onnx", MD5, "expected 'MD5:<path>', 'SHA256:<path>' or 'EVERY_FILE_LISTED'"),
        ("1/model.onnx", MD5, "expected 'MD5:<path>', 'SHA256:<path>' or 'EVERY_FILE_LISTED'"),
        ("MD5", MD5, "expected 'MD5:<path>'"),
        ("", MD5, "expected 'MD5:<path>'"),
        ("MD5:", MD5, "expected the path of a file after the colon"),
        ("MD5:.", MD5, "expected the path of a file after the colon"),
        ("MD5:1/\0", MD5, "expected the path of a file after the colon"),
        ("MD5:1/model.onnx", MD5[:-1], "expected the 32 hexadecimal digits of its checksum"),
        ("MD5:1/model.onnx", SHA256, "expected the 32 hexadecimal digits of its checksum"),
        ("MD5:1/model.onnx", "g" * 32, "expected the 32 hexadecimal digits of its checksum"),
        ("MD5:1/model.onnx", MD5 + "\n", "expected the 32 hexadecimal digits of its checksum"),
        ("MD5:1/model.onnx", "", "got '', expected the 32 hexadecimal digits"),
        ("SHA256:1/model.onnx", MD5, "expected the 64 hexadecimal digits of its checksum"),
    ],
)
def test_a_parameter_that_is_not_understood_is_named_with_what_was_expected(
    directory: Path, key: str, value: str, expected: str
) -> None:
    with pytest.raises(InvalidArg) as caught:
        load(directory, {key: value})

    assert str(caught.value).startswith(f"model 'net': parameter '{key}' of repository agent 'checksum': ")
    assert expected in str(caught.value)


def test_an_agent_with_nothing_to_check_is_a_mistake(directory: Path) -> None:
    for parameters in ({}, {"EVERY_FILE_LISTED": "true"}):
        with pytest.raises(InvalidArg, match="has nothing to check; expected a parameter such as"):
            load(directory, parameters)


def test_large_files_are_read_in_pieces(directory: Path) -> None:
    size = 64 << 20
    with (directory / "1/model.onnx").open("wb") as file:
        file.truncate(size)
    digest = hashlib.sha256(bytes(size)).hexdigest()

    tracemalloc.start()
    load(directory, {"SHA256:1/model.onnx": digest})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 4 << 20


def test_every_file_can_be_asked_for(directory: Path) -> None:
    parameters = {"MD5:1/model.onnx": MD5, "EVERY_FILE_LISTED": "True"}
    (directory / "1/__pycache__").mkdir()
    (directory / "1/__pycache__/x.pyc").write_bytes(b"x")
    (directory / "configs").mkdir()
    (directory / "configs/small.yaml").write_bytes(b"x")  # chosen by --model-config-name
    load(directory, parameters)

    for path in (
        "labels.txt",
        "1/.hidden",
        "1/config.pbtxt",
        "1/__pycache__/model.py",
        "configs/x.txt",
        "x.pyc",
    ):
        extra = directory / path
        extra.write_bytes(b"x")
        with pytest.raises(InvalidArg) as caught:
            load(directory, parameters)
        assert str(caught.value) == (
            f"model 'net': {extra} has no checksum, and EVERY_FILE_LISTED asks for one of every file"
        )
        extra.unlink()


def test_a_link_to_a_directory_hides_no_files(directory: Path) -> None:
    (directory.parent / "elsewhere").mkdir()
    (directory / "1/linked").symlink_to(directory.parent / "elsewhere")

    with pytest.raises(InvalidArg, match=r"1/linked has no checksum"):
        load(directory, {"MD5:1/model.onnx": MD5, "EVERY_FILE_LISTED": "true"})


def test_a_wish_for_every_file_that_is_no_truth_value_is_refused(directory: Path) -> None:
    with pytest.raises(InvalidArg, match=r"'EVERY_FILE_LISTED' .*: got 'yes', expected 'true' or 'false'"):
        load(directory, {"MD5:1/model.onnx": MD5, "EVERY_FILE_LISTED": "yes"})


def test_the_readme_shows_a_configuration_that_works_and_the_error_of_another_file(directory: Path) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    (block,) = re.findall(r"^    backend: .*\n(?:    .*\n)+", readme, re.MULTILINE)
    (key, value) = re.findall(r'key: "(.*)" value: "(.*)"', block)[0]
    load(directory, {key: SHA256})

    with pytest.raises(InvalidArg) as caught:
        load(directory, {key: value})

    (shown,) = re.findall(r"^    (Mismatched .*)$", readme, re.MULTILINE)
    pattern = re.escape(shown).replace("/models", ".*").replace("…", "[0-9a-f]+").replace("41f2c9", "")
    assert re.fullmatch(pattern, str(caught.value))


def test_it_is_installed_under_its_name() -> None:
    [entry] = entry_points(group="tritonpy.repo_agents", name="checksum")

    assert entry.load() is checksum
