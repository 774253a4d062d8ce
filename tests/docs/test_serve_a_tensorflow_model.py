"""What the pages on TensorFlow models show works: its scripts, its configuration, the answers it tells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="TensorFlow is not installed: pip install tensorflow-cpu"
)

HOW_TO = Path(__file__).parent.parent.parent / "docs/how-to"
PAGE = HOW_TO / "serve-a-tensorflow-model.md"


def blocks(language: str, page: Path = PAGE) -> dict[str, str]:
    """The examples of a page by the file names in their first lines."""
    return dict(re.findall(rf"```{language}\n# (\S+)\n(.*?)```", page.read_text(), re.DOTALL))


def run(script: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True).stdout


def ask(url: str, path: str, document: object = None) -> Any:
    body = None if document is None else json.dumps(document).encode()
    with urllib.request.urlopen(f"http://{url}{path}", body, timeout=60) as answer:
        return json.load(answer)


def test_models_are_saved_served_and_asked(served: Callable[..., Any], tmp_path: Path) -> None:
    scripts = blocks("python")
    run(scripts["save.py"], tmp_path)
    for name, text in blocks("protobuf").items():
        (tmp_path / name).write_text(text)
    server = served(f"--model-repository={tmp_path}/models")
    url = f"localhost:{server.ports['HTTPService']}"

    assert run(scripts["ask.py"], tmp_path, url) == "(3, 10)\n"
    config = ask(url, "/v2/models/digits/config")
    assert (config["max_batch_size"], config["instance_group"][0]["count"]) == (32, 2)
    x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    (output,) = ask(url, "/v2/models/scale/infer", {"inputs": [x]})["outputs"]
    assert (output["name"], output["data"]) == ("y", [3, 6])


def test_a_repository_of_tensorflow_serving_is_served_where_it_lies(
    served: Callable[..., Any], tmp_path: Path
) -> None:
    run(blocks("python")["save.py"], tmp_path)
    (tmp_path / "models/scale/1/model.savedmodel").rename(tmp_path / "saved")
    (tmp_path / "models/scale/1").rmdir()
    (tmp_path / "saved").rename(tmp_path / "models/scale/1")
    server = served(f"--model-repository={tmp_path}/models", "--frontend-config=tfserving,port=0")

    x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    url = f"localhost:{server.ports['HTTPService']}"
    (output,) = ask(url, "/v2/models/scale/infer", {"inputs": [x]})["outputs"]
    assert output["data"] == [3, 6]
    page = (HOW_TO / "move-from-tensorflow-serving.md").read_text()
    ((path, document, expected),) = re.findall(r"curl localhost:8501(\S+) -d '(.*?)'\n(.*)", page)
    port = server.wait_for_log(r"Started frontend 'tfserving' at \S+:(\d+)\D")[1]
    assert ask(f"localhost:{port}", path, json.loads(document)) == json.loads(expected)


def test_a_model_is_converted_and_served_by_litert(served: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    page = HOW_TO / "serve-a-tflite-model.md"
    run(blocks("python", page)["convert.py"], tmp_path)
    for name, text in blocks("protobuf", page).items():
        (tmp_path / name).write_text(text)
    server = served(f"--model-repository={tmp_path}/models")
    url = f"localhost:{server.ports['HTTPService']}"

    (document,) = re.findall(r"curl -d '(.*?)'", page.read_text())
    (output,) = ask(url, "/v2/models/scale/infer", json.loads(document))["outputs"]
    assert (output["name"], output["data"]) == ("y", [3, 6])
    config = ask(url, "/v2/models/scale/config")
    assert (config["max_batch_size"], config["instance_group"][0]["count"]) == (32, 4)
