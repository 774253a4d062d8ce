"""Inference by every client of tritonclient, synchronous and on asyncio, over HTTP and gRPC."""

from __future__ import annotations

import json
import queue
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.testing import until

from .conftest import AnyClient, ClientServer
from .models import LABELS

NUMBERS = np.array([[1.5, -2, np.inf], [0, 1e-30, 3]], np.float32)
TEXTS = np.array([["", "é", "a longer text"]] * 2, object)
SYNCHRONOUS = ("http", "grpc")
BINARY = pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])


def seen(result: Any) -> dict[str, Any]:
    return json.loads(result.as_numpy("SEEN")[0, 0])


def plain(client: AnyClient) -> list[Any]:
    return [client.input("NUMBERS_IN", np.ones((1, 2), np.float32))]


def refused(error: InferenceServerException) -> tuple[str, str]:
    return str(error.status()), error.message()


@BINARY
def test_tensors_come_back_as_they_were(client, is_binary):
    integers = np.array([[2**62, -(2**62)], [0, -1]], np.int64)
    inputs = [
        client.input("NUMBERS_IN", NUMBERS, binary_data=is_binary),
        client.input("TEXTS_IN", TEXTS, binary_data=is_binary),
        client.input("INTEGERS_IN", integers, binary_data=is_binary),
    ]
    outputs = [
        client.output(name, binary_data=is_binary) for name in ("INTEGERS_OUT", "NUMBERS_OUT", "TEXTS_OUT")
    ]

    result = client.infer("echo", inputs, outputs=outputs)

    assert result.as_numpy("NUMBERS_OUT").dtype == np.float32
    assert np.array_equal(result.as_numpy("NUMBERS_OUT"), NUMBERS)
    assert np.array_equal(result.as_numpy("INTEGERS_OUT"), integers)
    texts = result.as_numpy("TEXTS_OUT")
    assert texts.shape == TEXTS.shape
    assert [text if isinstance(text, str) else text.decode() for text in texts[1]] == list(TEXTS[1])
    assert result.as_numpy("SEEN") is None


def test_bytes_need_not_be_text(client):
    raw = np.array([[b"\xff\x00", b"\x80" * 70_000]], object)

    result = client.infer("echo", [client.input("TEXTS_IN", raw)])

    assert result.as_numpy("TEXTS_OUT").tolist() == raw.tolist()


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")  # aiohttp's opinion
def test_a_large_tensor_comes_back_whole(client):
    numbers = np.random.default_rng(1).random((4, 300_000), np.float32)

    result = client.infer("echo", [client.input("NUMBERS_IN", numbers)])

    assert np.array_equal(result.as_numpy("NUMBERS_OUT"), numbers)


@pytest.mark.parametrize("sequence_id", [7, "seven"])
def test_what_a_client_says_of_a_request_reaches_the_model(client, sequence_id):
    parameters = {"text": "é", "number": -3, "flag": True}

    result = client.infer(
        "echo",
        plain(client),
        request_id="one",
        sequence_id=sequence_id,
        sequence_start=True,
        sequence_end=True,
        priority=2,
        timeout=5_000_000,
        parameters=parameters,
    )

    assert seen(result) == {
        "id": "one",
        "correlation_id": sequence_id,
        "flags": 3,
        "timeout": 5_000_000,
        "parameters": parameters,
    }


def test_a_response_tells_whose_it_is_and_what_the_model_says_of_it(client):
    response = client.infer("echo", plain(client), request_id="two").get_response(**client.as_json)

    assert (response["model_name"], response["model_version"], response["id"]) == ("echo", "1", "two")
    parameters = response["parameters"]
    if client.is_http:
        assert parameters == {"rows": 1, "by": "echo", "whole": True}
    else:
        assert parameters == {
            "rows": {"int64_param": "1"},
            "by": {"string_param": "echo"},
            "whole": {"bool_param": True},
        }


