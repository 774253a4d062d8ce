"""Models are warmed up before anybody can ask them; with real workers and ONNX Runtime."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from onnx import parser
from tritonpy.workers import instance
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from .journal import Client, Journal, config, count_of, model, warmup

EXPLICIT = {"model_control_mode": "explicit"}
DECOUPLED = """
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            x = pb_utils.get_input_tensor_by_name(request, "X")
            for _ in range(3):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@contextmanager
def asking(server: Any, name: str = "m") -> Iterator[Client]:
    client = Client(server.http_port, name)
    try:
        yield client
    finally:
        client.close()


def test_every_instance_runs_every_sample_and_the_statistics_count_them(
    serve: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal"
    samples = [warmup(batch_size=3, count=2), warmup(batch_size=1), warmup(batch_size=0)]
    ModelRepository(tmp_path / "models").python(
        "m", model(), config(path, {"count": 2}, model_warmup=samples)
    )
    with (
        caplog.at_level(logging.DEBUG, "tritonpy.model"),
        asking(serve(tmp_path / "models", log_verbose=1)) as client,
    ):
        lines = Journal(path).lines()
        assert client.counts() == (14, 6, 14, {1: 2, 3: 4})
        assert client.statistics()["last_inference"] > 0
        assert client.infer() == 1.0
        assert client.counts() == (15, 7, 15, {1: 3, 3: 4})
    for name in ("m_0_0", "m_0_1"):
        assert [line for line in lines if line.startswith(name)] == [
            f"{name} initialize CPU [2]",
            f"{name} execute 3",
            f"{name} execute 3",
            f"{name} execute 1",
        ]
    assert "model 'm' instance m_0_1 is running warmup sample 'sample' for iteration 2" in caplog.messages


def test_a_model_is_not_ready_before_it_is_warm_and_a_reload_waits_for_it(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    models, gate, path = ModelRepository(tmp_path / "models"), tmp_path / "gate", tmp_path / "journal"
    waiting = model(execute=f"while not os.path.exists('{gate}'): time.sleep(0.01)")
    models.python("m", waiting, config(path, model_warmup=[warmup()]))
    journal = Journal(path)
    with asking(serve(models.path, **EXPLICIT)) as client:

        def load() -> threading.Thread:
            other = Client(client._connection.port)
            thread = threading.Thread(target=lambda: (other.load(), other.close()))
            thread.start()
            return thread

        loading = load()
        assert journal.wait(2) == ["m_0_0 execute 1", "m_0_0 initialize CPU [1]"]
        assert client.ask("GET", "/v2/models/m/ready")[0] == 400
        assert "not at ready state" in client.infer() or "no available versions" in client.infer()
        gate.touch()
        loading.join(20)
        assert client.infer() == 1.0

        gate.unlink()
        models.python("m", waiting.replace('"Y",', '"Y", 10 *'))
        journal.lines()
        loading = load()
        journal.wait(2)
        # The old one would wait for the gate, too: it has to be asked what it is by something else.
        assert client.counts()[0] == 2
        gate.touch()
        loading.join(20)
        assert client.infer() == 10.0
        assert client.counts()[0] == 2  # the new one's: its warmup, and this


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_onnx_models_are_warmed_up_on_threads_and_in_workers(
    serve: Callable[..., Any], tmp_path: Path, isolation: str
) -> None:
    net = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\nnet (float[N,1] X) => (float[N,1] Y) { Y = Neg(X) }'
    )
    given = {
        "max_batch_size": 8,
        "parameters": {"TRITONPY_ISOLATION": {"string_value": isolation}},
        "model_warmup": [warmup(batch_size=4, count=2)],
        "instance_group": [{"kind": "KIND_CPU", "count": 2}],
    }
    ModelRepository(tmp_path).onnx("m", net.SerializeToString(), given)
    with asking(serve(tmp_path)) as client:
        assert client.counts() == (16, 4, 16, {4: 4})
        assert client.infer() == -1.0


def test_a_decoupled_model_is_warm_when_its_last_response_has_come(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    given = config(tmp_path / "journal", model_warmup=[warmup(batch_size=2, count=2)])
    ModelRepository(tmp_path / "models").python(
        "m", DECOUPLED, {**given, "model_transaction_policy": {"decoupled": True}}
    )
    with asking(serve(tmp_path / "models")) as client:
        # An execution is counted when it is over, which may be after its last response.
        until(lambda: client.counts() == (4, 2, 4, {2: 2}))
        assert client.statistics()["response_stats"] == {}  # as in Triton


def test_strings_and_numbers_come_from_files(serve: Callable[..., Any], tmp_path: Path) -> None:
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    told = "self.tell(repr([t.as_numpy().tolist() for r in requests for t in r.inputs()]))"
    inputs = [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}]
    inputs.append({"name": "S", "data_type": "TYPE_STRING", "dims": [2]})
    sample = warmup(
        inputs={
            "X": {"data_type": "TYPE_FP32", "dims": [1], "input_data_file": "x"},
            "S": {"data_type": "TYPE_STRING", "dims": [2], "input_data_file": "s"},
        }
    )
    models.python("m", model(execute=told), config(path, input=inputs, model_warmup=[sample]))
    warm = models.path / "m" / "warmup"
    warm.mkdir()
    (warm / "x").write_bytes(np.array([2.5], np.float32).tobytes())
    (warm / "s").write_bytes(b"\x02\0\0\0hi\0\0\0\0")
    with asking(serve(models.path)):
        lines = Journal(path).lines()
    assert sorted(json.loads(lines[2].partition(" ")[2].replace("b'", "'").replace("'", '"')), key=str) == [
        [["hi", ""]],
        [[2.5]],
    ]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (model(execute="raise ValueError('boom')"), "message: ValueError: boom\n"),
        (
            model(execute="return [pb_utils.InferenceResponse(error=pb_utils.TritonError('no thanks'))]"),
            "sample 'sample': no thanks;",
        ),
        (model(execute="os.kill(os.getpid(), 9)"), "killed by signal 9 (SIGKILL) while it executed"),
    ],
    ids=["raises", "answers with an error", "dies"],
)
def test_a_model_whose_warmup_fails_is_not_loaded_and_leaves_nothing_behind(
    serve: Callable[..., Any], tmp_path: Path, source: str, reason: str
) -> None:
    path = tmp_path / "journal"
    ModelRepository(tmp_path / "models").python(
        "m", source, config(path, {"count": 2}, model_warmup=[warmup()])
    )
    with asking(serve(tmp_path / "models", **EXPLICIT)) as client:
        error = client.load()
        assert error.startswith(
            "load failed for model 'm': version 1 is at UNAVAILABLE state: Invalid argument: failed to run "
            "warmup sample 'sample': "
        )
        assert reason in error
        assert client.ask("GET", "/v2/models/m/ready")[0] == 400
    if "kill" not in source:
        assert count_of(Journal(path).lines(), "finalize") == 2


