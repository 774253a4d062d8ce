"""Templates of `corectl new`: complete plugins called `xyz` in `templates/`, renamed as they are copied."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

STAND_IN = "xyz"
"""The name in files' names and texts; behind an underscore it is part of the name of a Python module, behind
`libtriton_` of that of a backend's file."""

_TEMPLATES = Path(__file__).parent / "templates"
_SHARED = _TEMPLATES / "shared"
"""What every template has besides its own files: a licence to choose, and its tests on GitHub."""

_LEFT_BY_TOOLS = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
_LONGEST_NAME = 64
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)")


class TemplateError(Exception):
    """A template cannot be copied; says why."""


def copy_template(template: str, name: str, output: Path) -> list[Path]:
    """Copy a template into a new folder, and give it a name.

    Args:
        template: such as `strategy/c`.
        name: what to call the plugin.
        output: the folder to make; those above it are made too.

    Returns:
        The files that were made.

    Raises:
        TemplateError: the name is none, something is there already, or a file cannot be written.
    """
    check_name(name)
    made = []
    try:
        output.mkdir(parents=True)
    except FileExistsError:
        raise TemplateError(f"{output} is there already: take another name, or say --output DIR") from None
    except OSError as exc:
        raise TemplateError(f"{output} cannot be made: {exc.strerror or exc}") from exc
    try:
        for base, file in _all_files(template):
            path = output / renamed(file.relative_to(base).as_posix(), name)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Bytes, so that the lines of a Makefile end as make wants them on every system.
            path.write_bytes(renamed(file.read_text("utf-8"), name).encode())
            made.append(path)
    except OSError as exc:
        shutil.rmtree(output, ignore_errors=True)  # nothing was there before
        raise TemplateError(f"{output} cannot be filled: {exc.strerror or exc}") from exc
    return made


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a plugin, of a distribution and of a folder on every system.

    Raises:
        TemplateError: says what is wrong with it.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise TemplateError(
            f"name of a plugin: got '{name}', expected small letters, digits and single '-' or '_' between "
            f"them, a letter first, {_LONGEST_NAME} characters at most"
        )
    if _DEVICES.fullmatch(name):
        raise TemplateError(f"name of a plugin: got '{name}', which names a device on Windows")


def renamed(text: str, name: str) -> str:
    """A text of a template with the name in the stand-in's place."""
    module = name.replace("-", "_")
    spellings = {f"libtriton_{STAND_IN}": f"libtriton_{name}", f"_{STAND_IN}": f"_{module}", STAND_IN: name}
    return re.sub("|".join(spellings), lambda found: spellings[found[0]], text)


def next_steps(folder: Path) -> list[str]:
    """The commands from a new folder to an answer, as its README has them, to be typed where one is now."""
    _, _, text = (folder / "README.md").read_text("utf-8").partition("## Try it\n")
    commands = re.findall(r"^    (.+)$", text.partition("\n## ")[0], re.MULTILINE)
    places = re.compile(r"(?<=\s)\.$|(?:(?<=\s)|(?<=://))(?=models\b|make_models\.py\b)")
    prefix = shlex.quote(folder.as_posix())
    # What has no '/' is the name of a distribution for pip.
    whole = prefix if folder.is_absolute() else f"./{prefix}"
    return [
        f"make -C {prefix}"
        if command == "make"
        else places.sub(lambda at: whole if at[0] else f"{prefix}/", command)
        for command in commands
    ]


def _all_files(template: str) -> Iterator[tuple[Path, Path]]:
    """The files of a template, each behind the folder that its place is relative to."""
    for base in (_TEMPLATES / template, _SHARED):
        for file in _files(base):
            yield base, file


def _files(folder: Path) -> Iterator[Path]:
    """The template's files, without what Python and its tools leave where they were at work."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not _LEFT_BY_TOOLS.intersection(path.parts):
            yield path
