"""The example `text_generation`, asked over real sockets as its clients ask it."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.options import ServerOptions
from tritonpy.server import Server

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples/text_generation/models"
PROMPT = "How can you be"
CURL = (
    "curl -X POST localhost:8000/v2/models/text_generation/infer -d "
    '\'{"inputs":[{"name":"text_input","datatype":"BYTES","shape":[1],"data":["How can you be"]}]}\''
)
SEED = 4  # with it the committed network writes more than 30 tokens after this prompt
LONG = 8192  # tokens: seconds of work, while a test needs a few of them


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    addresses = {f"{name}_address": "127.0.0.1" for name in ("http", "grpc", "metrics")}
    ports = {f"{name}_port": 0 for name in ("http", "grpc", "metrics")}
    with Server(ServerOptions((str(MODELS),), **addresses, **ports)) as running:  # type: ignore[arg-type]
        yield running


def infer(port: int, prompt: str = PROMPT, **parameters: Any) -> tuple[int, Any]:
    """The status and the text, or the error, that one HTTP request gets."""
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [prompt]}
    body = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    url = f"http://127.0.0.1:{port}/v2/models/text_generation/infer"
    try:
        with urllib.request.urlopen(url, body, timeout=60) as response:
            [output] = json.load(response)["outputs"]
            assert (output["name"], output["datatype"], output["shape"]) == ("text_output", "BYTES", [1])
            return response.status, output["data"][0]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["error"]


class Stream:
    """A gRPC stream with one request to the model that answers token by token."""

    def __init__(self, port: int, prompt: str = PROMPT, **parameters: int) -> None:
        request = service_pb2.ModelInferRequest(model_name="text_generation_stream")
        request.inputs.add(name="text_input", datatype="BYTES", shape=[1])
        request.inputs[0].contents.bytes_contents.append(prompt.encode())
        for name, value in parameters.items():
            request.parameters[name].int64_param = value
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._call = stub.ModelStreamInfer(iter([request]), timeout=60)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def __iter__(self) -> Iterator[tuple[str, str | None, bool]]:
        """Error, text (None where there is none) and final flag of each answer."""
        for answer in self._call:
            response = answer.infer_response
            [packed] = response.raw_output_contents or [None]
            text = None if packed is None else packed[4:].decode()
            yield answer.error_message, text, response.parameters["triton_final_response"].bool_param

    def hang_up(self) -> None:
        self._call.cancel()


def test_the_line_of_the_readme_continues_the_prompt(server: Server) -> None:
    assert CURL in (ROOT / "examples/text_generation/README.md").read_text()
    line = CURL.replace("localhost:8000", f"localhost:{server.http_port}") + " --silent --noproxy '*'"

    answer = json.loads(subprocess.run(line, shell=True, capture_output=True, check=True, timeout=60).stdout)

    [output] = answer["outputs"]
    assert (answer["model_name"], output["name"], output["shape"]) == ("text_generation", "text_output", [1])
    assert output["data"][0].startswith(PROMPT)
    assert len(output["data"][0]) > len(PROMPT)


def test_parameters_of_the_request_are_followed(server: Server) -> None:
    port = server.http_port
    full = infer(port, seed=SEED, max_new_tokens=30)
    again = infer(port, seed=SEED, max_new_tokens=30)
    shorter = infer(port, seed=SEED, max_new_tokens=5)
    continuation = infer(port, seed=SEED, max_new_tokens=30, return_full_text=False)
    likeliest = {infer(port, temperature=0, seed=seed) for seed in (1, 2)}
    of_one = infer(port, temperature=5.0, top_k="1")

    assert full == again
    assert full[1].startswith(shorter[1])
    assert len(shorter[1]) < len(full[1])
    assert full[1] == PROMPT + continuation[1]
    assert likeliest == {of_one}
    assert infer(port, seed=SEED + 1, max_new_tokens=30) != full


@pytest.mark.parametrize(
    ("prompt", "parameters", "said"),
    [
        (PROMPT, {"temperature": -1}, "parameter 'temperature': got -1, expected a number from 0 on"),
        (
            "x " * 300,
            {"max_new_tokens": 4},
            "the prompt has 301 tokens and max_new_tokens is 4, expected at most 256 together; "
            "shorten the prompt or lower max_new_tokens",
        ),
        ("x" * 100_000, {}, "input 'text_input': got 100000 bytes, expected at most "),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    server: Server, prompt: str, parameters: dict[str, Any], said: str
) -> None:
    status, error = infer(server.http_port, prompt, **parameters)

    assert status == 400
    assert error.startswith(f"model 'text_generation': {said}")


def test_a_prompt_that_is_no_text_is_refused(server: Server) -> None:
    data = b"\x04\x00\x00\x00ab\xff\xfe"
    url = f"http://127.0.0.1:{server.http_port}/v2/models/text_generation/infer"
    request = urllib.request.Request(url, data, {"Inference-Header-Content-Length": "0"})

    with pytest.raises(urllib.error.HTTPError) as failure:
        urllib.request.urlopen(request, timeout=30)

    with failure.value as answer:
        assert answer.code == 400
        assert "expected a text in UTF-8" in json.load(answer)["error"]


def test_the_stream_sends_the_tokens_of_the_same_text_one_by_one(server: Server) -> None:
    text = infer(server.http_port, seed=SEED, max_new_tokens=30)[1]

    with Stream(server.grpc_port, seed=SEED, max_new_tokens=30) as stream:
        *answers, (error, nothing, is_final) = stream

    assert (error, nothing, is_final) == ("", None, True)
    assert [(error, is_final) for error, _, is_final in answers] == [("", False)] * len(answers)
    assert len(answers) == 30
    assert PROMPT + "".join(str(piece) for _, piece, _ in answers) == text


def test_a_refusal_ends_the_stream_of_its_request(server: Server) -> None:
    with Stream(server.grpc_port, max_new_tokens=0) as stream:
        [(error, _, is_final)] = stream

    assert "parameter 'max_new_tokens': got 0, expected a whole number from 1 on" in error
    assert is_final


def test_texts_that_are_written_at_the_same_time_do_not_mix(server: Server) -> None:
    alone = [infer(server.http_port, seed=seed) for seed in range(24)]  # more than are worked on at once

    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(lambda seed: infer(server.http_port, seed=seed), range(24)))

    assert together == alone


def test_an_empty_prompt_is_continued(server: Server) -> None:
    status, text = infer(server.http_port, "", seed=1)

    assert status == 200
    assert text


@pytest.mark.parametrize("mode", [[], ["--http"]])
def test_the_client_prints_the_text(server: Server, mode: list[str]) -> None:
    address = {"--url": server.http_port, "--grpc-url": server.grpc_port}
    where = [word for name, port in address.items() for word in (name, f"127.0.0.1:{port}")]
    command = [sys.executable, str(ROOT / "examples/text_generation/client.py"), *where, *mode]
    settings = ["--seed", str(SEED), "--temperature", "0.5", "--max-new-tokens", "20", "--top-k", "9"]

    done = subprocess.run([*command, *settings], capture_output=True, text=True, timeout=60, check=False)

    _, text = infer(server.http_port, seed=SEED, temperature=0.5, max_new_tokens=20, top_k=9)
    assert (done.returncode, done.stdout) == (0, f"{text}\n"), done.stderr


@pytest.mark.parametrize("mode", [[], ["--http"]])
def test_the_client_says_where_there_is_no_server(mode: list[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        command = [sys.executable, str(ROOT / "examples/text_generation/client.py"), *mode]

        done = subprocess.run(
            [*command, "--url", address, "--grpc-url", address],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr.startswith(f"{address}: ")
    assert "Traceback" not in done.stderr


@pytest.fixture
def slow_models(tmp_path: Path) -> Path:
    """The same models for texts of `LONG` tokens, which nothing ends, one at a time."""
    models = tmp_path / "models"
    shutil.copytree(MODELS, models, ignore=shutil.ignore_patterns("__pycache__"))
    for path in models.glob("*/config.pbtxt"):
        path.write_text(path.read_text().replace('string_value: "16"', 'string_value: "1"'))
    checkpoint = models / "text_generation/1/checkpoint"
    for name, key, value in (
        ("config.json", "n_positions", LONG),
        ("generation_config.json", "eos_token_id", None),
    ):
        settings = json.loads((checkpoint / name).read_bytes())
        (checkpoint / name).write_text(json.dumps({**settings, key: value}))
    _repeat(checkpoint / "model.safetensors", "transformer.wpe.weight", LONG)
    return models


def _repeat(path: Path, name: str, rows: int) -> None:
    """Repeat one array of a safetensors file until it has so many rows; it becomes the last one."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    begin, end = header[name]["data_offsets"]
    array = np.frombuffer(data[start + begin : start + end], np.uint8).reshape(header[name]["shape"][0], -1)
    repeated = np.resize(array, (rows, array.shape[1])).tobytes()
    last = len(data) - start
    header[name].update(shape=[rows, header[name]["shape"][1]], data_offsets=[last, last + len(repeated)])
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[start:] + repeated)


