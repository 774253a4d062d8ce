"""The files of an image: a Containerfile, a Compose file, and requirements with hashes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from packaging.utils import canonicalize_name
from tritonpy.version import __version__

from tritonpy_compose.pip import Locked

MARK = "# Made by corectl compose"
"""How each file begins, so that the next run knows its own."""

CONTAINERFILE, COMPOSE_FILE, REQUIREMENTS, WHEELS = (
    "Containerfile", "compose.yaml", "requirements.txt", "wheels",
)  # fmt: skip

_PREFIX = "/opt/tritonpy"
_MODELS = "/models"
_BACKENDS = "/backends"
_UID = 1000
_STOP_S = 40  # longer than the server's --exit-timeout-secs: it has its own way of ending what does not end

_HEALTH = (
    "from urllib.request import ProxyHandler, build_opener; "
    "build_opener(ProxyHandler({})).open('http://localhost:8000/v2/health/ready')"
)
_PORTS = (8000, 8001, 8002)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that the files of an image say.

    Attributes:
        image: its name.
        base: the image it begins with, which has this interpreter's version of Python and pip.
        plugins: `KIND:NAME` of what is checked when it is built.
        repositories: of models, which are mounted; local directories or places such as `s3://…`.
        backend_directory: mounted where it is given.
        arguments: further ones of `corectl serve`.
        uses_gpus: it is for GPUs.
        is_offline: every wheel is beside the recipe.
        unpacks: the server executes what it has unpacked.
    """

    image: str
    base: str
    plugins: Sequence[str] = ()
    repositories: Sequence[str] = ()
    backend_directory: Path | None = None
    arguments: Sequence[str] = ()
    uses_gpus: bool = False
    is_offline: bool = False
    unpacks: bool = False
    python: tuple[int, int] = field(default_factory=lambda: sys.version_info[:2])

    def mounts(self) -> dict[str, str]:
        """The directories of this machine that the server reads, with their paths in the image."""
        local = [place for place in self.repositories if "://" not in place]
        if len(local) == 1:
            found = {local[0]: _MODELS}
        else:
            found = {place: f"{_MODELS}/{number}" for number, place in enumerate(local)}
        if self.backend_directory is not None:
            found[str(self.backend_directory)] = _BACKENDS
        return found

    def command(self) -> list[str]:
        """The command of the image."""
        mounts = self.mounts()
        command = ["corectl", "serve"]
        for place in self.repositories or [_MODELS]:
            command += ["--model-repository", mounts.get(place, place)]
        if self.backend_directory is not None:
            command += ["--backend-directory", _BACKENDS]
        return [*command, *self.arguments]


def default_base() -> str:
    """The slim image with this interpreter's version of Python."""
    return "python:{}.{}-slim".format(*sys.version_info)


def requirements(locked: Sequence[Locked]) -> str:
    """The text of the requirements: each package in one version, with the hash of its wheel."""
    lines = [f"{MARK} {__version__}: every package in one version, with the hash of its wheel."]
    for each in locked:
        lines.append(f"{canonicalize_name(each.name)}=={each.version} --hash=sha256:{each.sha256}")
    return "\n".join(lines) + "\n"


def containerfile(recipe: Recipe) -> str:
    """The text of the Containerfile."""
    version = "{}.{}".format(*recipe.python)
    check = (
        f"import sys; v = '%d.%d' % sys.version_info[:2]; v == '{version}' or sys.exit("
        f"'{REQUIREMENTS} is for Python {version}, and the base image has ' + v)"
    )
    index = "" if recipe.is_offline else "ARG PIP_INDEX_URL\nARG PIP_EXTRA_INDEX_URL\n"
    offline = "--no-index " if recipe.is_offline else ""
    plugins = " ".join(recipe.plugins)
    checked = f" \\\n && {_PREFIX}/bin/corectl plugins check {plugins}" if plugins else ""
    gpus = (
        "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility\n"
        if recipe.uses_gpus
        else ""
    )
    return f"""\
{MARK} {__version__}; the next run writes it anew.

ARG BASE={recipe.base}

# Packages are installed where pip is, and the image gets what was installed: neither pip nor the wheels.
FROM ${{BASE}} AS packages
RUN {json.dumps(["python", "-c", check])}
COPY {REQUIREMENTS} /build/
COPY {WHEELS} /build/{WHEELS}
# Where pip looks for what is not beside this file: at its usual index, or at these.
{index}RUN python -m venv --without-pip {_PREFIX} \\
 && pip --python {_PREFIX}/bin/python install --no-cache-dir --no-deps --require-hashes --only-binary :all: \\
    {offline}--find-links /build/{WHEELS} --requirement /build/{REQUIREMENTS}{checked}

FROM ${{BASE}}
RUN useradd --no-log-init --create-home --uid {_UID} triton
COPY --from=packages {_PREFIX} {_PREFIX}
# The server writes below /tmp only, so that all else may be read-only.
ENV PATH={_PREFIX}/bin:$PATH HOME=/tmp TRITONPY_CACHE_DIR=/tmp/tritonpy PYTHONDONTWRITEBYTECODE=1
{gpus}LABEL org.opencontainers.image.title={json.dumps(recipe.image)} tritonpy.plugins={json.dumps(plugins)}
USER {_UID}:{_UID}
WORKDIR /tmp
# HTTP, gRPC, metrics
EXPOSE {" ".join(map(str, _PORTS))}
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \\
    CMD {json.dumps(["python", "-c", _HEALTH])}
# A list, so that the server itself gets SIGTERM, and answers what is under way before it goes.
CMD {json.dumps(recipe.command())}
""".replace(
        "# Where pip looks for what is not beside this file: at its usual index, or at these.\n"
        * (not index),
        "",
    )


def compose_file(recipe: Recipe) -> str:
    """The text of the Compose file: the image on a read-only root, without privileges."""
    service: dict[str, object] = {
        "image": recipe.image,
        "build": {"context": ".", "dockerfile": CONTAINERFILE},
        "command": recipe.command(),
        "ports": [f"{port}:{port}" for port in _PORTS],
        "volumes": [
            {"type": "bind", "source": source, "target": target, "read_only": True}
            for source, target in recipe.mounts().items()
        ],
        "read_only": True,
        "tmpfs": ["/tmp:mode=1777,exec" if recipe.unpacks else "/tmp:mode=1777"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "stop_grace_period": f"{_STOP_S}s",
    }
    if recipe.uses_gpus:
        device: Mapping[str, object] = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
    # Compose takes `$` for the beginning of a variable, in all values; `$$` stands for it.
    file = json.loads(json.dumps({"services": {"server": service}}).replace("$", "$$"))
    text = yaml.safe_dump(file, sort_keys=False, width=100)
    return f"{MARK} {__version__}; the next run writes it anew.\n\n{text}"
