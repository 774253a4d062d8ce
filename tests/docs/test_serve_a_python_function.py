"""The programs on the page about functions do what it says."""

from __future__ import annotations

import inspect
import re
import runpy
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonpy_sdk
from tritonpy.config.read import config_from_dict
from tritonpy.options import ServerOptions
from tritonpy.plugin import InferRequest
from tritonpy_sdk import (
    LOCAL,
    DynamicBatcher,
    LocalModel,
    ModelConfig,
    Request,
    SequenceBatcher,
    Server,
    Tensor,
)

PAGE = (Path(__file__).parents[2] / "docs/how-to/serve-a-python-function.md").read_text()
FILES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
INSIDE = (Path(__file__).parents[2] / "docs/how-to/server-inside-a-program.md").read_text()
PYTRITON = (Path(__file__).parents[2] / "docs/how-to/move-from-pytriton.md").read_text()
VECTOR = Tensor((-1,), "f4", "x")
HOSTS = "http_address='127.0.0.1', http_port=0, grpc_address='127.0.0.1', grpc_port=0, allow_metrics=False"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_serves_until_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    text = FILES["add.py"].replace("Server()", f"Server(ServerOptions((), {HOSTS}))")
    text = "from tritonpy.options import ServerOptions\n" + text
    text += "    print('ended', flush=True)\n"
    text = text.replace(
        "    server.serve()",
        "    server.start()\n    print(server.http_port, server.grpc_port, flush=True)\n    server.serve()",
    )
    program = tmp_path / "add.py"
    program.write_text(text)
    process = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        http, grpc = process.stdout.readline().split()

        assert asked(tritonclient.http, http) == asked(tritonclient.grpc, grpc) == [[3]]
    finally:
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "ended\n")


def asked(client: Any, port: str) -> Any:
    inputs = []
    for name, value in (("a", 1), ("b", 2)):
        tensor = client.InferInput(name, [1, 1], "FP32")
        tensor.set_data_from_numpy(np.array([[value]], np.float32))
        inputs.append(tensor)
    with client.InferenceServerClient(f"127.0.0.1:{port}") as connection:
        return connection.infer("add", inputs).as_numpy("sum").tolist()


def test_the_clients_print_the_sums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, client = tmp_path / "add.py", tmp_path / "ask.py"
    program.write_text(FILES["add.py"])
    bound = runpy.run_path(str(program), run_name="add")
    options = ServerOptions((), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False)
    with Server(options) as server:
        number = bound["number"]
        server.bind("add", bound["add"], [number("a"), number("b")], [number("sum")])
        for name in ("ask.py", "ask_model.py"):
            client.write_text(FILES[name].replace("localhost:8000", f"127.0.0.1:{server.http_port}"))
            runpy.run_path(str(client))

    assert "[[3.]]" in PAGE
    assert capsys.readouterr().out == "[[3.]]\n[3.]\n[[3.]\n [4.]]\n"


def test_models_are_asked_without_sockets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "local.py"
    program.write_text(FILES["local.py"])
    runpy.run_path(str(program))

    assert capsys.readouterr().out == "[[2. 2.]]\n[[0. 0.]]\n[[1. 1.]]\n[[2. 2.]]\n"


def test_the_server_keeps_the_sums_of_sequences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "sums.py"
    program.write_text(FILES["sums.py"])
    runpy.run_path(str(program))

    assert capsys.readouterr().out == "1.0\n21.0\n321.0\n"


def test_models_of_a_repository_are_asked_inside_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "inside.py"
    [text] = re.findall(r"```python\n(.*?)```", INSIDE, re.DOTALL)
    program.write_text(text)
    monkeypatch.chdir(Path(__file__).parents[2])
    runpy.run_path(str(program))

    shapes, count = capsys.readouterr().out.splitlines()
    assert shapes.startswith("{")
    assert int(count) > 0


def second_column(page: str, heading: str) -> list[str]:
    """What the second column of the table below a line says, row by row."""
    table = page.partition(heading)[2].partition("\n\n")[0]
    return [row.split(" | ", 1)[1] for row in table.splitlines() if row.startswith("| ")][1:]


def test_all_that_stands_for_triton_s_api_is_there() -> None:
    rows = second_column(INSIDE, "(`tritonserver`):\n\n")
    asked = set(inspect.signature(InferRequest).parameters) | {
        "sequence_id",
        "sequence_start",
        "sequence_end",
    }
    known = {*dir(Server), *dir(LocalModel), *asked, "Server", "TritonError", "bytes", "id", "tritonpy"}

    assert len(rows) >= 16
    assert not [(name, row) for row in rows for name in re.findall(r"`(\w+)", row) if name not in known]


def test_attributes_of_a_request_are_those_of_calls_inside_the_program() -> None:
    with Server(LOCAL) as server:
        server.bind(
            "same", lambda requests: [{"y": r["x"]} for r in requests], [VECTOR], [Tensor((-1,), "f4", "y")]
        )
        given = {"id": "7", "parameters": {"a": 1}, "priority": 0, "timeout_us": 10**7, "sequence_id": 3}
        flags = {"sequence_start": True, "sequence_end": True}

        answer = server.model("same").infer({"x": np.ones((1, 2), np.float32)}, **given, **flags)

    assert answer["y"].tolist() == [[1, 1]]


def test_settings_and_decorators_of_the_page_are_there() -> None:
    settings = re.findall(r"`((?:ModelConfig|DynamicBatcher|SequenceBatcher|ServerOptions)\(.*?\))`", PAGE)
    decorators = re.findall(r"^\| `@(\w+)", PAGE, re.MULTILINE)
    [listed] = re.findall(r"Requests have (.*?)\.\n", PAGE, re.DOTALL)

    public = {name: getattr(tritonpy_sdk, name) for name in tritonpy_sdk.__all__}
    public |= {"np": np, "ServerOptions": ServerOptions}
    made = [eval(text, public) for text in settings if "…" not in text]
    assert len(made) >= 14
    for each in made:
        if isinstance(each, DynamicBatcher | SequenceBatcher):
            each = ModelConfig(batcher=each)
        if isinstance(each, ModelConfig):
            config_from_dict(each.config(), "m")
    assert len(decorators) == 8
    assert all(hasattr(tritonpy_sdk, name) for name in decorators)
    assert all(hasattr(Request({}), name) for name in re.findall(r"`(\w+)", listed))


def test_modules_and_names_of_pytriton_are_where_the_page_says() -> None:
    rows = second_column(PYTRITON, "change the imports:\n\n")
    names = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    modules = [name for name in names if name.startswith("tritonpy_sdk.")]

    assert len(modules) == 6
    for name in modules:
        import_module(name)
    assert [
        import_module(f"tritonpy_sdk.pytriton.{name}")
        for name in ("client.exceptions", "model_config.common")
    ]
    triton = import_module("tritonpy_sdk.pytriton.triton")
    assert all(hasattr(triton, name) for name in names if name.startswith("Triton"))
