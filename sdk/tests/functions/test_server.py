"""Functions that are bound in a server without sockets, and its models asked from this process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError, Unavailable, Unsupported
from tritonpy.plugin import Tensor as WireTensor
from tritonpy_sdk import (
    LOCAL,
    DynamicBatcher,
    ModelConfig,
    ModelRepository,
    Request,
    SequenceBatcher,
    Server,
    Tensor,
    UnrecoverableError,
    batch,
    group_by_keys,
    sample,
)
from tritonpy_sdk.starting import started
from tritonpy_sdk.testing import DEADLINE_S, until

X = np.array([[1.0, 2.0]], np.float32)
PLAIN = ModelConfig(batching=False)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(LOCAL) as running:
        yield running


def vector(name: str, dtype: Any = np.float32) -> Tensor:
    return Tensor((-1,), dtype, name)


@pytest.fixture
def bind(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Bind a function of x and y, FP32 both; returns the model, which is gone after the test."""
    names = []

    def bound(function: Any, config: ModelConfig | None = None, **more: Any) -> Any:
        name = f"model{len(names)}"
        inputs = more.pop("inputs", [vector("x")])
        outputs = more.pop("outputs", [vector("y")])
        server.bind(name, function, inputs, outputs, config=config, **more)
        names.append(name)
        return server.model(name)

    yield bound
    for name in names:
        with contextlib.suppress(NotFound):
            server.unbind(name)


@batch
def double(x: Any) -> Any:
    return {"y": x * 2}


def test_a_function_is_a_model(bind: Any) -> None:
    model = bind(double)

    assert model.infer({"x": X})["y"].tolist() == [[2, 4]]
    assert model.is_ready()
    assert model.metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
    assert model.config["max_batch_size"] == 4
    assert model.statistics["model_stats"][0]["inference_count"] == 1


def test_requests_that_wait_together_are_one_call(bind: Any) -> None:
    calls = []

    @batch
    def noted(x: Any) -> Any:
        calls.append(len(x))
        return {"y": x}

    config = ModelConfig(
        max_batch_size=8,
        batcher=DynamicBatcher(max_queue_delay_microseconds=60_000_000, preferred_batch_size=[8]),
    )
    model = bind(noted, config)

    futures = [model.submit({"x": X * index}) for index in range(8)]

    assert [future.result()["y"].tolist() for future in futures] == [[[i, 2.0 * i]] for i in range(8)]
    assert calls == [8]


def test_arrays_are_handed_on_without_a_copy(bind: Any) -> None:
    given = []

    def same(requests: list[Request]) -> list[Any]:
        given.append(requests[0]["x"])
        return [{"y": request["x"]} for request in requests]

    answer = bind(same, fresh_outputs=True).infer({"x": X})

    assert np.shares_memory(given[0], X)
    assert np.shares_memory(answer["y"], X)


def test_a_function_may_use_an_output_again(bind: Any) -> None:
    kept = np.empty_like(X)

    @batch
    def into_kept(x: Any) -> Any:
        np.multiply(x, 2, out=kept)
        return {"y": kept}

    @batch
    def accumulate(x: Any) -> Any:
        total = np.zeros_like(x)
        for _ in range(4):
            total += 1
            yield {"y": total}

    model = bind(into_kept)

    answers = [model.infer({"x": X * factor}) for factor in (1, 2, 3)]

    assert [answer["y"].tolist() for answer in answers] == [[[2, 4]], [[4, 8]], [[6, 12]]]
    parts = list(bind(accumulate).stream({"x": X}))
    assert [part["y"][0, 0] for part in parts] == [1, 2, 3, 4]


