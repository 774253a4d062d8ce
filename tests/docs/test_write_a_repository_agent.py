"""The agent of the page decrypts the model of the page."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from cryptography.fernet import Fernet
from tritonpy.plugin import ErrorCode, TritonError
from tritonpy_sdk.testing import compile_shared_object, find_compiler, load_with_agent

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/write-a-repository-agent.md").read_text()
FILES = dict(re.findall(r"^```(?:python|protobuf)\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))

MODEL = FILES["models/secret/1/model.py"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the page, and a model that was encrypted as it says."""
    monkeypatch.chdir(tmp_path)
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    runpy.run_path("encrypt.py")
    assert not (tmp_path / "models/secret/1/model.py").exists()
    return tmp_path


def infer(server: Any) -> Any:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [21]}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urlopen(f"http://127.0.0.1:{server.http_port}/v2/models/secret/infer", body, timeout=20) as answer:
        return json.loads(answer.read())["outputs"][0]["data"]


def test_the_encrypted_model_is_served_and_one_with_another_key_is_not(
    serve: Callable[..., Any], folder: Path
) -> None:
    assert "$ corectl serve --model-repository models --repoagent-directory agents" in PAGE
    server = serve(folder / "models", repo_agent_directory="agents", model_control_mode="explicit")
    load = f"http://127.0.0.1:{server.http_port}/v2/repository/models/secret/load"
    with urlopen(load, b"{}", timeout=20) as answer:
        assert answer.status == 200
    assert infer(server) == [42.0]

    encrypted = folder / "models/secret/1/model.py.encrypted"
    encrypted.write_bytes(Fernet(Fernet.generate_key()).encrypt(MODEL.encode()))

    with pytest.raises(HTTPError) as caught:
        urlopen(load, b"{}", timeout=20)
    with caught.value as refusal:
        assert "model 'secret': model.py.encrypted was encrypted with another key" in refusal.read().decode()
    assert infer(server) == [42.0]


def test_the_agent_in_c_joins_what_lies_in_parts(
    serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, source = re.findall(r"^```c\n/\* (\S+) \*/\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    Path("join.c").write_text(source)
    (command,) = re.findall(r"^\$ cc -shared .* (join\.c -o \S+)$", PAGE, re.MULTILINE)
    if find_compiler() is None:
        pytest.skip("there is no compiler for the agent of the page")
    library = compile_shared_object(Path("join.c"), Path(command.split()[-1]))
    model = tmp_path / "models/secret"
    (model / "1").mkdir(parents=True)
    agent = (
        'model_repository_agents { agents { name: "join" parameters { key: "join" value: "1/model.py" } } }'
    )
    config = re.sub("model_repository_agents .*", agent, FILES["models/secret/config.pbtxt"])
    (model / "config.pbtxt").write_text(config)
    for part, text in enumerate((MODEL[:50], MODEL[50:60], MODEL[60:])):
        (model / f"1/model.py.{part}").write_text(text)

    with load_with_agent(library, model, {"join": "1/model.py"}) as load:
        assert [path.name for path in (load.directory / "1").iterdir()] == ["model.py"]
    assert infer(serve(tmp_path / "models", repo_agent_directory="agents")) == [42.0]

    with pytest.raises(TritonError) as caught, load_with_agent(library, model, {"join": "1/weights.bin"}):
        pass
    assert caught.value.code is ErrorCode.INVALID_ARG
    assert caught.value.message == "1/weights.bin cannot be made of its parts"


def test_the_test_of_the_page_passes(folder: Path) -> None:
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_decrypt.py"]

    run = subprocess.run(pytest_here, cwd=folder, capture_output=True, text=True, timeout=100)

    assert "1 passed" in run.stdout, run.stdout + run.stderr
