"""One server for most tests, without HTTP and gRPC: its models are asked in this process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tritonpy.errors import NotFound
from tritonpy_sdk import ModelRepository, RemoteServer, Server
from tritonpy_sdk.testing import DEADLINE_S

from .given import MOST_FRAME_BYTES, options, vector

PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture(scope="session")
def token_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("secret") / "token"
    path.write_text("a token of the tests, which nobody guesses\n")
    return path


@pytest.fixture(scope="session")
def token(token_file):
    return token_file.read_text()


@pytest.fixture(scope="session")
def server(token_file, tmp_path_factory):
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    pair = {
        key: [{"name": f"{key.upper()}0", "data_type": "TYPE_FP32", "dims": [-1]}]
        for key in ("input", "output")
    }
    repository.model("neighbour", {"backend": "identity", "max_batch_size": 4} | pair)
    given = options(
        token_file, ("max-frame-bytes", str(MOST_FRAME_BYTES)), model_repositories=(str(repository.path),)
    )
    with Server(given) as running:
        yield running


@pytest.fixture(scope="session")
def address(server):
    return f"127.0.0.1:{server.port('bind')}"


@pytest.fixture(scope="module")
def remote(address, token):
    """A program's end, in this process."""
    with RemoteServer(address, token=token, connect_timeout_s=DEADLINE_S) as running:
        yield running


@pytest.fixture
def bind(server, remote):
    """Bind a function of x and y, FP32 both; returns the model, which is gone after the test."""
    names = []

    def bound(function, config=None, **more):
        name = more.pop("name", f"bound{len(names)}")
        inputs = more.pop("inputs", [vector("x")])
        outputs = more.pop("outputs", [vector("y")])
        remote.bind(name, function, inputs, outputs, config=config, **more)
        names.append(name)
        return server.model(name)

    yield bound
    for name in names:
        with contextlib.suppress(NotFound):
            remote.unbind(name)


@pytest.fixture
def program(token_file):
    """Start programs, which end with the test."""
    started = []

    def start(address, name="served", *more):
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), address, str(token_file), name, *more],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        started.append((process, errors))
        return process

    yield start
    for process, errors in started:
        process.kill()
        process.wait()
        process.stdout.close()
        errors.close()