def test_inputs_may_be_written_to_where_a_function_is_bound_so(bind: Any) -> None:
    def add_one(requests: list[Request]) -> list[Any]:
        for request in requests:
            request["x"] += 1
        return [{"y": request["x"]} for request in requests]

    @group_by_keys
    @batch
    def add_two(x: Any) -> Any:
        x += 2
        return {"y": x}

    delayed = DynamicBatcher(max_queue_delay_microseconds=60_000_000, preferred_batch_size=[2])
    given, received = X.copy(), WireTensor("x", "FP32", X.shape, X.tobytes())
    for function, more in ((add_one, 1), (add_two, 2)):
        model = bind(function, writable=True)
        together = bind(function, ModelConfig(max_batch_size=2, batcher=delayed), writable=True)
        for inputs in (given, received):
            assert model.infer({"x": inputs})["y"].tolist() == (X + more).tolist()
        futures = [together.submit({"x": inputs}) for inputs in (given, received)]
        assert [future.result()["y"].tolist() for future in futures] == [(X + more).tolist()] * 2
    assert given.tolist() == X.tolist()

    with pytest.raises(Internal, match="read-only"):
        bind(add_one).infer({"x": received})


@pytest.mark.parametrize("decorate", [batch, None])
def test_a_function_cannot_write_to_what_its_caller_has(bind: Any, decorate: Any) -> None:
    given = X.copy()

    def add_one(x: Any) -> Any:
        x += 1
        return {"y": x}

    plain = batch(add_one) if decorate else lambda requests: [add_one(request["x"]) for request in requests]
    model = bind(plain)

    with pytest.raises(TritonError, match="read-only"):
        model.infer({"x": given})
    assert given.tolist() == X.tolist()
    assert given.flags.writeable


def test_inputs_may_come_by_dlpack_as_lists_or_with_a_datatype(bind: Any) -> None:
    model = bind(double)
    bits = bind(
        sample(lambda x: {"y": x}), PLAIN, inputs=[vector("x", "BF16")], outputs=[vector("y", "BF16")]
    )

    class Lent:
        def __dlpack__(self, **options: Any) -> Any:
            return X.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return X.__dlpack_device__()

    assert model.infer({"x": Lent()})["y"].tolist() == [[2, 4]]
    assert model.infer({"x": np.asarray([[1, 2]], "f4").tolist()} | {"x": X})["y"].tolist() == [[2, 4]]
    tensor = WireTensor.from_numpy("any", np.array([16256], "u2"), "BF16")
    answer = bits.infer({"x": tensor})
    assert answer["y"].tolist() == [16256]
    assert answer.tensors["y"].datatype == "BF16"


def test_strings_go_in_and_out(bind: Any) -> None:
    upper = sample(lambda x: {"y": np.array([text.upper() for text in x], object)})
    model = bind(upper, PLAIN, inputs=[vector("x", bytes)], outputs=[vector("y", bytes)])

    assert model.infer({"x": ["a\0b", "ü"]})["y"].tolist() == [b"A\0B", "ü".encode()]


def test_coroutines_are_awaited(bind: Any) -> None:
    @batch
    async def later(x: Any) -> Any:
        await asyncio.sleep(0)
        return {"y": -x}

    assert bind(later).infer({"x": X})["y"].tolist() == [[-1, -2]]


@batch
def count(x: Any) -> Iterator[Any]:
    for factor in range(3):
        yield {"y": x * factor}


@batch
async def count_later(x: Any) -> AsyncIterator[Any]:
    for factor in range(3):
        yield {"y": x * factor}


@pytest.mark.parametrize("function", [count, count_later])
def test_generators_answer_many_times(bind: Any, function: Any) -> None:
    model = bind(function)

    with model.stream({"x": X}) as responses:
        assert [response["y"].tolist() for response in responses] == [[[0, 0]], [[1, 2]], [[2, 4]]]
    assert model.config["model_transaction_policy"] == {"decoupled": True}
    with pytest.raises(Unsupported, match=r"decoupled.*call stream\(\)"):
        model.infer({"x": X})


def test_streams_are_read_and_calls_awaited_from_any_loop(bind: Any) -> None:
    model, stream = bind(double), bind(count)

    async def ask() -> Any:
        answer = await model.infer_async({"x": X})
        return answer["y"].tolist(), [part["y"].tolist() async for part in stream.stream({"x": X})]

    assert asyncio.run(ask()) == ([[2, 4]], [[[0, 0]], [[1, 2]], [[2, 4]]])