@BINARY
def test_the_top_classes_carry_their_labels(client, is_binary):
    scores = np.array([[0.25, 4, -1, 2], [9, 8, 7, 6.5]], np.float32)
    wanted = [client.output("OUTPUT0", class_count=2, binary_data=is_binary)]

    result = client.infer("scores", [client.input("INPUT0", scores)], outputs=wanted)

    found = [
        [text.decode() if isinstance(text, bytes) else text for text in row]
        for row in result.as_numpy("OUTPUT0")
    ]
    assert found == [["4.000000:1:dog", "2.000000:3:fish"], ["9.000000:0:cat", "8.000000:1:dog"]]
    assert len(LABELS) == scores.shape[1]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_bodies_may_be_compressed(client, algorithm):
    numbers = np.zeros((2, 50_000), np.float32)
    how = (
        {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
        if client.is_http
        else {"compression_algorithm": algorithm}
    )

    result = client.infer("echo", [client.input("NUMBERS_IN", numbers)], **how)

    assert np.array_equal(result.as_numpy("NUMBERS_OUT"), numbers)


def test_headers_are_forwarded_as_parameters(client):
    result = client.infer("echo", plain(client), headers={"x-tenant": "blue", "other": "red"})

    parameters = {name.lower(): value for name, value in seen(result)["parameters"].items()}
    assert parameters == {"x-tenant": "blue"}


def test_a_plugin_of_the_client_adds_its_header(open_client):
    from tritonclient.grpc.auth import BasicAuth as GrpcAuth
    from tritonclient.http.auth import BasicAuth as HttpAuth

    for kind, plugin in (("http", HttpAuth), ("grpc", GrpcAuth)):
        client = open_client(kind)
        client.register_plugin(plugin("me", "secret"))

        parameters = seen(client.infer("echo", plain(client)))["parameters"]

        assert list(parameters.values()) == ["Basic bWU6c2VjcmV0"], kind


@pytest.mark.parametrize("kind", ["grpc", "grpc.aio"])
def test_a_client_may_ping_and_speak_tls(tls_server, kind):
    where = SimpleNamespace(grpc=f"localhost:{tls_server.port}")
    client = AnyClient(
        kind,
        where,
        ssl=True,
        root_certificates=str(tls_server.authority_file),
        keepalive_options=tritonclient.grpc.KeepAliveOptions(
            keepalive_time_ms=10, keepalive_timeout_ms=30_000, http2_max_pings_without_data=2
        ),
    )

    alive = [client.is_server_live() for _ in range(20)]
    client.close()

    assert alive == [True] * 20


class TestErrors:
    @pytest.mark.parametrize(
        ("model", "inputs", "http", "grpc", "text"),
        [
            ("nope", {}, "404", "NOT_FOUND", "Request for unknown model: 'nope' is not found"),
            (
                "scores",
                {"INPUT0": np.zeros((1, 3), np.float32)},
                "400",
                "INVALID_ARGUMENT",
                "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'scores'. Expected "
                "[-1,4], got [1,3]. ",
            ),
            (
                "counts",
                {"COUNT": np.ones(1, np.int32)},
                "501",
                "UNIMPLEMENTED",
                "models with decoupled transaction policy",
            ),
            ("fails", {"CODE": np.array(["raise"], object)}, "500", "INTERNAL", "ValueError: boom"),
            *(
                ("fails", {"CODE": np.array([code], object)}, http, grpc, f"so {code}")
                for code, http, grpc in (
                    ("UNKNOWN", "400", "UNKNOWN"),
                    ("INTERNAL", "500", "INTERNAL"),
                    ("NOT_FOUND", "404", "NOT_FOUND"),
                    ("INVALID_ARG", "400", "INVALID_ARGUMENT"),
                    ("UNAVAILABLE", "503", "UNAVAILABLE"),
                    ("UNSUPPORTED", "501", "UNIMPLEMENTED"),
                    ("ALREADY_EXISTS", "400", "ALREADY_EXISTS"),
                    ("CANCELLED", "400", "CANCELLED"),
                )
            ),
        ],
        ids=lambda value: value if isinstance(value, str) and value.isupper() else "",
    )
    def test_an_exception_carries_status_and_text(self, client, model, inputs, http, grpc, text):
        tensors = [client.input(name, array) for name, array in inputs.items()]
        with pytest.raises(InferenceServerException) as failed:
            client.infer(model, tensors)

        status, message = refused(failed.value)
        assert status == (http if client.is_http else f"StatusCode.{grpc}")
        assert text in message

    def test_an_error_may_hold_more_than_ascii(self, client):
        with pytest.raises(InferenceServerException) as failed:
            client.infer("fäils", [])

        assert "fäils" in failed.value.message() or client.is_http

    def test_the_connection_goes_on_after_an_error(self, client):
        for _ in range(3):
            with pytest.raises(InferenceServerException):
                client.infer("nope", [])
            assert client.infer("echo", plain(client)).as_numpy("NUMBERS_OUT").tolist() == [[1, 1]]


class TestTimeouts:
    """A busy machine may not have begun a request when its client gives it up: then another one is sent."""

    PATIENCE_S = (0.5, 6.0, 24.0)
    BEGINS_S = 5.0  # after that it has not begun, and the next one is sent

    def slow(self, client: AnyClient) -> list[Any]:
        """A minute, unless nobody waits; the client is connected, so that its request comes at once."""
        assert client.is_server_live()
        return [client.input("SECONDS", np.array([60], np.float32))]

    def is_stopped(self, server: ClientServer, request_id: str) -> bool:
        """Whether the model had begun a request; if so, it has to hear that nobody waits for it."""
        give_up = time.monotonic() + self.BEGINS_S
        while f'began request {request_id}"' not in server.log:
            if time.monotonic() > give_up:
                return False
            time.sleep(0.02)
        until(lambda: f'nobody waits for request {request_id}"' in server.log)
        return True

    @pytest.mark.parametrize("kind", ["grpc", "grpc.aio"])
    def test_a_client_over_grpc_waits_no_longer_than_it_says(self, open_client, server, kind):
        client = open_client(kind)

        def is_stopped_after(patience_s: float) -> bool:
            name = f"late-{kind}-{patience_s}"
            with pytest.raises(InferenceServerException) as late:
                client.infer("slow", self.slow(client), client_timeout=patience_s, request_id=name)
            assert refused(late.value) == ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded")
            return self.is_stopped(server, name)

        assert any(map(is_stopped_after, self.PATIENCE_S))

    def test_a_client_over_http_waits_no_longer_than_it_says(self, open_client, server):
        def is_stopped_after(patience_s: float) -> bool:
            client = open_client("http", network_timeout=patience_s)
            with pytest.raises(TimeoutError):
                client.infer("slow", self.slow(client), request_id=f"late-http-{patience_s}")
            client.client.close()
            return self.is_stopped(server, f"late-http-{patience_s}")

        assert any(map(is_stopped_after, self.PATIENCE_S))


class TestAsynchronous:
    def test_many_requests_over_http_are_answered_each_with_its_own(self, open_client):
        client = open_client("http", concurrency=8)
        handles = [
            client.async_infer("echo", [client.input("NUMBERS_IN", np.full((1, 3), number, np.float32))])
            for number in range(40)
        ]

        results = [handle.get_result() for handle in handles]

        assert [result.as_numpy("NUMBERS_OUT")[0, 0] for result in results] == list(range(40))

    def test_an_error_over_http_comes_with_the_result(self, open_client):
        client = open_client("http")
        with pytest.raises(InferenceServerException) as failed:
            client.async_infer("nope", []).get_result()

        assert refused(failed.value) == ("404", "Request for unknown model: 'nope' is not found")

    def test_callbacks_over_grpc_get_result_or_error(self, open_client):
        client = open_client("grpc")
        outcomes: queue.Queue[tuple[Any, Any]] = queue.Queue()
        for number in range(40):
            inputs = [client.input("NUMBERS_IN", np.full((1, 3), number, np.float32))]
            client.async_infer("echo", inputs, lambda result, error: outcomes.put((result, error)))
        client.async_infer("nope", [], lambda result, error: outcomes.put((result, error)))

        found = [outcomes.get(timeout=30) for _ in range(41)]

        numbers = sorted(
            int(result.as_numpy("NUMBERS_OUT")[0, 0]) for result, error in found if error is None
        )
        [error] = [error for _, error in found if error is not None]
        assert numbers == list(range(40))
        assert refused(error) == ("StatusCode.NOT_FOUND", "Request for unknown model: 'nope' is not found")

    def test_a_call_over_grpc_may_be_cancelled(self, open_client):
        client = open_client("grpc")
        outcomes: queue.Queue[tuple[Any, Any]] = queue.Queue()
        inputs = [client.input("SECONDS", np.array([5], np.float32))]
        context = client.async_infer("slow", inputs, lambda result, error: outcomes.put((result, error)))

        context.cancel()

        _, error = outcomes.get(timeout=30)
        assert error.status() == "StatusCode.CANCELLED"

    @pytest.mark.parametrize("kind", SYNCHRONOUS)
    def test_threads_share_nothing_but_the_server(self, open_client, kind):
        def ask(number: int) -> list[float]:
            client = open_client(kind)
            inputs = [client.input("NUMBERS_IN", np.full((1, 2), number, np.float32))]
            return [float(client.infer("echo", inputs).as_numpy("NUMBERS_OUT")[0, 0]) for _ in range(5)]

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, range(8))) == [[number] * 5 for number in range(8)]

    @pytest.mark.parametrize("kind", ["http.aio", "grpc.aio"])
    def test_coroutines_wait_side_by_side(self, open_client, kind):
        import asyncio

        client = open_client(kind)

        async def ask(number: int) -> float:
            inputs = [client.input("NUMBERS_IN", np.full((1, 2), number, np.float32))]
            return float((await client.client.infer("echo", inputs)).as_numpy("NUMBERS_OUT")[0, 0])

        async def ask_all() -> list[float]:
            return await asyncio.gather(*map(ask, range(30)))

        assert client.run(ask_all()) == list(range(30))