def test_a_worker_that_was_started_again_is_warmed_up_before_it_takes_requests(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    ModelRepository(tmp_path / "models").python(
        "m", model("self.tell(f'pid {os.getpid()}')"), config(path, model_warmup=[warmup(batch_size=2)])
    )
    with asking(serve(tmp_path / "models")) as client:
        journal = Journal(path)
        (pid,) = [int(line.rpartition(" ")[2]) for line in journal.lines() if " pid " in line]
        os.kill(pid, signal.SIGKILL)
        assert count_of(journal.wait(3), "execute 2") == 1
        until(lambda: client.infer() == 1.0)
        assert client.counts()[3][2] == 2


def test_a_worker_that_dies_in_its_warmup_after_a_restart_is_tried_again_more_and_more_seldom(
    serve: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "_FIRST_PAUSE_S", 0.1)
    path, gate = tmp_path / "journal", tmp_path / "gate"
    dies = "open(self.journal).read().count(' pid ') in (2, 3) and os.kill(os.getpid(), 9)"
    ModelRepository(tmp_path / "models").python(
        "m",
        model(
            "self.tell(f'pid {os.getpid()} {time.monotonic()}')",
            f"{dies}\n        while os.path.exists('{gate}'): time.sleep(0.01)",
        ),
        config(path, model_warmup=[warmup()]),
    )
    with asking(serve(tmp_path / "models")) as client:
        journal = Journal(path)
        (pid,) = [int(line.split()[2]) for line in journal.lines() if " pid " in line]
        gate.touch()
        os.kill(pid, signal.SIGKILL)
        until(lambda: "no live instance" in str(client.infer()))
        gate.unlink()
        until(lambda: client.infer() == 1.0)
        first, second, third = [float(line.split()[3]) for line in journal.lines() if " pid " in line]
        assert second - first > 0.09  # it is tried again at once, after a pause, after two
        assert third - second > 0.19


def test_a_server_that_is_told_to_stop_does_not_wait_for_a_warmup(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    ModelRepository(tmp_path / "models").python(
        "m", model(execute="time.sleep(600)"), config(path, model_warmup=[warmup()])
    )
    server = corectl(f"--model-repository={tmp_path / 'models'}", "--exit-timeout-secs=300", awaited=0)
    Journal(path).wait(2)
    workers = psutil.Process(server.process.pid).children(recursive=True)

    server.stop()  # it would wait ten minutes for the model, or five for requests that are under way

    assert psutil.wait_procs(workers, timeout=DEADLINE_S)[1] == []


@pytest.mark.parametrize("thread_count", [1, 4])
def test_a_model_that_loads_another_one_in_its_warmup_does_not_wait_for_ever(
    serve: Callable[..., Any], tmp_path: Path, thread_count: int
) -> None:
    """Its load holds the only place there is, and the name of the model that it loads may be its own."""
    models = ModelRepository(tmp_path / "models")
    for name, wanted in (("m", "other"), ("circle", "circle")):
        models.python(
            name,
            model(execute=f"pb_utils.load_model('{wanted}')"),
            config(tmp_path / f"{name}.txt", model_warmup=[warmup()]),
        )
    models.python("other", model(), config(tmp_path / "other.txt"))
    server = serve(models.path, model_load_thread_count=thread_count, **EXPLICIT)
    with asking(server) as client, asking(server, "circle") as circle, asking(server, "other") as other:
        assert client.load() == ""
        assert other.infer() == 1.0
        assert "cannot wait for 'circle' while it is itself being loaded" in circle.load()
