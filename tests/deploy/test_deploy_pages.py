"""What the pages on Kubernetes tell to type, as far as it needs no cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .. import fetched
from .manifests import ROOT

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(600)]  # the first time it is fetched

PAGES = ("run-on-kubernetes", "rolling-updates-and-autoscaling", "run-on-ray")
RUN = ("helm template", "kubectl kustomize", "promtool ", "envoy ", "corectl cluster envoy ")
NEEDS_MORE = (
    "corectl cluster down",
    "corectl cluster scale",
    "corectl cluster status",
    "corectl cluster up",
    "corectl cluster update",
    "corectl compose",
    "docker build",
    "docker push",
    "helm rollback",
    "helm upgrade models",
    "kubectl --namespace",
    "kubectl apply",
    "pip install",
    "ray start",
)


def commands() -> list[str]:
    """The commands of the pages; what would be installed is shown instead."""
    text = "".join((ROOT / f"docs/how-to/{page}.md").read_text() for page in PAGES)
    blocks = re.findall(r"^ *```console\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    typed = [line.strip().removeprefix("$ ") for line in lines if line.strip().startswith("$ ")]
    return [re.sub(r"^helm (install|upgrade --install)\b", "helm template", each) for each in typed]


def test_every_command_is_run_or_needs_a_cluster() -> None:
    assert [each for each in commands() if not each.startswith((*RUN, *NEEDS_MORE))] == []


@pytest.mark.parametrize("command", [each for each in commands() if each.startswith(RUN)])
def test_the_command_succeeds(command: str, tmp_path: Path) -> None:
    helm, kubectl = fetched.helm_and_kubectl()
    programs = {"helm": helm, "kubectl": kubectl}
    if command.startswith("corectl"):
        command = command.partition(" > ")[0]
        programs["corectl"] = Path(sys.executable).with_name("corectl")
    if command.startswith("promtool"):
        programs["promtool"] = fetched.promtool()
    if command.startswith("envoy"):
        programs["envoy"] = fetched.envoy()
    for name, program in programs.items():
        (tmp_path / name).symlink_to(program)
    environ = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    done = subprocess.run(
        command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False, env=environ
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_files_that_are_applied_are_there() -> None:
    applied = re.findall(r"kubectl apply -f (\S+)", "\n".join(commands()))

    assert len(applied) == 4
    assert all((ROOT / path).is_file() for path in applied)
