"""Clients of one model each, on a server with functions, over both protocols."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy_sdk import ModelConfig, Request, Server, Tensor, batch, sample
from tritonpy_sdk.clients import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    BatchingUnsupportedError,
    ClientClosedError,
    ClientTimeoutError,
    ClientValueError,
    DecoupledModelClient,
    FuturesModelClient,
    InferenceServerError,
    InvalidUrlError,
    ModelClient,
    QueueFullError,
)
from tritonpy_sdk.clients.server_url import ServerUrl
from tritonpy_sdk.testing import until

ONE, TWO = np.array([1.0], np.float32), np.array([2.0], np.float32)
SOON, LATE_S = 30.0, 0.05
go_on = threading.Event()


@batch
def add(a: Any, b: Any) -> Any:
    return {"sum": a + b, "difference": a - b}


@batch
def count(x: Any) -> Iterator[Any]:
    for factor in range(3):
        yield {"y": x * factor}


@batch
def accumulate(x: Any) -> Iterator[Any]:
    total = np.zeros_like(x)
    for _ in range(4):
        total += x
        yield {"y": total}


def refuse(requests: list[Request]) -> Any:
    raise InvalidArg(f"parameters {dict(requests[0].parameters)}")


def wait(requests: list[Request]) -> Any:
    until(lambda: go_on.is_set() or requests[0].is_cancelled())
    return [{"y": request["x"]} for request in requests]


def number(name: str, dtype: Any = np.float32) -> Tensor:
    return Tensor((1,), dtype, name)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    options = ServerOptions(
        (),
        http_address="127.0.0.1",
        http_port=0,
        grpc_address="127.0.0.1",
        grpc_port=0,
        allow_metrics=False,
        exit_timeout_s=1,
    )
    x, y, plain = [number("x")], [number("y")], ModelConfig(batching=False)
    with Server(options) as running:
        running.bind("add", add, [number("a"), number("b")], [number("sum"), number("difference")])
        running.bind("count", count, x, y)
        running.bind("accumulate", accumulate, x, y)
        running.bind("refuse", refuse, x, y)
        running.bind("wait", wait, x, y)
        upper = sample(lambda x: {"y": np.array([text.upper() for text in x], object)})
        running.bind("upper", upper, [number("x", bytes)], [number("y", bytes)], config=plain)
        yield running


@pytest.fixture(params=["http", "grpc"])
def url(server: Server, request: pytest.FixtureRequest) -> str:
    return url_of(server, request.param)


def url_of(server: Server, protocol: str) -> str:
    return f"{protocol}://127.0.0.1:{server.http_port if protocol == 'http' else server.grpc_port}"


def test_a_sample_has_no_dimension_for_the_batch(url: str) -> None:
    with ModelClient(url, "add") as client:
        by_place = client.infer_sample(ONE, TWO)
        by_name = client.infer_sample(b=TWO, a=ONE)

    assert by_place["sum"].tolist() == by_name["sum"].tolist() == [3]
    assert by_place["difference"].tolist() == by_name["difference"].tolist() == [-1]


def test_a_batch_has_rows(url: str) -> None:
    rows = np.array([[1], [2], [3]], np.float32)
    with ModelClient(url, "add", "1", lazy_init=False) as client:
        assert client.is_batching_supported
        assert client.infer_batch(rows, rows)["sum"].tolist() == [[2], [4], [6]]


def test_a_client_made_of_another_one_does_not_ask_what_that_one_knows(url: str) -> None:
    rows = np.array([[1], [2]], np.float32)
    with ModelClient(url, "add", "1", access_token="secret", inference_timeout_s=SOON) as client:
        assert client.infer_batch(rows, rows)["sum"].tolist() == [[2], [4]]
        with ModelClient.from_existing_client(client) as other:
            assert other.model_config is client.model_config
            assert other.infer_batch(rows, rows)["sum"].tolist() == [[2], [4]]
    with (
        ModelClient(url, "absent", ensure_model_is_ready=False) as absent,
        pytest.raises(InferenceServerError, match="unknown model"),
    ):
        absent.infer_batch(rows, rows)


def test_a_client_tells_what_it_knows_of_its_model(url: str) -> None:
    with ModelClient(url, "add", "1") as client, ModelClient(url, "upper") as strings:
        facts, texts = client.model_config, strings.model_config

    assert (facts.name, facts.model_name, facts.version, facts.model_version) == ("add", "add", "1", 1)
    assert (facts.batching, facts.max_batch_size, facts.decoupled) == (True, 4, False)
    assert [(tensor.name, tensor.dtype, tensor.shape, tensor.optional) for tensor in facts.inputs] == [
        ("a", np.float32, (1,), False),
        ("b", np.float32, (1,), False),
    ]
    assert [tensor.name for tensor in facts.outputs] == ["sum", "difference"]
    assert (texts.model_version, texts.batching) == (-1, False)
    assert [(tensor.datatype, tensor.dtype) for tensor in texts.inputs] == [("BYTES", np.object_)]


async def test_an_asyncio_client_takes_what_another_one_knows(url: str) -> None:
    async with AsyncioModelClient(url, "add", lazy_init=False) as client:
        facts = await client.model_config
        async with AsyncioModelClient(url, "add", model_config=facts) as other:
            assert await other.model_config is facts
            assert (await other.infer_sample(ONE, TWO))["sum"].tolist() == [3]
    async with AsyncioModelClient(url, "add", ensure_model_is_ready=False) as client:
        assert (await client.infer_sample(ONE, TWO))["sum"].tolist() == [3]


def test_strings_may_be_of_any_kind(url: str) -> None:
    with ModelClient(url, "upper") as client:
        assert client.infer_sample(np.array(["ü"]))["y"].tolist() == ["ü".encode()]
        assert client.infer_sample(np.array([b"a"]))["y"].tolist() == [b"A"]
        assert client.infer_sample(np.array(["b"], object))["y"].tolist() == [b"B"]
        with pytest.raises(BatchingUnsupportedError, match="use infer_sample instead"):
            client.infer_batch(np.array([[b"a"]]))


@pytest.mark.parametrize(
    ("inputs", "named", "message"),
    [
        ((ONE,), {"b": TWO}, "either positional or keyword"),
        ((), {}, "either positional or keyword"),
        ((ONE,) * 3, {}, "got 3 inputs, it has 2"),
        ((), {"c": ONE}, "got inputs c, expected a, b"),
        ((ONE[None], np.ones((2, 1))), {}, r"got rows \{'a': 1, 'b': 2\}, expected the same number"),
        ((np.ones((9, 1)),) * 2, {}, r"got rows \{'a': 9, 'b': 9\}.*from 1 to 4"),
    ],
)
def test_inputs_that_the_model_does_not_take_are_refused_before_they_are_sent(
    server: Server, inputs: Any, named: Any, message: str
) -> None:
    with (
        ModelClient(url_of(server, "http"), "add") as client,
        pytest.raises(ClientValueError, match=message),
    ):
        client.infer_batch(*inputs, **named)


def test_what_the_server_refuses_is_told_with_its_text_and_parameters_reach_it(url: str) -> None:
    with ModelClient(url, "refuse") as client, pytest.raises(InferenceServerError) as failed:
        client.infer_sample(ONE, parameters={"key": 3})

    assert "parameters {'key': 3}" in failed.value.message
    assert failed.value.status in ("400", "StatusCode.INVALID_ARGUMENT")


def test_an_answer_that_does_not_come_is_given_up(url: str) -> None:
    with (
        ModelClient(url, "wait", inference_timeout_s=LATE_S) as client,
        pytest.raises(ClientTimeoutError, match=r"gave no answer within 0\.05 s"),
    ):
        client.infer_sample(ONE)


def test_a_model_that_does_not_come_is_given_up(url: str) -> None:
    late = r"model 'none' at .* was not ready within 0\.05 s"
    with (
        ModelClient(url, "none", init_timeout_s=LATE_S) as client,
        pytest.raises(ClientTimeoutError, match=late),
    ):
        client.infer_sample(ONE)
    with pytest.raises(ClientTimeoutError):
        ModelClient(url, "none", init_timeout_s=LATE_S, lazy_init=False)
    with ModelClient("http://127.0.0.1:9", "add") as client, pytest.raises(ClientTimeoutError):
        client.wait_for_server(LATE_S)


def test_servers_and_models_are_waited_for_and_controlled(server: Server, url: str) -> None:
    server.bind("controlled", add, [number("a"), number("b")], [number("sum"), number("difference")])
    with ModelClient(url, "controlled") as client:
        client.wait_for_server(SOON)
        client.wait_for_model(SOON)
        client.unload_model()
        with pytest.raises(ClientTimeoutError):
            client.wait_for_model(LATE_S)
        client.load_model()
        client.wait_for_model(SOON)
        with pytest.raises(InferenceServerError, match="config"):
            client.load_model(config="{")


def test_a_closed_client_says_so(url: str) -> None:
    client = ModelClient(url, "add")
    client.close()
    client.close()

    with pytest.raises(ClientClosedError, match="client of model 'add' is closed"):
        client.infer_sample(ONE, TWO)


def test_responses_come_one_by_one(server: Server) -> None:
    with DecoupledModelClient(url_of(server, "grpc"), "count") as client:
        for _ in range(2):
            assert [answer["y"].tolist() for answer in client.infer_sample(ONE)] == [[0], [1], [2]]
        assert [answer["y"].tolist() for answer in client.infer_batch(x=ONE[None])] == [[[0]], [[1]], [[2]]]
        next(client.infer_sample(ONE))  # the rest is given up
    with DecoupledModelClient(url_of(server, "grpc"), "accumulate") as client:
        assert [answer["y"].tolist() for answer in client.infer_sample(ONE)] == [[1], [2], [3], [4]]
    with (
        DecoupledModelClient(url_of(server, "grpc"), "refuse") as client,
        pytest.raises(InferenceServerError, match=r"parameters \{\}"),
    ):
        next(client.infer_sample(ONE))


def test_the_other_client_is_named_where_the_wrong_one_is_used(server: Server) -> None:
    http = url_of(server, "http")
    with ModelClient(http, "count") as one, DecoupledModelClient(http, "count") as many:
        with pytest.raises(ClientValueError, match="use DecoupledModelClient"):
            one.infer_sample(ONE)
        with pytest.raises(ClientValueError, match="expected grpc://"):
            next(many.infer_sample(ONE))


def test_event_loops_have_clients_of_their_own(url: str) -> None:
    async def ask() -> None:
        async with AsyncioModelClient(url, "add") as client:
            await client.wait_for_server(SOON)
            assert (await client.model_config).max_batch_size == 4
            answers = await asyncio.gather(*[client.infer_sample(ONE * n, TWO) for n in range(8)])
            assert [answer["sum"].tolist() for answer in answers] == [[n + 2] for n in range(8)]
            assert (await client.infer_batch(ONE[None], TWO[None]))["sum"].tolist() == [[3]]
        with pytest.raises(ClientClosedError):
            await client.infer_sample(ONE, TWO)
        async with AsyncioModelClient(url, "refuse") as client:
            with pytest.raises(InferenceServerError, match="'key': True"):
                await client.infer_sample(ONE, parameters={"key": True})
        async with AsyncioModelClient(url, "count") as client:
            with pytest.raises(ClientValueError, match="use AsyncioDecoupledModelClient"):
                await client.infer_sample(ONE)
        late = AsyncioModelClient(url, "none", init_timeout_s=LATE_S)
        with pytest.raises(ClientTimeoutError):
            await late.infer_sample(ONE)
        await late.close()

    asyncio.run(ask())


def test_event_loops_read_responses_one_by_one(server: Server) -> None:
    async def ask() -> None:
        async with AsyncioDecoupledModelClient(url_of(server, "grpc"), "count") as client:
            assert [part["y"].tolist() async for part in client.infer_sample(ONE)] == [[0], [1], [2]]
            batches = client.infer_batch(x=ONE[None])
            assert [part["y"].tolist() async for part in batches] == [[[0]], [[1]], [[2]]]
        async with AsyncioDecoupledModelClient(url_of(server, "http"), "count") as client:
            with pytest.raises(ClientValueError, match="expected grpc://"):
                await anext(client.infer_sample(ONE))

    asyncio.run(ask())


def test_futures_come_from_threads_with_a_limit(url: str) -> None:
    go_on.clear()
    with FuturesModelClient(url, "add", max_workers=2) as client:
        assert client.wait_for_model(SOON).result() is None
        assert client.model_config().result().name == "add"
        futures = [client.infer_sample(ONE * n, TWO) for n in range(8)]
        assert [future.result()["sum"].tolist() for future in futures] == [[n + 2] for n in range(8)]
        assert client.infer_batch(ONE[None], TWO[None]).result()["sum"].tolist() == [[3]]
    with pytest.raises(ClientClosedError):
        client.infer_sample(ONE, TWO)

    with FuturesModelClient(url, "wait", max_workers=1, max_queue_size=1, non_blocking=True) as client:
        futures = [client.infer_sample(ONE) for _ in range(2)]
        with pytest.raises(QueueFullError, match="as many requests wait for a thread as may wait"):
            client.infer_sample(ONE)
        go_on.set()
        assert [future.result()["y"].tolist() for future in futures] == [[1], [1]]
    go_on.clear()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("localhost", ServerUrl("http", "localhost:8000")),
        ("localhost:9", ServerUrl("http", "localhost:9")),
        ("grpc://host", ServerUrl("grpc", "host:8001")),
        ("grpcs://host:443", ServerUrl("grpc", "host:443", True)),
        ("https://host/", ServerUrl("http", "host:8000", True)),
        ("http://[::1]:80", ServerUrl("http", "[::1]:80")),
    ],
)
def test_urls_may_leave_out_what_is_usual(url: str, expected: ServerUrl) -> None:
    assert ServerUrl.parse(url) == expected


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "host:port", "http://host/v2", "http://h?a=1"])
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrlError, match="url: got"):
        FuturesModelClient(url, "add")
