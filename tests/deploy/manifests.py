"""The files of `deploy/`, and what a Deployment of them says."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

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