def test_a_stream_that_is_left_ends_its_generator(bind: Any) -> None:
    ended = threading.Event()

    @batch
    def endless(x: Any) -> Iterator[Any]:
        try:
            while True:
                yield {"y": x}
        finally:
            ended.set()

    with bind(endless).stream({"x": X}) as responses:
        next(responses)

    assert ended.wait(30)


def test_a_generator_that_fails_says_so_behind_what_it_has_sent(bind: Any) -> None:
    @batch
    def failing(x: Any) -> Iterator[Any]:
        yield {"y": x}
        raise ValueError("enough")

    responses = bind(failing).stream({"x": X})

    assert next(responses)["y"].tolist() == X.tolist()
    with pytest.raises(Internal, match="ValueError: enough"):
        next(responses)
    assert list(responses) == []


def test_several_functions_are_instances(bind: Any) -> None:
    met = threading.Barrier(2, timeout=30)

    def instance(number: int) -> Any:
        @batch
        def answer(x: Any) -> Any:
            met.wait()
            return {"y": np.full_like(x, number)}

        return answer

    model = bind([instance(1), instance(2)], ModelConfig(max_batch_size=1))
    futures = [model.submit({"x": X}) for _ in range(2)]

    assert sorted(future.result()["y"][0, 0] for future in futures) == [1, 2]


def test_one_function_may_run_several_times_at_once(bind: Any) -> None:
    met = threading.Barrier(2, timeout=30)

    @batch
    def answer(x: Any) -> Any:
        met.wait()
        return {"y": x}

    model = bind(answer, ModelConfig(max_batch_size=1, instances=2))

    assert [future.result()["y"].tolist() for future in [model.submit({"x": X}) for _ in range(2)]]


def test_classes_are_made_on_the_thread_of_their_instance(bind: Any, server: Server) -> None:
    calls: list[tuple[str, int]] = []

    class Model:
        def initialize(self) -> None:
            calls.append(("initialize", threading.get_ident()))

        def __call__(self, requests: list[Request]) -> Any:
            calls.append(("call", threading.get_ident()))
            return [{"y": request["x"]} for request in requests]

        def finalize(self) -> None:
            calls.append(("finalize", threading.get_ident()))

    model = bind(Model)
    model.infer({"x": X})
    server.unbind(model.name)
    until(lambda: len(calls) == 3)

    assert [what for what, _ in calls] == ["initialize", "call", "finalize"]
    assert len({thread for _, thread in calls}) == 1


class Scaled:
    factor = 3

    @batch
    def scale(self, x: Any) -> Any:
        return {"y": x * self.factor}


def test_methods_are_functions(bind: Any) -> None:
    assert bind(Scaled().scale).infer({"x": X})["y"].tolist() == [[3, 6]]


def test_a_function_may_ask_another_model(bind: Any, server: Server) -> None:
    inner = bind(double)

    @batch
    def outer(x: Any) -> Any:
        return {"y": inner.infer({"x": x})["y"] + 1}

    assert bind(outer).infer({"x": X})["y"].tolist() == [[3, 5]]


def test_a_function_that_asks_itself_uses_its_other_instances_and_is_refused_without_any(
    bind: Any, server: Server
) -> None:
    def asking(requests: list[Request]) -> Any:
        (request,) = requests
        depth = int(request["x"][0, 0])
        if depth:
            return [{"y": server.model(name).infer({"x": request["x"] - 1})["y"] + 1}]
        return [{"y": request["x"]}]

    plain = ModelConfig(max_batch_size=1, instances=2)
    model = bind(asking, plain)
    name = model.name
    zero, one, two = (np.full((1, 1), depth, np.float32) for depth in (0, 1, 2))
    for _ in range(50):  # quick: it is fed ahead
        model.infer({"x": zero})

    assert model.infer({"x": one})["y"].tolist() == [[1]]
    with pytest.raises(Internal, match="the call would wait for itself for ever"):
        model.infer({"x": two})


def test_a_function_may_read_a_stream_of_another_model(bind: Any) -> None:
    stream, plain = bind(count), bind(double)

    @batch
    def outer(x: Any) -> Any:
        with pytest.raises(Unsupported, match="call stream"):
            stream.infer({"x": x})
        return {"y": sum(part["y"] for part in stream.stream({"x": x})) + plain.infer({"x": x})["y"]}

    assert bind(outer).infer({"x": X})["y"].tolist() == [[5, 10]]


