"""The example: a model that adds and subtracts, served here or in a process of its own, and asked."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
from tritonpy.tensor import Array

from tritonpy_sdk.pytriton.client import ModelClient
from tritonpy_sdk.pytriton.decorators import batch
from tritonpy_sdk.pytriton.model_config import ModelConfig, Tensor
from tritonpy_sdk.pytriton.triton import Triton, TritonConfig
from tritonpy_sdk.server import Server

_NAME = "AddSub"
_WAIT_S = 60.0


@batch
def add_sub(a: Array, b: Array) -> dict[str, Array]:
    """The sum and the difference."""
    return {"add": a + b, "sub": a - b}


def ask_here() -> list[str]:
    """Serve in this process, and ask."""
    with _triton() as triton:
        return _ask(_port(triton))


def ask_program() -> list[str]:
    """Serve in a process of its own, ask, and end it.

    Raises:
        RuntimeError: it does not start, or does not end as it should.
    """
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None  # a pipe
    try:
        line = process.stdout.readline()
        if not line.strip().isdigit():
            raise RuntimeError(f"the process has not started; it ended with {process.wait(_WAIT_S)}")
        found = _ask(int(line))
        process.send_signal(signal.SIGINT)
        if status := process.wait(_WAIT_S):
            raise RuntimeError(f"the process ended with {status}")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    return found


def _triton() -> Triton:
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
    )
    triton = Triton(config=config)
    inputs = [Tensor(dtype=np.float32, shape=(-1,), name=name) for name in ("a", "b")]
    outputs = [Tensor(dtype=np.float32, shape=(-1,), name=name) for name in ("add", "sub")]
    triton.bind(_NAME, add_sub, inputs, outputs, config=ModelConfig(max_batch_size=128), strict=True)
    return triton


def _port(triton: Triton) -> int:
    server = triton._server
    assert isinstance(server, Server)  # not one elsewhere
    return server.http_port


def _ask(port: int) -> list[str]:
    a, b = np.array([[1], [5]], np.float32), np.array([[2], [3]], np.float32)
    with ModelClient(f"http://127.0.0.1:{port}", _NAME, init_timeout_s=_WAIT_S) as client:
        answer = client.infer_batch(a, b)
    found = {name: array.tolist() for name, array in answer.items()}
    if found != {"add": (a + b).tolist(), "sub": (a - b).tolist()}:
        raise RuntimeError(f"the model answered {found}")
    return [f"{a.tolist()} and {b.tolist()}: {found}"]


def _serve() -> None:
    triton = _triton()
    triton.run()
    print(_port(triton), flush=True)
    triton.serve()


if __name__ == "__main__":
    _serve()
