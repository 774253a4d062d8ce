"""Python models on threads of the server: each runs its own code, whatever the others call theirs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

CONFIG = {
    "backend": "python",
    "output": [{"name": "WORD", "data_type": "TYPE_STRING", "dims": [-1]}],
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
}
ON_A_THREAD = {**CONFIG, "parameters": {"TRITONPY_ISOLATION": {"string_value": "thread"}}}
MODEL = """
import helper_mod
import numpy as np
import triton_python_backend_utils as pb_utils
from things import deep
from .rel import word as relative


class TritonPythonModel:
    def execute(self, requests):
        from .late import word as late

        words = np.array([helper_mod.word(), relative(), deep.word(), late()], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("WORD", words)]) for _ in requests]
"""
HELPERS = ("1/helper_mod.py", "1/rel.py", "1/late.py", "things/deep.py")
KINDS = ("absolute", "relative", "in a package", "late")


def write_model(models: ModelRepository, name: str, word: str, config: dict[str, Any]) -> None:
    """A model that answers with what each of its modules says, which is `word`."""
    directory = models.python(name, MODEL, config)
    for path in HELPERS:
        file = directory / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"def word():\n    return {word!r}\n")


def ask(port: int, model: str) -> list[str]:
    body = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}]}
    request = Request(f"http://127.0.0.1:{port}/v2/models/{model}/infer", json.dumps(body).encode())
    with urlopen(request, timeout=30) as answer:
        words: list[str] = json.load(answer)["outputs"][0]["data"]
        return words


def load(port: int, model: str, verb: str = "load") -> None:
    url = f"http://127.0.0.1:{port}/v2/repository/models/{model}/{verb}"
    urlopen(Request(url, b"{}"), timeout=30).close()


def traces(directory: Path) -> list[str]:
    """What `sys.path` and `sys.modules` still hold of the files below a directory."""
    places = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return [place for place in (*sys.path, *places) if place and place.startswith(str(directory))]


def test_models_with_modules_of_the_same_names_each_run_their_own(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path)
    for name in ("a", "b", "c"):
        write_model(models, name, name, ON_A_THREAD)

    port = serve(tmp_path).http_port

    for name in ("a", "b", "c", "a"):
        assert ask(port, name) == [name] * len(KINDS)


def test_an_edited_helper_is_what_the_next_load_runs_and_the_old_one_leaves_nothing(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path)
    for name in ("a", "b"):
        write_model(models, name, f"{name} old", ON_A_THREAD)
    before = [*sys.path]
    server = serve(tmp_path, model_control_mode="explicit", load_models=("a", "b"))
    port = server.http_port
    held = sys.path[:]

    assert ask(port, "a") == ["a old"] * len(KINDS)
    write_model(models, "a", "a new", ON_A_THREAD)
    load(port, "a")

    assert ask(port, "a") == ["a new"] * len(KINDS)
    assert ask(port, "b") == ["b old"] * len(KINDS)
    until(lambda: sorted(sys.path) == sorted(held))  # the old model has gone by then
    for name in ("a", "b"):
        load(port, name, "unload")
    until(lambda: not traces(tmp_path))
    assert sys.path == before


def test_a_model_that_cannot_be_imported_leaves_the_others_what_they_have(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    models = ModelRepository(tmp_path)
    write_model(models, "a", "a", ON_A_THREAD)
    write_model(models, "broken", "broken", ON_A_THREAD)
    (tmp_path / "broken/1/model.py").write_text(MODEL + "\n1 / 0\n")

    server = serve(tmp_path, exit_on_error=False)

    assert ask(server.http_port, "a") == ["a"] * len(KINDS)
    until(lambda: not traces(tmp_path / "broken"))
    assert sys.modules["helper_mod"].word() == "a"


def test_a_model_being_debugged_follows_its_edited_helper(served: Callable[..., Any], tmp_path: Path) -> None:
    models = ModelRepository(tmp_path)
    write_model(models, "m", "old", CONFIG)
    server = served(f"--model-repository={tmp_path}", "--debug-model=m", "--reload")
    port = server.ports["HTTPService"]
    assert ask(port, "m") == ["old"] * len(KINDS)

    edited = tmp_path / "edited"
    edited.write_text("def word():\n    return 'new'\n")
    edited.replace(tmp_path / "m/1/helper_mod.py")  # in one step: it is never seen empty

    until(lambda: ask(port, "m")[0] == "new")