def test_sequences_reach_their_instance_in_order(bind: Any) -> None:
    sums: dict[Any, Any] = {}

    def add(requests: list[Request]) -> Any:
        for request in requests:
            if request.is_sequence_start:
                sums[request.sequence_id] = 0
            sums[request.sequence_id] += request["x"]
        return [{"y": sums[request.sequence_id]} for request in requests]

    model = bind(add, ModelConfig(batcher=SequenceBatcher()))
    answers = [
        model.infer({"x": X}, sequence_id=7, sequence_start=not step, sequence_end=step == 2)["y"].tolist()
        for step in range(3)
    ]

    assert answers == [[[1, 2]], [[2, 4]], [[3, 6]]]


def test_parameters_ids_and_wanted_outputs_reach_the_function(bind: Any) -> None:
    seen = []

    def noted(requests: list[Request]) -> Any:
        (request,) = requests
        seen.append((dict(request.parameters), request.id, request.requested_output_names))
        return [{"y": request["x"]}]

    answer = bind(noted).infer({"x": X}, outputs=["y"], parameters={"key": 3}, id="seven")

    assert seen == [({"key": 3}, "seven", ("y",))]
    assert answer.id == "seven"


def failing(text: str) -> Any:
    def fail(**_: Any) -> Any:
        raise ValueError(text)

    return batch(fail)


def test_what_a_function_raises_is_told_with_its_lines(bind: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Internal) as failed:
        bind(failing("as asked")).infer({"x": X})

    assert "message: ValueError: as asked\n\nAt:\n" in failed.value.message
    assert "test_server.py" in failed.value.message
    assert ": fail" in failed.value.message
    assert "site-packages" not in failed.value.message
    assert "Traceback" in caplog.text


def test_a_function_may_choose_the_error(bind: Any) -> None:
    def refuse(requests: list[Request]) -> Any:
        raise NotFound("nothing here")

    def refuse_one(requests: list[Request]) -> Any:
        return [InvalidArg("not this one") for _ in requests]

    with pytest.raises(NotFound, match="nothing here"):
        bind(refuse).infer({"x": X})
    with pytest.raises(InvalidArg, match="not this one"):
        bind(refuse_one).infer({"x": X})


def test_an_unrecoverable_error_takes_the_model_out_of_service(bind: Any, server: Server) -> None:
    @batch
    def lost(x: Any) -> Any:
        raise UnrecoverableError("the device is gone")

    model = bind(lost)

    with pytest.raises(Internal, match="UnrecoverableError: the device is gone"):
        model.infer({"x": X})
    assert not model.is_ready()
    with pytest.raises(Unavailable, match="has failed for good; bind it again"):
        model.infer({"x": X})
    server.bind(model.name, double, [vector("x")], [vector("y")])
    assert model.infer({"x": X})["y"].tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned NoneType, expected a list with the outputs of each of 1 requests"),
        ([], "returned 0 results, expected a list with the outputs of each of 1 requests"),
        ([{"z": X}], "returned outputs z, expected y"),
        ([{}], "returned outputs , expected y"),
        ([(X, X)], "returned 2 outputs, expected 1: y"),
        ([None], "returned no outputs for the request"),
    ],
)
def test_results_that_cannot_be_sent_are_told(bind: Any, returned: Any, message: str) -> None:
    with pytest.raises(Internal) as failed:
        bind(lambda requests: returned).infer({"x": X})

    assert message in failed.value.message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (X.astype("f8"), "got dtype float64 and shape [1, 2], expected float32 and [1, -1]"),
        (X[0], "got dtype float32 and shape [2], expected float32 and [1, -1]"),
    ],
)
def test_a_strict_function_sends_only_what_is_bound(bind: Any, value: Any, message: str) -> None:
    with pytest.raises(Internal) as failed:
        bind(lambda requests: [{"y": value}], strict=True).infer({"x": X})

    assert message in failed.value.message


