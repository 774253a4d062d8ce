"""A model written with `@batched` answers alike on our server and on Triton with the folder beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonpy_model
from tritonclient.http import InferenceServerClient, InferInput
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

MODEL = """
import numpy as np
from tritonpy_model import batched


class TritonPythonModel:
    @batched
    {definition} execute(self, inputs):
        rows = len(inputs["X"])
        text = [[text.upper()] for text in inputs.get("TEXT", np.full((rows, 1), b"none")).ravel().tolist()]
        return {{"Y": inputs["X"] * 2, "LOUD": np.array(text, object)}}
"""

CONFIG = """
backend: "python"
max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 20000 }
input { name: "X" data_type: TYPE_FP32 dims: 2 }
input { name: "TEXT" data_type: TYPE_STRING dims: 1 optional: true }
output { name: "Y" data_type: TYPE_FP32 dims: 2 }
output { name: "LOUD" data_type: TYPE_STRING dims: 1 }
"""

RAGGED = """
import numpy as np
from tritonpy_model import batched


class TritonPythonModel:
    @batched
    def execute(self, inputs):
        tokens = inputs["TOKENS"]
        if not isinstance(tokens, list):
            return {"SUM": tokens.sum(axis=1, keepdims=True)}
        return {"SUM": [own.sum(axis=1, keepdims=True) for own in tokens]}
"""

RAGGED_CONFIG = """
backend: "python"
max_batch_size: 8
dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 20000 }
input { name: "TOKENS" data_type: TYPE_INT32 dims: -1 allow_ragged_batch: true }
output { name: "SUM" data_type: TYPE_INT32 dims: 1 }
"""


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    made = ModelRepository(tmp_path)
    for name, definition in (("plain", "def"), ("coroutine", "async def")):
        made.python(name, MODEL.format(definition=definition), CONFIG)
    made.python("ragged", RAGGED, RAGGED_CONFIG)
    return made


def check(port: int) -> None:
    def infer(number: int) -> None:
        x = np.full((1 + number % 2, 2), number, np.float32)
        inputs = [InferInput("X", x.shape, "FP32")]
        inputs[0].set_data_from_numpy(x)
        if number % 3:
            inputs.append(InferInput("TEXT", [len(x), 1], "BYTES"))
            inputs[1].set_data_from_numpy(np.full((len(x), 1), f"text {number}".encode(), object))
        with InferenceServerClient(f"127.0.0.1:{port}") as client:
            answer = client.infer("plain" if number % 2 else "coroutine", inputs)

        assert answer.as_numpy("Y").tolist() == (x * 2).tolist()
        expected = f"TEXT {number}" if number % 3 else "NONE"
        assert answer.as_numpy("LOUD").tolist() == [[expected.encode()]] * len(x)

    def sum_up(number: int) -> None:
        tokens = np.arange(1 + number % 4, dtype=np.int32)[None]
        tensor = InferInput("TOKENS", tokens.shape, "INT32")
        tensor.set_data_from_numpy(tokens)
        with InferenceServerClient(f"127.0.0.1:{port}") as client:
            answer = client.infer("ragged", [tensor])

        assert answer.as_numpy("SUM").tolist() == [[tokens.sum()]]

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(infer, range(32)))
        list(clients.map(sum_up, range(32)))


def test_clients_at_once_get_their_own_answers(
    serve: Callable[..., Server], repository: ModelRepository
) -> None:
    check(serve(repository.path).http_port)


@pytest.mark.parity
def test_so_they_do_from_triton(
    real_triton: Callable[[Path], dict[str, int]], repository: ModelRepository
) -> None:
    package = Path(tritonpy_model.__file__).parent
    for model in repository.path.iterdir():
        shutil.copytree(package, model / "1" / package.name)

    check(real_triton(repository.path)["http"])
