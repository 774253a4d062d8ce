"""Packed environments: every format, and what must not be unpacked."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tritonpy_backend_python.archive import BadArchive, extract, is_archive, unpack

FORMATS = {
    "env.tar.gz": "w:gz",
    "env.tgz": "w:gz",
    "env.tar": "w",
    "env.tar.bz2": "w:bz2",
    "env.tar.xz": "w:xz",
    "env.zip": "",
}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "bin").mkdir(parents=True)
    (root / "lib" / "deep").mkdir(parents=True)
    program = root / "bin" / "tool"
    program.write_text("#!/bin/sh\necho works\n")
    program.chmod(0o777)
    (root / "lib" / "deep" / "data").write_text("data")
    (root / "lib64").symlink_to("lib")
    (root / "bin" / "tool3").symlink_to("tool")
    (root / "bin" / "python").symlink_to(sys.executable)
    return root


def pack(source: Path, archive: Path) -> None:
    mode = FORMATS[archive.name]
    if mode:
        with tarfile.open(archive, mode) as tar:
            tar.add(source, ".")
        return
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(source.rglob("*")):
            name = str(path.relative_to(source))
            if path.is_symlink():
                info = zipfile.ZipInfo(name)
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
                packed.writestr(info, os.readlink(path))
            else:
                packed.write(path, name)


@pytest.mark.parametrize("name", FORMATS)
def test_files_links_and_modes_survive(environment, tmp_path, name):
    archive, target = tmp_path / name, tmp_path / "target"
    pack(environment, archive)
    target.mkdir()

    extract(archive, target)

    assert (target / "lib64" / "deep" / "data").read_text() == "data"
    assert os.readlink(target / "lib64") == "lib"
    assert os.readlink(target / "bin" / "python") == sys.executable
    assert subprocess.check_output([target / "bin" / "tool3"], text=True) == "works\n"
    assert stat.S_IMODE((target / "bin" / "tool").stat().st_mode) == 0o755  # not for everybody to change


@pytest.mark.parametrize("name", FORMATS)
def test_an_archive_is_known_by_its_name_and_by_its_content(environment, tmp_path, name):
    archive = tmp_path / name
    pack(environment, archive)
    nameless = archive.rename(tmp_path / "packed")

    assert is_archive(nameless)
    assert is_archive(tmp_path / name)
    assert not is_archive(environment / "bin" / "tool")


def file(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    return member, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member, b""


def device(name: str) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type = tarfile.CHRTYPE
    return member, b""


def too_long(tail: str) -> list[tuple[tarfile.TarInfo, bytes]]:
    """Sixteen directories with long names, each entered by a link with a short one; `out` leads through all.

    The resolved path of the last one is longer than the system allows, though it can be walked step by step.
    """
    members, here = [], ""
    for letter in "abcdefghijklmnop":
        name = letter * 247
        member = tarfile.TarInfo(here + name)
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        members += [(member, b""), link(here + letter, name)]
        here += f"{name}/"
    steps = "/".join("abcdefghijklmnop")
    return [*members, link(f"{steps}/{'l' * 254}", "../" * 16), link("out", f"{steps}/{'l' * 254}/{tail}")]


ESCAPES = {
    "a name with dots": [file("../escaped")],
    "a name with dots in the middle": [file("lib/../../escaped")],
    "through a link": [link("out", "OUTSIDE"), file("out/escaped")],
    "a link with dots": [link("lib", "..")],
    "an absolute link": [link("data", "OUTSIDE")],
    "a hard link to a file outside": [link("data", "../victim", tarfile.LNKTYPE)],
    "through the interpreter's link": [link("bin/python", "OUTSIDE"), file("bin/python/escaped")],
    "over the interpreter's link": [link("bin/python", "OUTSIDE/victim"), file("bin/python", b"changed")],
    "a hard link to the interpreter's link": [
        link("bin/python", "OUTSIDE/victim"),
        link("lib", "bin/python", tarfile.LNKTYPE),
        file("lib", b"changed"),
    ],
    "a device": [device("null")],
    "through a link to what is missing": [link("lib", "../escaped"), file("lib", b"changed")],
    "a link that leads out by what follows it": [link("data", "lib/.."), link("lib", ".")],
    "links in a circle": [link("a", "b"), link("b", "a"), file("a/escaped")],
    "a link whose resolved path is too long": [*too_long(".."), file("out/escaped")],
    "a hard link whose resolved path is too long": [
        *too_long("../victim"),
        link("lib", "out", tarfile.LNKTYPE),
        file("lib", b"changed"),
    ],
}


@pytest.mark.parametrize("case", ESCAPES)
def test_nothing_is_written_outside_of_the_target(tmp_path, case):
    target, outside = tmp_path / "a" / "target", tmp_path / "a"
    target.mkdir(parents=True)
    victim = outside / "victim"
    victim.write_text("as it was")
    archive = tmp_path / "env.tar"
    with tarfile.open(archive, "w") as tar:
        for member, content in ESCAPES[case]:
            member.linkname = member.linkname.replace("OUTSIDE", str(outside))
            tar.addfile(member, io.BytesIO(content))

    with pytest.raises(BadArchive):
        extract(archive, target)

    assert sorted(path.name for path in outside.iterdir()) == ["target", "victim"]
    assert victim.read_text() == "as it was"


def test_an_absolute_name_is_taken_for_one_below_the_target_or_refused(tmp_path):
    target, archive = tmp_path / "target", tmp_path / "env.tar"
    target.mkdir()
    escaped = tmp_path / "escaped"
    with tarfile.open(archive, "w") as tar:
        member, content = file(str(escaped))
        member.name = str(escaped)
        tar.addfile(member, io.BytesIO(content))

    extract(archive, target)

    assert not escaped.exists()


ZIP_ESCAPES = {
    "a name with dots": [("../escaped", "", False)],
    "an absolute name": [("/OUTSIDE/escaped", "", False)],
    "a link that leads out": [("data", "..", True)],
    "through the interpreter's link": [("bin/python", "OUTSIDE", True), ("bin/python/escaped", "", False)],
    "over the interpreter's link": [("bin/python", "OUTSIDE/victim", True), ("bin/python", "new", False)],
}


@pytest.mark.parametrize("case", ZIP_ESCAPES)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_nothing_is_written_outside_of_the_target_from_a_zip_either(tmp_path, case):
    target, outside = tmp_path / "a" / "target", tmp_path / "a"
    target.mkdir(parents=True)
    victim = outside / "victim"
    victim.write_text("as it was")
    archive = tmp_path / "env.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name, content, is_link in ZIP_ESCAPES[case]:
            info = zipfile.ZipInfo(name.replace("/OUTSIDE", str(outside)))
            info.external_attr = ((stat.S_IFLNK if is_link else stat.S_IFREG) | 0o777) << 16
            packed.writestr(info, content.replace("OUTSIDE", str(outside)))

    with pytest.raises(BadArchive, match="outside of the environment"):
        extract(archive, target)

    assert sorted(path.name for path in outside.iterdir()) == ["target", "victim"]
    assert victim.read_text() == "as it was"


@pytest.mark.parametrize("name", FORMATS)
def test_half_an_archive_is_refused(environment, tmp_path, name):
    (environment / "lib" / "noise").write_bytes(os.urandom(200_000))
    archive, target = tmp_path / name, tmp_path / "target"
    pack(environment, archive)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    target.mkdir()

    with pytest.raises(BadArchive):
        extract(archive, target)


def test_the_process_that_unpacks_passes_on_why_it_could_not(tmp_path):
    archive = tmp_path / "env.tar.gz"
    archive.write_text("hello")

    with pytest.raises(BadArchive, match=r"^it is neither a tar nor a zip archive$"):
        unpack(archive, tmp_path)
    with pytest.raises(OSError, match="No such file or directory"):
        unpack(tmp_path / "nosuch.tar.gz", tmp_path)


def test_a_full_or_missing_disk_is_no_fault_of_the_archive(environment, tmp_path):
    archive = tmp_path / "env.tar.gz"
    pack(environment, archive)
    (tmp_path / "file").touch()

    with pytest.raises(OSError, match="Not a directory"):
        unpack(archive, tmp_path / "file")
