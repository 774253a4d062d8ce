"""Processes that die around a call, and what they must not leave behind."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tritonpy_sdk.testing import until

from .models import infer, write_caller, write_model


def test_a_worker_that_dies_while_it_is_called_answers_its_caller(serve, tmp_path):
    write_caller(tmp_path, "a", "dying")
    write_model(
        tmp_path,
        "dying",
        "import os\n\nclass TritonPythonModel:\n    def execute(self, requests):\n        os._exit(3)\n",
    )
    server = serve(tmp_path)

    with pytest.raises(RuntimeError, match=r"'dying_0_0' is not healthy\. It exited with code 3"):
        infer(server.http_port, "a", [1])


def test_a_caller_that_dies_cancels_what_it_called(serve, tmp_path):
    flags = tmp_path / "flags"
    flags.mkdir()
    models = tmp_path / "models"
    write_caller(models, "a", "slow")
    write_model(
        models,
        "slow",
        f"""
import os, time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        open(os.path.join({str(flags)!r}, "started"), "w").close()
        deadline = time.monotonic() + 30
        while not requests[0].is_cancelled() and time.monotonic() < deadline:
            time.sleep(0.002)
        name = "cancelled" if requests[0].is_cancelled() else "late"
        open(os.path.join({str(flags)!r}, name), "w").close()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", requests[0].inputs()[0].as_numpy())])]
""",
    )
    server = serve(models)
    [instance] = server.runtime.registry.find("a").instances

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(infer, server.http_port, "a", [1])
        until(lambda: (flags / "started").exists())
        os.kill(instance.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="SIGKILL"):
            answer.result(30)

    until(lambda: len(list(flags.iterdir())) == 2)
    assert (flags / "cancelled").exists()


def test_a_caller_that_was_restarted_again_and_again_leaves_nothing_in_the_model_it_calls(serve, tmp_path):
    write_caller(tmp_path, "a", "b")
    write_caller(tmp_path, "b")
    server = serve(tmp_path)
    values = [float(value) for value in range(1, 10_001)]
    caller = server.runtime.registry.find("a").instances[0]
    called = server.runtime.registry.find("b").instances[0].pid

    def mappings() -> int:
        return Path(f"/proc/{called}/maps").read_text().count("memfd:tritonpy")

    counts = []
    for _ in range(8):
        assert infer(server.http_port, "a", values)[-1] == 9_999
        counts.append(mappings())
        old = caller.pid
        os.kill(old, signal.SIGKILL)
        until(lambda old=old: caller.pid not in (0, old) and caller.is_ready)

    assert counts[-1] <= counts[1]


def test_a_model_that_ends_its_process_while_it_is_loaded_is_not_started_again(serve, tmp_path):
    starts = tmp_path / "starts"
    models = tmp_path / "models"
    write_model(
        models,
        "quitter",
        f"""
import os


class TritonPythonModel:
    def initialize(self, args):
        with open({str(starts)!r}, "a") as file:
            file.write("x")
        os._exit(7)
""",
    )
    server = serve(models, exit_on_error=False)

    [row] = server.runtime.registry.index()
    assert "exited with code 7" in row["reason"]
    assert starts.read_text() == "x"
    tasks = asyncio.run_coroutine_threadsafe(names_of_tasks(), server.loop).result(60)
    assert not [name for name in tasks if "_restart" in name]


async def names_of_tasks() -> list[str]:
    return [repr(task) for task in asyncio.all_tasks()]