def test_binding_again_replaces_and_a_failure_leaves_what_was(bind: Any, server: Server) -> None:
    model = bind(double)

    class Broken:
        def __init__(self) -> None:
            raise OSError("no weights")

    with pytest.raises(TritonError, match="no weights"):
        server.bind(model.name, Broken, [vector("x")], [vector("y")])
    assert model.infer({"x": X})["y"].tolist() == [[2, 4]]

    server.bind(model.name, batch(lambda x: {"y": x * 5}), [vector("x")], [vector("y")])
    assert model.infer({"x": X})["y"].tolist() == [[5, 10]]


def test_binding_again_loses_no_request(bind: Any, server: Server) -> None:
    model = bind(double)
    is_over = threading.Event()
    answers: list[Any] = []

    def ask() -> None:
        while not is_over.is_set():
            answers.append(model.infer({"x": X})["y"][0, 0])

    clients = [threading.Thread(target=ask) for _ in range(3)]
    for client in clients:
        client.start()
    for factor in range(3, 8):
        function = batch(lambda x, factor=factor: {"y": x * factor})
        server.bind(model.name, function, [vector("x")], [vector("y")])
        seen = len(answers)
        until(lambda seen=seen: len(answers) > seen + 10)
    is_over.set()
    for client in clients:
        client.join()

    assert set(answers) <= {2, 3, 4, 5, 6, 7}
    assert answers[-1] == 7


def test_what_is_unbound_is_gone(bind: Any, server: Server) -> None:
    model = bind(double)
    server.unbind(model.name)

    with pytest.raises(TritonError, match=r"unknown model|no available versions|is not found"):
        model.infer({"x": X})
    with pytest.raises(NotFound, match="no function is bound by that name"):
        server.unbind(model.name)


def test_a_server_in_an_event_loop() -> None:
    async def ask() -> Any:
        async with Server(LOCAL) as server:
            await asyncio.to_thread(server.bind, "double", double, [vector("x")], [vector("y")])
            answer = await server.model("double").infer_async({"x": X})
        return answer["y"].tolist(), server.is_running

    assert asyncio.run(ask()) == ([[2, 4]], False)


def test_a_start_whose_task_is_cancelled_is_followed_by_a_stop() -> None:
    begun, go_on = threading.Event(), threading.Event()
    calls = []

    def start() -> None:
        begun.set()
        go_on.wait(DEADLINE_S)
        calls.append("started")

    async def give_up() -> None:
        entering = asyncio.create_task(started(start, lambda: calls.append("stopped")))
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        entering.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await entering

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(give_up())
    assert calls == ["started", "stopped"]


def test_a_call_that_takes_too_long_is_cancelled(bind: Any) -> None:
    seen, go_on = threading.Event(), threading.Event()

    def wait(requests: list[Request]) -> Any:
        until(requests[0].is_cancelled)
        seen.set()
        go_on.wait(30)
        return [{"y": request["x"]} for request in requests]

    model = bind(wait)
    try:
        with pytest.raises(TimeoutError, match=r"gave no response within 2 s"):
            model.infer({"x": X}, timeout_s=2)  # in which the function begins
        assert seen.wait(30)
        future = model.submit({"x": X})
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result()
    finally:
        go_on.set()


@pytest.fixture
def patient(bind: Any) -> Any:
    """A model that answers when it finds its request cancelled; and events of its begin and of then."""
    begun, seen = threading.Event(), threading.Event()

    def wait(requests: list[Request]) -> Any:
        begun.set()
        until(requests[0].is_cancelled)
        seen.set()
        return [{"y": request["x"]} for request in requests]

    return bind(wait), begun, seen


def test_a_call_whose_task_is_cancelled_is_cancelled(patient: Any) -> None:
    model, begun, seen = patient

    async def give_up() -> None:
        call = asyncio.create_task(model.infer_async({"x": X}))
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        call.cancel()
        await call

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(give_up())
    assert seen.wait(DEADLINE_S)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals reach no single thread here")