class TestStreams:
    def count_to(self, client: AnyClient, number: int) -> list[Any]:
        return [client.input("COUNT", np.array([number], np.int32))]

    @pytest.fixture
    def stream(self, open_client) -> Iterator[tuple[AnyClient, queue.Queue[tuple[Any, Any]]]]:
        client = open_client("grpc")
        outcomes: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: outcomes.put((result, error)))
        yield client, outcomes
        client.stop_stream(cancel_requests=True)

    def test_every_response_comes_in_order(self, stream):
        client, outcomes = stream
        client.async_stream_infer("counts", self.count_to(client, 5), enable_empty_final_response=True)

        found = [outcomes.get(timeout=30) for _ in range(6)]

        assert [error for _, error in found] == [None] * 6
        numbers = [result.as_numpy("NUMBER") for result, _ in found]
        assert [int(number[0]) for number in numbers[:-1]] == list(range(5))
        assert numbers[-1] is None
        finals = [result.get_response().parameters["triton_final_response"].bool_param for result, _ in found]
        assert finals == [False] * 5 + [True]

    def test_models_with_one_response_answer_in_a_stream_too(self, stream):
        client, outcomes = stream
        for number in range(10):
            inputs = [client.input("NUMBERS_IN", np.full((1, 1), number, np.float32))]
            client.async_stream_infer("echo", inputs, request_id=str(number), parameters={"n": number})

        found = [outcomes.get(timeout=30)[0] for _ in range(10)]

        assert [result.get_response().id for result in found] == [str(number) for number in range(10)]
        assert [seen(result)["parameters"] for result in found] == [{"n": number} for number in range(10)]

    def test_an_error_comes_in_its_place_and_the_stream_goes_on(self, stream):
        client, outcomes = stream
        client.async_stream_infer("counts", self.count_to(client, -1))
        client.async_stream_infer("counts", self.count_to(client, 1))

        found = [outcomes.get(timeout=30) for _ in range(2)]

        assert [error and error.message() for _, error in found] == ["counts up only", None]

    def test_the_end_of_a_stream_stops_its_model(self, open_client, server):
        client = open_client("grpc")
        outcomes: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(lambda result, error: outcomes.put((result, error)))
        client.async_stream_infer("counts", self.count_to(client, 4001))
        outcomes.get(timeout=30)

        client.stop_stream(cancel_requests=True)

        until(lambda: re.search(r"stopped counting to 4001 at \d+", server.log))

    def test_a_coroutine_reads_a_stream_of_several_requests(self, open_client):
        client = open_client("grpc.aio")

        async def requests() -> Any:
            for count in (2, -1, 3):
                yield {
                    "model_name": "counts",
                    "inputs": self.count_to(client, count),
                    "request_id": str(count),
                }

        async def read() -> list[tuple[str, Any]]:
            found: list[tuple[str, Any]] = []
            async for result, error in client.client.stream_infer(requests()):
                if error is not None:
                    found.append(("", error.message()))
                else:
                    found.append((result.get_response().id, int(result.as_numpy("NUMBER")[0])))
            return found

        found = client.run(read())

        assert [number for name, number in found if name == "2"] == [0, 1]
        assert [number for name, number in found if name == "3"] == [0, 1, 2]
        assert [text for name, text in found if name == ""] == ["counts up only"]

    def test_a_coroutine_may_stop_reading(self, open_client, server):
        client = open_client("grpc.aio")

        async def requests() -> Any:
            yield {"model_name": "counts", "inputs": self.count_to(client, 4002)}

        async def read_some() -> None:
            responses = client.client.stream_infer(requests())
            async for _, _ in responses:
                break
            responses.cancel()

        client.run(read_some())

        until(lambda: re.search(r"stopped counting to 4002 at \d+", server.log))


def test_bodies_made_and_read_apart_from_a_connection_fit(server, open_client):
    from urllib.request import Request, urlopen

    client = open_client("http")
    body, size = client.client.generate_request_body(plain(client), request_id="apart")
    request = Request(
        f"http://{server.http}/v2/models/echo/infer",
        body,
        {"Inference-Header-Content-Length": str(size)} if size else {},
    )
    with urlopen(request, timeout=30) as answer:
        length = answer.headers["Inference-Header-Content-Length"]
        result = client.client.parse_response_body(answer.read(), header_length=length and int(length))

    assert seen(result)["id"] == "apart"
