"""The files of `deploy/`, and what a Deployment of them says."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from .. import fetched

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/tritonpy"
RULES = CHART / "files/rules.yaml"

Document = dict[str, Any]  # of any kind


def documents(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


def containers(found: Iterable[Document]) -> Iterator[tuple[Document, Document]]:
    """Each container of Deployments and of runtimes, with the specification of its pod."""
    for document in found:
        if document["kind"] == "Deployment":
            pod = document["spec"]["template"]["spec"]
        elif document["kind"] == "ClusterServingRuntime":
            pod = document["spec"]
        else:
            continue
        for container in pod["containers"]:
            yield pod, container


def by_kind(found: Iterable[Document]) -> dict[str, list[Document]]:
    kinds: dict[str, list[Document]] = {}
    for document in found:
        kinds.setdefault(document["kind"], []).append(document)
    return kinds


def render_program() -> ModuleType:
    """The module `deploy/render.py`."""
    spec = importlib.util.spec_from_file_location("render", DEPLOY / "render.py")
    assert spec is not None
    assert spec.loader is not None
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)
    return render


def check_by_schemas(found: Iterable[Document], tmp_path: Path) -> None:
    """Refuse what Kubernetes 1.37 would, and fields that nobody reads."""
    python = fetched.environment(fetched.CACHE / "kubernetes-validate", "kubernetes-validate==1.37.0")
    file = tmp_path / "documents.yaml"
    file.write_text(yaml.safe_dump_all(found))
    done = subprocess.run(
        [python, "-m", "kubernetes_validate", "--strict", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Couldn't find schema" not in done.stdout + done.stderr