def test_a_call_whose_thread_is_interrupted_is_cancelled(bind: Any) -> None:
    seen = threading.Event()

    def interrupt(requests: list[Request]) -> Any:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        until(requests[0].is_cancelled)
        seen.set()
        return [{"y": request["x"]} for request in requests]

    with pytest.raises(KeyboardInterrupt):
        bind(interrupt).infer({"x": X})
    assert seen.wait(DEADLINE_S)


def test_a_loop_that_is_closed_before_its_answer_comes_costs_nobody_else(
    bind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    def wait(requests: list[Request]) -> Any:
        go_on.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    model = bind(wait)
    loop = asyncio.new_event_loop()
    call = model.infer_async({"x": X})
    loop.call_soon(call.send, None)  # as far as the answer that it waits for
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    go_on.set()

    assert model.infer({"x": X})["y"].tolist() == [[1, 2]]
    assert not caplog.records
    call.close()


@pytest.mark.parametrize("timeout_s", [None, 1e30, DEADLINE_S])
def test_a_call_may_take_any_time(bind: Any, timeout_s: float | None) -> None:
    assert bind(double).infer({"x": X}, timeout_s=timeout_s)["y"].tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "a/b"}, "model name: got 'a/b', expected letters"),
        ({"function": 3}, "got int, expected a function"),
        ({"function": []}, "got 0 functions"),
        ({"version": 0}, "version: got 0, expected 1 or more"),
        ({"inputs": [vector("x"), vector("x")]}, "inputs: got x twice"),
        ({"inputs": [Tensor((1,), "M8[s]", "x")]}, "got dtype 'datetime64"),
        ({"config": ModelConfig(max_batch_size=0)}, "max_batch_size: got 0, expected 1 or more"),
        ({"function": count, "config": ModelConfig(decoupled=False)}, "a generator sends any number"),
        ({"function": [double], "config": ModelConfig(instances=3)}, "got 1 functions and instances=3"),
    ],
)
def test_what_cannot_be_served_is_refused_where_it_is_bound(
    server: Server, change: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {
        "name": "m",
        "function": double,
        "inputs": [vector("x")],
        "outputs": [vector("y")],
    } | change

    with pytest.raises(InvalidArg) as refused:
        server.bind(
            given.pop("name"), given.pop("function"), given.pop("inputs"), given.pop("outputs"), **given
        )

    assert message in refused.value.message


def test_tensors_without_names_are_counted(bind: Any) -> None:
    model = bind(
        batch(lambda INPUT_1, INPUT_2: INPUT_1 + INPUT_2),
        inputs=[Tensor((-1,), np.float32)] * 2,
        outputs=[Tensor((-1,), np.float32)],
    )

    assert model.infer({"INPUT_1": X, "INPUT_2": X})["OUTPUT_1"].tolist() == [[2, 4]]


def test_a_server_that_does_not_run_says_so_and_may_start_again() -> None:
    server = Server(LOCAL)
    server.bind("early", double, [vector("x")], [vector("y")])
    with pytest.raises(Unavailable, match=r"call start\(\)"):
        server.model("early")

    for _ in range(2):
        with server:
            assert server.is_ready()
            assert server.model("early").infer({"x": X})["y"].tolist() == [[2, 4]]
            assert [row["name"] for row in server.index()] == ["early"]


def test_the_server_tells_of_itself(bind: Any, server: Server) -> None:
    model = bind(double)
    model.infer({"x": X})

    assert server.metadata()["name"] == "triton"
    assert f'nv_inference_request_success{{model="{model.name}",version="1"}} 1' in server.metrics()


def test_models_of_repositories_are_served_too(tmp_path: Any) -> None:
    repository = ModelRepository(tmp_path)
    numbers = [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]
    outputs = [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}]
    config = {"backend": "identity", "input": numbers, "output": outputs}
    for name in ("first", "second"):
        repository.model(name, config)

    with Server(replace(LOCAL, model_repositories=(str(tmp_path),))) as server:
        assert server.model("first").infer({"INPUT0": X[0]})["OUTPUT0"].tolist() == [1, 2]
        server.unload("second")
        assert not server.model("second").is_ready()
        server.load("second", {**config, "max_batch_size": 3})
        assert server.model("second", 1).is_ready()
        assert server.model("second").config["max_batch_size"] == 3
