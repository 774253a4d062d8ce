"""pip, called as people call it: what it would install, with hashes, and installing exactly that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tritonpy.errors import Internal, InvalidArg

from tritonpy_compose.progress import step

_REPORT_VERSION = "1"
_MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class Locked:
    """A distribution of a resolution, as one file.

    Attributes:
        name, version: of the distribution.
        url: of the wheel.
        sha256: of the wheel, in hexadecimal digits.
    """

    name: str
    version: str
    url: str
    sha256: str

    @property
    def local_path(self) -> Path | None:
        """The wheel's path, where it is on this machine; else None."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None


def resolve(
    requirements: Sequence[str],
    files: Iterable[Path],
    constraints: Iterable[Path],
    links: Iterable[Path] = (),
) -> list[Locked]:
    """What pip would install into an empty environment of this Python; wheels only.

    Args:
        requirements: paths of wheels among them, with extras in brackets.
        files: requirement files.
        constraints: constraint files.
        links: folders with wheels, beside the package index.

    Raises:
        InvalidArg: they contradict each other, or there is nothing to install for one; in pip's words.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = ["--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", str(report)]
        for file in files:
            options += ["--requirement", str(file)]
        for file in constraints:
            options += ["--constraint", str(file)]
        for place in links:
            options += ["--find-links", str(place)]
        run_pip("resolve the packages", ["install", *options, *requirements])
        document = json.loads(report.read_text(encoding="utf-8"))
    if document.get("version") != _REPORT_VERSION:
        raise Internal(
            f"pip reports in form {document.get('version')!r}, expected {_REPORT_VERSION!r}: another version "
            f"of pip is needed"
        )
    return sorted(map(_locked, document["install"]), key=lambda locked: locked.name.lower())


def _locked(item: dict[str, dict[str, object]]) -> Locked:
    metadata, download = item["metadata"], item["download_info"]
    archive = download.get("archive_info")
    hashes = archive.get("hashes", {}) if isinstance(archive, dict) else {}
    if "sha256" not in hashes:
        raise InvalidArg(
            f"{metadata['name']} {metadata['version']} has no SHA-256 hash where pip found it: expected a "
            f"wheel, of which it can be checked that it stays the same"
        )
    return Locked(str(metadata["name"]), str(metadata["version"]), str(download["url"]), hashes["sha256"])


def build_wheels(folders: Sequence[Path], output: Path) -> None:
    """Build the wheels of distributions in folders.

    Raises:
        InvalidArg: one cannot be built; in pip's words.
    """
    options = ["--no-deps", "--wheel-dir", str(output)]
    run_pip("build wheels", ["wheel", *options, *map(str, folders)])


def download(requirements: Path, wheels: Path) -> None:
    """Put every wheel of a locked requirement file into the folder of wheels."""
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
    options += ["--find-links", str(wheels), "--dest", str(wheels), "--requirement", str(requirements)]
    run_pip("download the packages", ["download", *options])


def install(python: Path, requirements: Path, wheels: Path) -> None:
    """Install a locked requirement file into the environment of an interpreter, which needs no pip."""
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-warn-script-location"]
    options += ["--find-links", str(wheels), "--requirement", str(requirements)]
    run_pip("install the packages", ["--python", str(python), "install", *options])


def run_pip(title: str, arguments: Sequence[str]) -> None:
    """Run pip of this interpreter, and show what it does on a terminal.

    Raises:
        InvalidArg: it fails; with its own words.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    lines: list[str] = []
    with step(title) as say:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "PIP_PROGRESS_BAR": "off"},
        )
        assert process.stdout is not None
        try:
            with process.stdout as stdout:
                for line in stdout:
                    lines.append(line.rstrip())
                    say(line)
            status = process.wait()
        except BaseException:  # such as Ctrl-C: pip must not go on behind our back
            process.terminate()
            process.wait()
            raise
    if status != 0:
        raise InvalidArg(f"pip could not {title}:\n{_reason(lines)}")


def _reason(lines: Sequence[str]) -> str:
    """Why pip failed: the conflict it explains, and its errors."""
    begin = next((at for at, line in enumerate(lines) if "conflict is caused by" in line), None)
    conflict: list[str] = []
    if begin is not None:
        for line in lines[begin:]:
            if not line.strip() or line.startswith(("To fix", "ERROR")):
                break
            conflict.append(line)
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    said = [line for line in (*errors, *conflict) if "ResolutionImpossible" not in line]
    return "\n".join(f"  {line}" for line in said[:_MOST_LINES] or lines[-_MOST_LINES:])