def stopped_after(server: Any, model: str) -> int:
    """Wait until the log tells that `model` gave a text up; returns after how many tokens."""
    return int(server.wait_for_log(rf"{model}: stopped after (\d+) tokens, the client is gone")[1])


def test_a_client_that_hangs_up_stops_the_generation(served: Callable[..., Any], slow_models: Path) -> None:
    server = served(f"--model-repository={slow_models}")
    most = LONG - 10

    with Stream(server.ports["GRPCInferenceService"], max_new_tokens=most) as stream:
        answers = [answer for answer, _ in zip(stream, range(3), strict=False)]
        stream.hang_up()
        streamed = stopped_after(server, "text_generation_stream")
    with Stream(server.ports["GRPCInferenceService"], max_new_tokens=2) as stream:
        following = [text for _, text, _ in stream]

    assert [error for error, _, _ in answers] == ["", "", ""]
    assert 3 <= streamed < most
    assert len(following) == 3  # two tokens and the end: the only row was free again


def test_ctrl_c_ends_the_client_and_the_generation(served: Callable[..., Any], slow_models: Path) -> None:
    server = served(f"--model-repository={slow_models}")
    most = LONG - 10
    address = f"127.0.0.1:{server.ports['GRPCInferenceService']}"
    command = [sys.executable, str(ROOT / "examples/text_generation/client.py"), "--grpc-url", address]

    with subprocess.Popen(
        [*command, "--max-new-tokens", str(most)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        begin = client.stdout.read(len(PROMPT) + 1)  # the first token is there
        client.send_signal(signal.SIGINT)
        rest, errors = client.communicate(timeout=20)

    assert begin.startswith(PROMPT)
    assert rest.endswith("\n")
    assert (client.returncode, errors) == (0, "")
    assert stopped_after(server, "text_generation_stream") < most


def test_a_client_that_hangs_up_over_http_stops_the_generation(
    served: Callable[..., Any], slow_models: Path
) -> None:
    code = slow_models / "text_generation/1/model.py"
    token = "        self._tokens.append(token)\n"
    assert token in code.read_text()
    line = '        if len(self._tokens) == 1:\n            pb_utils.Logger.log_info("it has begun")\n'
    code.write_text(code.read_text().replace(token, token + line))
    server = served(f"--model-repository={slow_models}")
    port, most = server.ports["HTTPService"], LONG - 10
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [PROMPT]}
    body = json.dumps({"inputs": [tensor], "parameters": {"max_new_tokens": most}})

    with ThreadPoolExecutor(1) as pool, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            f"POST /v2/models/text_generation/infer HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        server.wait_for_log("it has begun")
        waiting = pool.submit(infer, port, max_new_tokens=2)  # there is one row for both
        connection.close()
        answer = waiting.result(timeout=60)

    assert 0 < stopped_after(server, "text_generation") < most
    assert answer[0] == 200


@pytest.mark.parity
def test_the_real_server_runs_the_same_models_and_answers_the_same(
    server: Server, real_triton: Callable[[Path], dict[str, int]]
) -> None:
    real = real_triton(MODELS)

    with Stream(server.grpc_port, seed=SEED) as ours, Stream(real["grpc"], seed=SEED) as theirs:
        assert list(ours) == list(theirs)
    assert infer(real["http"], seed=SEED) == infer(server.http_port, seed=SEED)
    assert infer(real["http"], temperature=-1)[0] == 400
