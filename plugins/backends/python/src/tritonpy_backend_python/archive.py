"""Packed environments: tar and zip archives, unpacked so that nothing is written outside of the target.

Also a program of its own, which needs the standard library only: unpacking keeps Python busy for long, and
the server has better things to do with its interpreter.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")

_READABLE_BY_OWNER = 0o600
_NOT_FOR_OTHERS = 0o755  # neither writable by others nor set-uid


_BAD_ARCHIVE, _SYSTEM_ERROR = 3, 4  # exit statuses of the program; its standard error says the rest


class BadArchive(Exception):
    """The archive cannot be read, or holds what must not be unpacked; the text says what."""


def is_archive(path: Path) -> bool:
    """True if a file's name or, where that does not tell, its content is that of an archive."""
    return path.name.lower().endswith(SUFFIXES) or zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def unpack(archive: Path, target: Path) -> None:
    """Unpack `archive` into the empty directory `target`, in a process of its own; see `extract`.

    Raises:
        BadArchive: see there.
        OSError: a file cannot be written, or the archive not be read.
    """
    done = subprocess.run(
        [sys.executable, "-I", __file__, str(archive), str(target)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    if done.returncode == _BAD_ARCHIVE:
        raise BadArchive(done.stderr)
    if done.returncode != 0:
        raise OSError(done.stderr or f"the program that unpacks ended with status {done.returncode}")


def extract(archive: Path, target: Path) -> None:
    """Unpack `archive` into the empty directory `target`.

    Links stay inside of the archive, but for those of interpreters: a virtual environment's `bin/python` is a
    link to the Python it was made from.

    Raises:
        BadArchive: see there.
        OSError: a file cannot be written, or the archive not be read.
    """
    try:
        if zipfile.is_zipfile(archive):
            _extract_zip(archive, target)
        elif tarfile.is_tarfile(archive):
            _extract_tar(archive, target)
        else:
            raise BadArchive("it is neither a tar nor a zip archive")
        _check_all_links(target)
    except (BadArchive, OSError):
        raise
    except Exception as exc:  # of tarfile and zipfile, and of each of the compressions
        raise BadArchive(f"{type(exc).__name__}: {exc}") from exc


def _extract_tar(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "fully_trusted_filter"):
            tar.extraction_filter = tarfile.fully_trusted_filter  # what comes has been checked
        for member in tar:
            tar.extract(_checked(member, target), target)


def _checked(member: tarfile.TarInfo, target: Path) -> tarfile.TarInfo:
    """A member that may be written; names that begin with a slash are taken for ones below the target.

    Not by `tarfile.data_filter`: not every Python has it, and those before 3.11.13, 3.12.11 and 3.13.4 lose
    track of links whose resolved path is longer than the system allows (CVE-2025-4517).
    """
    member.name = member.name.lstrip("/")
    place(member.name, target)
    if member.issym():
        check_link(member.name, member.linkname, target)
    elif member.islnk():
        place(member.linkname, target)
    elif not (member.isfile() or member.isdir()):
        raise BadArchive(f"'{member.name}' is neither a file nor a directory nor a link")
    member.mode = member.mode & _NOT_FOR_OTHERS | (0o700 if member.isdir() else _READABLE_BY_OWNER)
    member.uid, member.gid = os.getuid(), os.getgid()
    member.uname = member.gname = ""
    return member


def _extract_zip(archive: Path, target: Path) -> None:
    with zipfile.ZipFile(archive) as source:
        for member in source.infolist():
            path = place(member.filename, target)
            if member.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = member.external_attr >> 16
            if stat.S_ISLNK(mode):
                link = source.read(member).decode()
                check_link(member.filename, link, target)
                path.symlink_to(link)
                continue
            with source.open(member) as packed, path.open("wb") as file:
                shutil.copyfileobj(packed, file, 1024 * 1024)
            path.chmod((mode or 0o644) & _NOT_FOR_OTHERS | _READABLE_BY_OWNER)


def place(name: str, target: Path) -> Path:
    """The path a member is written to; links unpacked before are followed.

    Raises:
        BadArchive: that is not in `target`.
    """
    path = resolve(os.path.join(target, name))
    if os.path.isabs(name) or not _is_below(path, target):
        raise BadArchive(f"'{name}' would be written outside of the environment")
    return Path(path)


def check_link(name: str, link: str, target: Path) -> None:
    """Refuse a symbolic link that leads out.

    Raises:
        BadArchive: it does, and is no interpreter.
    """
    if _is_interpreter(name):
        return
    path = resolve(os.path.join(target, os.path.dirname(name), link))
    if os.path.isabs(link) or not _is_below(path, target):
        raise BadArchive(f"'{name}' is a link to '{link}', outside of the environment")


def _check_all_links(target: Path) -> None:
    """Refuse links that lead out by what was unpacked after them."""

    def give_up(exc: OSError) -> None:
        raise exc

    for directory, names, filenames in os.walk(target, onerror=give_up):
        for name in (*names, *filenames):
            path = os.path.join(directory, name)
            if os.path.islink(path):
                check_link(os.path.relpath(path, target), os.readlink(path), target)


def resolve(path: str | os.PathLike[str]) -> str:
    """The path without links, of which any number of last components may be missing.

    `os.path.realpath` is not asked to be lenient: it then takes a path that it cannot look at,
    such as one that is too long, for one without links.

    Raises:
        BadArchive: a part of it is there and cannot be looked at, or links lead in a circle.
    """
    try:
        return os.path.realpath(path, strict=True)
    except FileNotFoundError:
        parent, name = os.path.split(os.fspath(path))
        if not name:
            return resolve(parent)
        if name in (os.curdir, os.pardir):
            return os.path.normpath(os.path.join(resolve(parent), name))
        if os.path.islink(path):  # to something that is missing
            return resolve(os.path.join(parent, os.readlink(path)))
        return os.path.join(resolve(parent), name)
    except OSError as exc:
        raise BadArchive(f"'{os.fspath(path)[:200]}' cannot be followed: {exc.strerror}") from exc


def _is_below(path: str, target: Path) -> bool:
    root = os.path.realpath(target, strict=True)
    return os.path.commonpath((root, path)) == root


def _is_interpreter(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parent.name == "bin" and path.name.startswith(("python", "pypy"))


def main(archive: str, target: str) -> int:
    """Extract an archive; returns the status to exit with."""
    try:
        extract(Path(archive), Path(target))
    except BadArchive as exc:
        sys.stderr.write(str(exc))
        return _BAD_ARCHIVE
    except OSError as exc:
        sys.stderr.write(str(exc))
        return _SYSTEM_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
