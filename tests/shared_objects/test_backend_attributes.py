"""Instances of models as their backend in C prefers them, on servers of ours and on a real one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tritonpy_sdk.repository import ModelRepository

from ..servers import OURS_AND_REAL, serving
from .conftest import Compiled

TENSORS = {
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
}
THREAD = {"parameters": {"TRITONPY_ISOLATION": {"string_value": "thread"}}}
GROUPS: dict[str, tuple[str, tuple[str, int]]] = {
    "nothing": ("", ("KIND_CPU", 1)),
    "two": ("1:2", ("KIND_CPU", 2)),
    "first": ("3:3;1:2", ("KIND_MODEL", 3)),
    "no_gpu": ("2:2;1:3", ("KIND_CPU", 3)),
    "only_gpu": ("2:2", ("KIND_CPU", 1)),
    "auto": ("0:4", ("KIND_CPU", 4)),
    "uncounted": ("3:0", ("KIND_MODEL", 1)),
    "device": ("1:2:0", ("KIND_CPU", 2)),
}
"""Of backends of these names: what they prefer, and the kind and the count of the group that comes of it."""
IN_PROCESSES = {"nothing", "two", "device"}
MEETINGS = {"parallel": {"parallel": "yes", "together": "3"}, "serial": {}}
"""Backends whose instances look for each other while they begin."""
WATCHED = ("watched", "watched_thread")
"""Backends whose instances are not ready while there is a file of their name."""


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def served(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    root = tmp_path_factory.mktemp(request.param)
    library = compiled("backends/attributes.c")
    models, backends = ModelRepository(root / "models"), root / "backends"
    settings = [(name, "groups", groups) for name, (groups, _) in GROUPS.items() if groups]
    for name, given in MEETINGS.items():
        for suffix in ("", "_thread"):
            meeting = root / f"{name}{suffix}"
            meeting.mkdir()
            both = {"groups": "1:3", "meeting": str(meeting), **given}
            settings += [(f"{name}{suffix}", key, value) for key, value in both.items()]
    settings += [(name, "absence", str(root / name)) for name in WATCHED]
    for name in {*GROUPS, *(backend for backend, _, _ in settings)}:
        (backends / name).mkdir(parents=True)
        shutil.copy(library, backends / name / f"libtriton_{name}.so")
        # Where instances live does not change their groups: most of them cost no process each.
        isolation = THREAD if name.endswith("_thread") or name in {*GROUPS} - IN_PROCESSES else {}
        models.model(name, {"backend": name, **TENSORS, **isolation})
    models.model("two_thread", {"backend": "two", **TENSORS, **THREAD})
    models.model("own", {"backend": "two", **TENSORS, "instance_group": [{"kind": "KIND_MODEL"}]})
    models.model("own_cpu", {"backend": "two", **TENSORS, "instance_group": [{"kind": "KIND_CPU"}]})
    flags = [f"--backend-directory={backends}", "--exit-on-error=false", "--strict-readiness=false"]
    flags += [f"--backend-config={backend},{key}={value}" for backend, key, value in settings]
    with serving(
        request.param,
        request,
        models.path,
        *flags,
        backend_directory=str(backends),
        backend_config=tuple(settings),
        exit_on_error=False,
        strict_readiness=False,
    ) as ports:
        yield f"http://127.0.0.1:{ports['http']}", root


@pytest.fixture
def url(served: tuple[str, Path]) -> str:
    return served[0]


def group(url: str, model: str) -> dict[str, Any]:
    (found,) = json.load(urlopen(f"{url}/v2/models/{model}/config"))["instance_group"]
    return dict(found)


@pytest.mark.parametrize("model", [*GROUPS, "two_thread"])
def test_a_model_that_names_no_group_has_the_one_that_its_backend_prefers(url: str, model: str) -> None:
    found = group(url, model)

    assert (found["kind"], found["count"]) == GROUPS[model.removesuffix("_thread")][1]
    assert found["name"] == model
    assert found["gpus"] == []


@pytest.mark.parametrize(("model", "expected"), [("own", ("KIND_MODEL", 1)), ("own_cpu", ("KIND_CPU", 2))])
def test_a_group_of_the_configuration_counts_first(url: str, model: str, expected: tuple[str, int]) -> None:
    found = group(url, model)

    assert (found["kind"], found["count"]) == expected


@pytest.mark.parametrize("model", ["parallel", "parallel_thread", "serial", "serial_thread"])
def test_instances_begin_together_or_one_after_the_other(url: str, model: str) -> None:
    assert urlopen(f"{url}/v2/models/{model}/ready").status == 200


@pytest.mark.parametrize("model", WATCHED)
def test_an_instance_may_say_that_it_is_not_ready(
    request: pytest.FixtureRequest, served: tuple[str, Path], model: str
) -> None:
    url, root = served

    def is_ready() -> bool:
        try:
            return urlopen(f"{url}/v2/models/{model}/ready").status == 200
        except HTTPError:
            return False

    before = is_ready()
    (root / model).touch()
    meanwhile = is_ready()
    (root / model).unlink()

    assert (before, is_ready()) == (True, True)
    assert meanwhile is ("real" in request.node.callspec.id)  # which is 2.51, and does not ask
