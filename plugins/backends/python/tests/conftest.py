"""The server's side of a worker, driven by hand: real processes, real socket pairs, the real frames.

`TRITONPY_WORKER_PYTHON` names another interpreter for the workers to run on.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import tritonpy_backend_python
from triton_python_backend_utils import _link, _server_metrics
from tritonpy import ipc
from tritonpy.ipc import frame
from tritonpy.ipc.arena import CONTROL_SLOTS
from tritonpy.ipc.channel import CHANNEL_VARIABLE, SEGMENT_VARIABLE, Endpoint
from tritonpy.ipc.frame import FrameReader
from tritonpy.plugin import Tensor, datatype_of

from .metrics_link import MetricsServer

TIMEOUT_S = 60
PYTHON = os.environ.get("TRITONPY_WORKER_PYTHON", sys.executable)


class Worker:
    """A worker process and this end of its channel; blocking."""

    def __init__(self, python=PYTHON, variables=None):
        self._socket, theirs = socket.socketpair()
        segments, their_segments = socket.socketpair()
        self._socket.settimeout(TIMEOUT_S)
        segments.settimeout(TIMEOUT_S)
        self.endpoint = Endpoint(segments)
        self.cancel_flags = self.endpoint.arena.add_segment(CONTROL_SLOTS)
        self.process = subprocess.Popen(
            [python, str(tritonpy_backend_python.WORKER)],
            env={
                **os.environ,
                "TRITONPY_IPC_PATH": str(Path(ipc.__file__).parent),
                CHANNEL_VARIABLE: str(theirs.fileno()),
                SEGMENT_VARIABLE: str(their_segments.fileno()),
                **(variables or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(theirs.fileno(), their_segments.fileno()),
        )
        theirs.close()
        their_segments.close()
        self._reader = FrameReader()
        self._messages = deque()
        self._batch = 0
        self.logs = []  # level, text, request id
        self.log_places = []  # file and line of each
        self.tracebacks = []

    def set_up(self, **changes):
        """Tell it of `config`, the model in `directory`."""
        spec = {
            "name": self.config["name"],
            "version": 1,
            "directory": str(self.directory),
            "backend": "python",
            "settings": {},
            "config": self.config,
            "shared_memory": [4 << 20, 4 << 20, 0],
        }
        self.send(frame.SETUP, json.dumps({**spec, **changes}))

    def initialize(self, **changes):
        """Have it make its instance; returns the answer."""
        spec = {
            "name": f"{self.config['name']}_0_0",
            "index": 0,
            "kind": "KIND_CPU",
            "device_id": 0,
            "config": self.config,
        }
        return self.ask(frame.INITIALIZE, json.dumps({**spec, **changes}))

    @property
    def model_file(self):
        return self.directory / "1" / "model.py"

    def send(self, kind, *payload):
        self._socket.sendall(self.endpoint.pack(kind, *payload))

    def receive(self):
        """The next message that is no log line and does not just say that the program runs."""
        while True:
            while not self._messages:
                data = self._socket.recv(256 * 1024)
                assert data, f"the worker closed its channel: {self.process.communicate()}"
                self._messages.extend(self._reader.feed(data))
            message = self._messages.popleft()
            self.endpoint.accept(message)
            if message[0] == frame.STARTED:
                continue
            if message[0] != frame.LOG:
                return message
            self.logs.append(message[2:5])
            self.log_places.append(message[5:7])
            self.tracebacks.append(message[7])

    def expect(self, kind):
        message = self.receive()
        assert message[0] == kind, message
        return message[2:]

    def ask(self, kind, *payload):
        self.send(kind, *payload)
        return self.receive()

    def start(self, *requests):
        """Send one batch and return its number."""
        self._batch += 1
        self.send(frame.EXECUTE, self._batch, list(requests))
        return self._batch

    def execute(self, *requests):
        """Run one batch; returns `(times, responses, error)`."""
        batch = self.start(*requests)
        answered, *rest = self.expect(frame.EXECUTED)
        assert answered == batch
        return tuple(rest)

    def infer(self, *requests):
        """Run one batch that must succeed; returns each response's outputs as arrays by name."""
        _, responses, error = self.execute(*requests)
        assert error is None, error
        return [self.arrays(response) for response in responses]

    def failure(self, *requests):
        """Run one batch that must fail as a whole; returns the error's code and text."""
        _, responses, error = self.execute(*requests)
        assert responses is None
        assert error is not None
        return error

    def response(self):
        """The next RESPONSE: `(slot, outputs by name or None, error or None, final)`."""
        slot, response, final, _ = self.expect(frame.RESPONSE)
        if response is None:
            return slot, None, None, final
        return slot, self.arrays(response, with_error=True), response[2], final

    def arrays(self, response, *, with_error=False):
        outputs, _, error = response
        assert with_error or error is None, error
        return {
            name: Tensor(name, datatype, shape, self.endpoint.adopt(data)).numpy()
            for name, datatype, shape, data in outputs
        }

    def request(
        self,
        slot=0,
        *,
        id="",
        flags=0,
        correlation_id=0,
        timeout_us=0,
        parameters=None,
        outputs=None,
        datatypes=None,
        **inputs,
    ):
        """A request as it travels."""
        encoded = []
        for name, value in inputs.items():
            array = np.asarray(value)
            datatype = (datatypes or {}).get(name) or datatype_of(array.dtype)
            tensor = Tensor.from_numpy(name, array, datatype)
            encoded.append((name, datatype, array.shape, self.endpoint.export(tensor.wire())))
        return slot, id, flags, correlation_id, timeout_us, 0, parameters, outputs, encoded

    def close(self):
        """End the process, however it is, and return what it printed."""
        self._socket.close()
        self.endpoint.close()
        try:
            return self.process.communicate(timeout=TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()


def _outputs(data_types):
    return [{"name": name, "data_type": data_type, "dims": [-1]} for name, data_type in data_types.items()]


@pytest.fixture
def workers():
    """Start workers, all of which are ended with the test."""
    started = []

    def start(*args, **options):
        started.append(Worker(*args, **options))
        return started[-1]

    yield start
    for worker in started:
        worker.close()


@pytest.fixture
def set_up(workers, tmp_path):
    """A worker that has been told of a model, whose version directory holds `code` and `files`."""

    def set_up(code="", *, config=None, files=None, outputs=None, name="net", worker=None, **spec):
        version = tmp_path / name / "1"
        version.mkdir(parents=True)
        for path, text in {"model.py": code, **(files or {})}.items():
            (version / path).write_text(textwrap.dedent(text))
        worker = worker or workers()
        worker.config = {
            "name": name,
            "backend": "python",
            "max_batch_size": 0,
            "input": [],
            "output": _outputs(outputs or {"OUTPUT0": "TYPE_FP32"}),
            **(config or {}),
        }
        worker.directory = tmp_path / name
        worker.set_up(**spec)
        return worker

    return set_up


@pytest.fixture
def load(set_up):
    """A worker whose instance is ready to execute."""

    def load(code, *, decoupled=False, **options):
        if decoupled:
            options["config"] = {"model_transaction_policy": {"decoupled": True}}
        worker = set_up(code, **options)
        answer = worker.initialize()
        assert answer[0] == frame.INITIALIZED, answer
        return worker

    return load


@pytest.fixture
def load_execute(load):
    """A worker whose model is nothing but the body of `execute`."""

    def load_execute(body, *, is_async=False, **options):
        body = textwrap.indent(textwrap.dedent(body).strip(), "        ")
        return load(MODEL.replace("async def", "async def" if is_async else "def") + body + "\n", **options)

    return load_execute


@pytest.fixture
def server(monkeypatch):
    """Where this process's metrics are counted."""
    server = MetricsServer()
    monkeypatch.setattr(_server_metrics, "_stores", [])
    monkeypatch.setattr(_link._current, "_latest", [server])
    return server


MODEL = """
import asyncio, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def answer(value=1.0):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([value], np.float32))])


class TritonPythonModel:
    async def execute(self, requests):
"""
