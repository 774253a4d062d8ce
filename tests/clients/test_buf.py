"""The gRPC port called by `buf curl`, on Go's HTTP/2: it asks reflection for what it sends and reads."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..fetched import CACHE, from_npm
from .conftest import ClientServer, TlsServer
from .models import SEEN, infer_message, seen_by_model

pytestmark = [pytest.mark.emulator, pytest.mark.timeout(600)]  # the first time it is fetched

SERVICE = "inference.GRPCInferenceService"
PATIENCE_S = 60
NOT_FOUND, INVALID_ARGUMENT = 5, 3

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program() -> Path:
    return from_npm(CACHE / "buf", "@bufbuild/buf@1.75.0") / ".bin/buf"


@pytest.fixture
def curl(program: Path, server: ClientServer, tmp_path: Path) -> Run:
    """Call something of the server, or of another URL."""

    def run(path: str, *words: str, url: str = f"http://{server.grpc}") -> subprocess.CompletedProcess[str]:
        command = [program, "curl", "--protocol", "grpc", *words, f"{url}/{path}" if path else url]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path
        )

    return run


def message(model: str, **tensors: Any) -> str:
    """A request in protobuf's JSON."""
    made = infer_message(model, **tensors)
    return json.dumps(
        {
            "modelName": model,
            "inputs": [
                {"name": each.name, "datatype": each.datatype, "shape": list(each.shape)}
                for each in made.inputs
            ],
            "rawInputContents": [base64.b64encode(raw).decode() for raw in made.raw_input_contents],
        }
    )


def read(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """All documents of an output."""
    assert done.returncode == 0, done.stderr
    decoder, text, documents = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        document, end = decoder.raw_decode(text)
        documents.append(document)
        text = text[end:].lstrip()
    return documents


def test_reflection_lists_the_services(curl: Run) -> None:
    done = curl("", "--list-services")

    assert done.returncode == 0, done.stderr
    assert {SERVICE, "grpc.health.v1.Health"} <= set(done.stdout.split())


def test_an_inference_comes_back_with_metadata(curl: Run) -> None:
    numbers = np.array([[1.5, -2]], np.float32)

    [answer] = read(
        curl(f"{SERVICE}/ModelInfer", "-H", "x-tenant: blue", "-d", message("echo", NUMBERS_IN=numbers))
    )

    outputs = dict(
        zip((each["name"] for each in answer["outputs"]), answer["rawOutputContents"], strict=True)
    )
    assert base64.b64decode(outputs["NUMBERS_OUT"]) == numbers.tobytes()
    assert seen_by_model(base64.b64decode(outputs[SEEN]))["parameters"] == {"x-tenant": "blue"}


def test_a_failure_has_its_status_and_text(curl: Run) -> None:
    done = curl(f"{SERVICE}/ModelInfer", "-d", message("fäils"))

    assert done.returncode >> 3 == NOT_FOUND
    assert json.loads(done.stderr)["message"] == "Request for unknown model: 'fäils' is not found"


def test_a_stream_answers_all_that_it_is_asked(curl: Run) -> None:
    asked = [message("counts", COUNT=np.array([count], np.int32)) for count in (2, 1)]

    answers = read(curl(f"{SERVICE}/ModelStreamInfer", "-d", "\n".join([*asked, message("nope")])))

    numbers = [
        int.from_bytes(base64.b64decode(raw), "little")
        for each in answers
        for raw in each["inferResponse"].get("rawOutputContents", [])
    ]
    errors = [each["errorMessage"] for each in answers if "errorMessage" in each]
    assert sorted(numbers) == [0, 0, 1]
    assert errors == ["Request for unknown model: 'nope' is not found"]


def test_tls_is_spoken(curl: Run, tls_server: TlsServer) -> None:
    url = f"https://localhost:{tls_server.port}"

    [answer] = read(curl(f"{SERVICE}/ServerLive", "--cacert", str(tls_server.authority_file), url=url))

    assert answer == {"live": True}
