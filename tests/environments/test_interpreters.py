"""Models on other Pythons than the server's: every version that this machine has.

Their virtual environments with numpy are made once and kept in `.cache/interpreters`.
"""

from __future__ import annotations

import os
import queue
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy_backend_python.interpreter import BadInterpreter, check_interpreter

OLDEST = (3, 9)

CASES = """
import sys
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        for name, data_type in (("NUMBERS", "TYPE_FP32"), ("TEXTS", "TYPE_STRING")):
            config.add_input({"name": name, "data_type": data_type, "dims": [-1]})
            config.add_output({"name": name, "data_type": data_type, "dims": [-1]})
        config.add_output({"name": "VERSION", "data_type": "TYPE_INT32", "dims": [2]})
        return config

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        numbers = pb_utils.get_input_tensor_by_name(request, "NUMBERS").as_numpy()
        texts = pb_utils.get_input_tensor_by_name(request, "TEXTS").as_numpy()
        if any(text == b"raise" for text in texts):
            raise ValueError("as asked: \\u00fc")
        upper = np.array([text.decode().upper() for text in texts], object)
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("NUMBERS", numbers * 2),
                pb_utils.Tensor("TEXTS", upper),
                pb_utils.Tensor("VERSION", np.array(sys.version_info[:2], np.int32)),
            ]
        )
"""

COUNTS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_model_transaction_policy({"decoupled": True})
        config.add_input({"name": "COUNT", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "PART", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    async def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for part in range(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0]):
                tensor = pb_utils.Tensor("PART", np.array([part], np.int32))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def installed() -> dict[tuple[int, int], Path]:
    """The interpreters of this machine by version: those of pyenv, then what lies on the path."""
    found: dict[tuple[int, int], Path] = {}
    for python in sorted(Path.home().glob(".pyenv/versions/*/bin/python")):
        if match := re.match(r"(\d+)\.(\d+)\.", python.parts[-3]):
            found[int(match[1]), int(match[2])] = python
    for folder in map(Path, os.get_exec_path()):
        if folder.name == "shims" or folder == Path(sys.prefix) / "bin":
            continue
        for python in folder.glob("python3.*"):
            if match := re.fullmatch(r"python3\.(\d+)", python.name):
                found.setdefault((3, int(match[1])), python)
    return dict(sorted(found.items()))


FOUND = installed()
SUPPORTED = [version for version in FOUND if version >= OLDEST]
TOO_OLD = [version for version in FOUND if version < OLDEST]


def named(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def every_version() -> list[object]:
    """All of them; those newer than the oldest under stress only."""
    return [
        pytest.param(version, id=named(version), marks=[pytest.mark.stress] * (version > min(SUPPORTED)))
        for version in SUPPORTED
    ]


@pytest.mark.timeout(300)  # the first time numpy is fetched
@pytest.mark.parametrize("version", every_version())
def test_models_run_on_it(serve, model, with_numpy, version):
    environment = with_numpy(FOUND[version])
    model("cases", environment, CASES)
    server = serve(model("counts", environment / "bin" / "python", COUNTS))
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    try:
        check_arrays(client, version, size=3)
        check_arrays(client, version, size=1_000_000)  # in shared memory
        check_exception(client)
        check_stream(client)
    finally:
        client.close()


def tensor(name: str, array: np.ndarray, datatype: str) -> grpcclient.InferInput:
    made = grpcclient.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array)
    return made


def check_arrays(client: grpcclient.InferenceServerClient, version: tuple[int, int], size: int) -> None:
    numbers = np.arange(size, dtype=np.float32)
    texts = np.array(["grün".encode(), b"", b"x" * 50_000], object)

    result = client.infer("cases", [tensor("NUMBERS", numbers, "FP32"), tensor("TEXTS", texts, "BYTES")])

    assert tuple(result.as_numpy("VERSION")) == version
    np.testing.assert_array_equal(result.as_numpy("NUMBERS"), numbers * 2)
    assert [text.decode() for text in result.as_numpy("TEXTS")] == ["GRÜN", "", "X" * 50_000]


def check_exception(client: grpcclient.InferenceServerClient) -> None:
    inputs = [
        tensor("NUMBERS", np.zeros(1, np.float32), "FP32"),
        tensor("TEXTS", np.array([b"raise"], object), "BYTES"),
    ]

    with pytest.raises(
        InferenceServerException, match=r"ValueError: as asked: ü\n\nAt:\n  .*/model.py\(23\): answer"
    ):
        client.infer("cases", inputs)


def check_stream(client: grpcclient.InferenceServerClient) -> None:
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("counts", [tensor("COUNT", np.array([4], np.int32), "INT32")])

    parts = []
    for _ in range(4):
        result, error = answers.get(timeout=30)
        assert error is None, error
        parts.append(int(result.as_numpy("PART")[0]))
    client.stop_stream()

    assert parts == [0, 1, 2, 3]


@pytest.mark.parametrize("version", TOO_OLD, ids=named)
def test_models_do_not_run_on_what_is_too_old(version):
    with pytest.raises(
        BadInterpreter, match=rf"is Python {named(version)}\.\d+, and models need 3\.9 or newer"
    ):
        check_interpreter(FOUND[version])
