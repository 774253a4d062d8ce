"""From what is wished for to an image or an environment: plan, wheels, resolution, recipe."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from tritonpy.cli.table import format_table
from tritonpy.errors import Internal, InvalidArg

from tritonpy_compose import recipe as files
from tritonpy_compose.catalog import Catalog
from tritonpy_compose.engine import ENGINES, Engine, build, find_engine
from tritonpy_compose.environment import byte_size, check_empty, make_environment
from tritonpy_compose.models import Need, Needs, find_needs
from tritonpy_compose.offers import find_offers
from tritonpy_compose.pip import Locked, download, resolve
from tritonpy_compose.plan import Planned, distributions, make_plan
from tritonpy_compose.progress import step
from tritonpy_compose.sources import gather

_BACKEND_DIRECTORY = Path("/opt/tritonserver/backends")
_CUDA = ("nvidia-", "cuda-")
_NEEDED_ON_ANY = frozenset({"nvidia-ml-py"})  # it asks about GPUs, and is small


@dataclass(frozen=True, slots=True)
class Wishes:
    """What an image or environment is to have.

    Attributes:
        repositories: whose models are looked at; local ones, or places that a plugin opens.
        plugins: kind and name of those that are named.
        packages: requirements.
        constraints: files with constraints.
        find_links: where distributions lie.
        backend_directory: where backends lie that are files.
        arguments: of `corectl serve`.
        uses_gpus: for GPUs.
    """

    repositories: Sequence[str] = ()
    plugins: Sequence[tuple[str, str]] = ()
    packages: Sequence[str] = ()
    constraints: Sequence[Path] = ()
    find_links: Sequence[Path] = ()
    backend_directory: Path | None = None
    arguments: Sequence[str] = ()
    uses_gpus: bool = False


@dataclass(frozen=True, slots=True)
class Composed:
    """A plan with the packages that it comes to."""

    plan: list[Planned]
    needs: Needs
    locked: list[Locked]

    @property
    def plugin_names(self) -> list[str]:
        """The plugins as `corectl plugins check` takes them."""
        return [f"{planned.kind}:{planned.name}" for planned in self.plan]


def compose_image(
    wishes: Wishes,
    folder: Path,
    image: str,
    base: str | None,
    *,
    engine_name: str | None = None,
    is_offline: bool = False,
    skips_pull: bool = False,
    builds: bool = True,
) -> int:
    """Write the recipe of an image, and build it where there is something that can.

    Returns:
        The status to end with: 1 when the image was to be built, and nothing here builds images.

    Raises:
        TritonError: why it cannot be made.
    """
    if sys.platform != "linux":
        raise InvalidArg(
            f"images are of Linux, and pip chooses packages for the machine it runs on ({sys.platform}): "
            f"run this in a container of {base or files.default_base()}"
        )
    engine = find_engine(engine_name) if builds else None
    _clear(folder)
    wheels = folder / files.WHEELS
    wheels.mkdir(parents=True)
    composed = _compose(wishes, wheels)
    recipe = files.Recipe(
        image,
        base or files.default_base(),
        composed.plugin_names,
        [place if "://" in place else str(Path(place).resolve()) for place in wishes.repositories],
        wishes.backend_directory and wishes.backend_directory.resolve(),
        wishes.arguments,
        uses_gpus=wishes.uses_gpus,
        is_offline=is_offline,
        unpacks=composed.needs.unpacks,
    )
    texts = {
        files.CONTAINERFILE: files.containerfile(recipe),
        files.COMPOSE_FILE: files.compose_file(recipe),
        files.REQUIREMENTS: files.requirements(composed.locked),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        click.echo(f"wrote {folder / name}")
    if is_offline:
        download(folder / files.REQUIREMENTS, wheels)
    count, size = len(list(wheels.iterdir())), byte_size(wheels)
    click.echo(f"{files.WHEELS}: {count} of {len(composed.locked)} packages, {_megabytes(size)}")
    command = (engine or Engine("docker", "docker")).build_command(folder, image, skips_pull=skips_pull)
    if engine is not None:
        build(command)
        click.echo(f"built {image}")
        return 0
    if builds:
        click.echo(f"nothing here builds images: none of {', '.join(ENGINES)} is on the PATH", err=True)
    click.echo(f"to build it: {shlex.join(command)}")
    return 1 if builds else 0


def compose_environment(wishes: Wishes, directory: Path) -> None:
    """Make an environment that may be moved, and check that its plugins can be used.

    Raises:
        TritonError: why it cannot be made.
    """
    check_empty(directory)
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder, files.WHEELS)
        wheels.mkdir()
        composed = _compose(wishes, wheels)
        requirements = Path(folder, files.REQUIREMENTS)
        requirements.write_text(files.requirements(composed.locked), encoding="utf-8")
        make_environment(directory, requirements, wheels)
        shutil.copy2(requirements, directory / files.REQUIREMENTS)
    if composed.plan:
        with step("check the plugins"):
            _check_plugins(directory, composed.plugin_names)
    size = _megabytes(byte_size(directory))
    click.echo(f"made {directory}: {len(composed.locked)} packages, {size}")
    arguments = [f"--model-repository={place}" for place in wishes.repositories]
    click.echo(
        f"to serve: {shlex.join([str(directory / 'bin/corectl'), 'serve', *arguments, *wishes.arguments])}"
    )


def _compose(wishes: Wishes, wheels: Path) -> Composed:
    """Make the plan, say it, and find the packages that it comes to."""
    offers = find_offers(wishes.find_links)
    catalog = Catalog(offers)
    needs = Needs()
    stores = [place.partition("://")[0] for place in wishes.repositories if "://" in place]
    local = [Path(place) for place in wishes.repositories if "://" not in place]
    if local:
        with step("read the models"):
            needs = find_needs(local, wishes.backend_directory or _BACKEND_DIRECTORY, catalog)
    asked = [Need(kind, name, "asked for") for kind, name in wishes.plugins]
    asked += [Need("stores", name, f"--model-repository {name}://") for name in stores]
    plan = make_plan([*asked, *needs.plugins], catalog)
    click.echo(format_table(("kind", "name", "distribution", "why"), [
        (planned.kind, planned.name, planned.distribution, planned.why) for planned in plan
    ]))  # fmt: skip
    for file in needs.requirement_files:
        click.echo(f"with the packages of {file}")
    if stores:
        needs.notes.append("models in a store are not looked at: name what they need")
    requirements = gather(distributions(plan), offers, wheels, uses_gpus=wishes.uses_gpus)
    links = [path for path in wishes.find_links if path.is_dir()]
    locked = resolve([*requirements, *wishes.packages], needs.requirement_files, wishes.constraints, links)
    for each in locked:  # those of an index that is a folder, too: a build sees nothing of this machine
        if (path := each.local_path) is not None and not (wheels / path.name).exists():
            shutil.copy2(path, wheels)
    if not wishes.uses_gpus:
        needs.notes += _cuda_notes(locked)
    else:
        needs.notes = [note for note in needs.notes if "--enable-gpu" not in note]
    for note in needs.notes:
        click.echo(f"note: {note}", err=True)
    return Composed(plan, needs, locked)


def _cuda_notes(locked: Sequence[Locked]) -> list[str]:
    names = [each.name for each in locked if each.name.startswith(_CUDA) and each.name not in _NEEDED_ON_ANY]
    if not names:
        return []
    return [
        f"{len(names)} packages are for GPUs, such as {names[0]}, without --enable-gpu: a framework's usual "
        f"wheel brings them. Name the one for CPUs, for example --package 'torch==2.13.0+cpu', and in "
        f"PIP_EXTRA_INDEX_URL the index that has it"
    ]


def _check_plugins(directory: Path, names: Sequence[str]) -> None:
    command = [str(directory / "bin/corectl"), "plugins", "check", *names]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    if checked.returncode != 0:
        said = checked.stdout + checked.stderr
        raise Internal(f"{directory} was made, and not all of its plugins can be used:\n{said.rstrip()}")


def _clear(folder: Path) -> None:
    """Remove the recipe of an earlier run.

    Raises:
        InvalidArg: there is something else in the folder.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return
    mark = folder / files.CONTAINERFILE
    own = {files.CONTAINERFILE, files.COMPOSE_FILE, files.REQUIREMENTS, files.WHEELS}
    others = sorted({path.name for path in folder.iterdir()} - own)
    is_own = mark.is_file() and mark.read_text(encoding="utf-8", errors="replace").startswith(files.MARK)
    is_own = is_own or {path.name for path in folder.iterdir()} == {files.WHEELS}
    if others or not is_own:
        found = f", such as '{others[0]}'" if others else ""
        raise InvalidArg(
            f"--work-dir '{folder}' has files that are not of an earlier recipe{found}: expected a new or "
            f"empty directory"
        )
    for name in own:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
