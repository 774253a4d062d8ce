"""Where the distributions of a plan come from: wheels at hand, folders to build, or pip's package index."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from shutil import copy2
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from tritonpy.errors import InvalidArg, NotFound

from tritonpy_compose.catalog import CORE
from tritonpy_compose.offers import Offer, fits, read_folder, read_wheel
from tritonpy_compose.pip import build_wheels

_EXTRAS = {"tritonpy-backend-pytorch": ("safetensors",)}
"""What belongs to a distribution on any device."""

_CPU, _GPU = ("cpu",), ("cuda", "gpu")
"""Extras by which a distribution leaves the choice of its framework's wheel to others, the best first."""


def choose_extras(name: str, extras: Iterable[str], *, uses_gpus: bool) -> list[str]:
    """The extras of a distribution that an image takes.

    Args:
        name: of the distribution.
        extras: which it has.
        uses_gpus: the image is for GPUs.
    """
    offered = set(extras)
    wanted = [] if name == CORE and not uses_gpus else list(_GPU if uses_gpus else _CPU)
    return [
        *(extra for extra in _EXTRAS.get(name, ()) if extra in offered),
        *[extra for extra in wanted if extra in offered][:1],
    ]


def gather(
    names: Sequence[str], offers: Iterable[Offer], wheels: Path, *, uses_gpus: bool = False
) -> list[str]:
    """Put what is at hand into a folder of wheels; returns a requirement for each distribution.

    One that is given is taken from there; one that is installed here from where it was installed from: a
    folder, from which a wheel is built, a wheel, or the package index, in the version that is here.

    Args:
        names: of distributions.
        offers: which are given.
        wheels: an existing folder.
        uses_gpus: take the extras for GPUs.

    Raises:
        NotFound: a distribution is nowhere.
        InvalidArg: a wheel cannot be built.
    """
    given = {offer.name: offer for offer in offers}
    found: dict[str, Offer | str] = {}
    for name in names:
        normal = canonicalize_name(name)
        found[normal] = given[normal] if normal in given else _installed(name, uses_gpus)
    folders = [each for each in found.values() if isinstance(each, Offer) and each.path.is_dir()]
    if folders:
        with tempfile.TemporaryDirectory() as output:
            build_wheels([offer.path for offer in folders], Path(output))
            for wheel in sorted(Path(output).glob("*.whl")):
                built = read_wheel(wheel)
                found[built.name] = built
                copy2(wheel, wheels)
    requirements = []
    for each in found.values():
        if isinstance(each, str):
            requirements.append(each)
            continue
        path = wheels / each.path.name
        if not path.exists():
            copy2(each.path, path)
        extras = choose_extras(each.name, each.extras, uses_gpus=uses_gpus)
        requirements.append(f"{path}[{','.join(extras)}]" if extras else str(path))
    return requirements


def _installed(name: str, uses_gpus: bool) -> Offer | str:
    """What a distribution was installed from, or a requirement for the package index."""
    try:
        here = distribution(name)
    except PackageNotFoundError as exc:
        raise NotFound(
            f"{name} is needed, and is neither installed here nor given: expected its wheel or its folder "
            f"with --find-links"
        ) from exc
    origin = json.loads(here.read_text("direct_url.json") or "{}")
    if origin:
        return _origin(here, urlsplit(origin["url"]).scheme, Path(unquote(urlsplit(origin["url"]).path)))
    offered = here.metadata.get_all("Provides-Extra") or []
    extras = choose_extras(canonicalize_name(name), offered, uses_gpus=uses_gpus)
    brackets = f"[{','.join(extras)}]" if extras else ""
    return f"{here.name}{brackets}=={here.version}"


def _origin(here: Distribution, scheme: str, path: Path) -> Offer:
    if scheme == "file" and (path / "pyproject.toml").is_file():
        return read_folder(path)
    if scheme == "file" and path.suffix == ".whl" and path.is_file() and fits(path):
        return read_wheel(path)
    raise InvalidArg(
        f"{here.name} {here.version} was installed from a place that cannot be installed from again: give "
        f"its wheel or its folder with --find-links"
    )
