"""The part "python": what models written in Python do, on both servers.

Two tensors in and out, strings, models that call another model, and a decoupled model that answers over the
gRPC stream. The cases are here, and what right answers are; models lie in `models/`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from bench_servers import NotStarted, RunningServer
from load_generator import Load
from numpy.typing import NDArray
from stream_load import StreamLoad, check_stream

MODELS = (
    "add_sub_py",
    "bls_async_py",
    "bls_py",
    "double_py_1",
    "double_py_2",
    "double_py_3",
    "ensemble_py",
    "identity_py",
    "repeat_py",
    "strings_py",
)
FACTORS = {"bls_py": 1, "bls_async_py": 2, "ensemble_py": 8}
CONCURRENCY = (1, 8)
STRING_COUNT, STRING_LENGTH = 1000, 16
STRINGS_BYTE_SIZE = STRING_COUNT * (4 + STRING_LENGTH)  # on the wire each string follows its length
Arrays = dict[str, NDArray[Any]]  # Any: the datatype differs by tensor


def python_loads(protocols: Sequence[str], concurrency: Sequence[int]) -> list[Load]:
    """Return the unary cases, each for every protocol and concurrency."""
    return [
        load
        for protocol, clients in itertools.product(protocols, concurrency)
        for load in (
            Load("add_sub_py", protocol, clients, byte_size=2 * 16 * 4),
            Load(
                "strings_py",
                protocol,
                clients,
                "INPUT0",
                str(STRING_COUNT),
                STRINGS_BYTE_SIZE,
                string_length=STRING_LENGTH,
            ),
            Load("bls_py", protocol, clients, "INPUT0", "16", 64),
            Load("bls_py", protocol, clients, "INPUT0", str(1 << 18), 1 << 20),
            Load("bls_async_py", protocol, clients, "INPUT0", "16", 64),
            Load("ensemble_py", protocol, clients, "INPUT0", "16", 64),
            Load("ensemble_py", protocol, clients, "INPUT0", str(1 << 18), 1 << 20),
        )
    ]


def stream_loads(concurrency: Sequence[int]) -> list[StreamLoad]:
    """Return the cases of the decoupled model."""
    return [StreamLoad("repeat_py", streams=clients) for clients in concurrency]


def check_answers(server: RunningServer, loads: Sequence[Load], streams: Sequence[StreamLoad]) -> None:
    """Refuse to measure a server that answers anything but what the models are written to answer.

    Every model that will be measured is asked over each protocol it is measured with.

    Raises:
        NotStarted: an answer is wrong, or is an error.
    """
    for model_name, protocol in dict.fromkeys((load.model_name, load.protocol) for load in loads):
        for sent, expected in _examples(model_name):
            try:
                found = _infer(server, protocol, model_name, sent, list(expected))
            except tritonclient.utils.InferenceServerException as error:
                raise NotStarted(
                    f"{server.name} cannot answer {model_name} over {protocol}: {error}"
                ) from error
            for name, values in expected.items():
                answered = found[name]
                if answered is None or not np.array_equal(answered, values):
                    raise NotStarted(
                        f"{server.name} answered {model_name} over {protocol} with {name} {answered};"
                        f" expected {values}"
                    )
    for model_name in {load.model_name for load in streams}:
        check_stream(server, model_name)


def _examples(model_name: str) -> Iterator[tuple[Arrays, Arrays]]:
    """Yield inputs of a model and the outputs that belong to them."""
    if model_name == "add_sub_py":
        left, right = np.arange(16, dtype=np.int32), np.full(16, 7, dtype=np.int32)
        yield {"INPUT0": left, "INPUT1": right}, {"OUTPUT0": left + right, "OUTPUT1": left - right}
    elif model_name == "strings_py":
        words = [f"string number {number}" for number in range(STRING_COUNT)]
        strings = np.array([word.encode() for word in words], dtype=np.object_)
        upper = np.array([word.upper().encode() for word in words], dtype=np.object_)
        yield {"INPUT0": strings}, {"OUTPUT0": upper}
    else:
        factor = FACTORS[model_name]
        for count in (16, 1 << 18):
            values = np.arange(count, dtype=np.float32)
            yield {"INPUT0": values}, {"OUTPUT0": factor * values}


def _infer(
    server: RunningServer, protocol: str, model_name: str, sent: Arrays, outputs: Sequence[str]
) -> dict[str, NDArray[Any] | None]:
    """Ask once with NVIDIA's client and return the outputs."""
    client_library = getattr(tritonclient, protocol)
    inputs = []
    for name, values in sent.items():
        datatype = tritonclient.utils.np_to_triton_dtype(values.dtype)
        inputs.append(client_library.InferInput(name, list(values.shape), datatype))
        inputs[-1].set_data_from_numpy(values)
    with client_library.InferenceServerClient(server.url(protocol)) as client:
        answer = client.infer(model_name, inputs)
        return {name: answer.as_numpy(name) for name in outputs}
