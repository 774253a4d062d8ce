"""Functions of another program as models of a server: the same as functions of the server's own program."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import (
    AlreadyExists,
    Internal,
    InvalidArg,
    NotFound,
    TritonError,
    Unavailable,
    Unsupported,
)
from tritonpy.plugin import Tensor as WireTensor
from tritonpy.server import Server as CoreServer
from tritonpy_sdk import (
    Control,
    ControlKind,
    DynamicBatcher,
    InitialState,
    ModelConfig,
    ModelWarmup,
    RateLimiter,
    RemoteServer,
    Resource,
    SequenceBatcher,
    State,
    UnrecoverableError,
    WarmupInput,
    batch,
    sample,
)
from tritonpy_sdk.testing import DEADLINE_S, until

from .given import MOST_FRAME_BYTES, X, double, options, vector

PLAIN = ModelConfig(batching=False)
ALONE = ModelConfig(batcher=None)


def test_a_function_elsewhere_is_a_model(bind, remote):
    model = bind(double)

    assert model.infer({"x": X})["y"].tolist() == [[2, 4]]
    assert model.is_ready()
    assert remote.is_served(model.name)
    assert model.config["max_batch_size"] == 4
    assert model.statistics["model_stats"][0]["inference_count"] == 1


@pytest.mark.parametrize("datatype", sorted(DATATYPES))
def test_tensors_of_all_types_come_and_go_as_they_are(bind, datatype):
    model = bind(
        sample(lambda x: {"y": x}), PLAIN, inputs=[vector("x", datatype)], outputs=[vector("y", datatype)]
    )
    given = np.array([b"", "ü".encode(), b"\0\xff"], object)
    if datatype != "BYTES":
        given = np.arange(3).astype(DATATYPES[datatype].numpy)

    for array in (given, given[:0]):
        answer = model.infer({"x": WireTensor.from_numpy("x", array, datatype)})
        assert answer.tensors["y"].datatype == datatype
        assert answer["y"].tolist() == array.tolist()


def test_requests_that_wait_together_are_one_call(bind):
    calls = []

    @batch
    def noted(x):
        calls.append(len(x))
        return {"y": x}

    batcher = DynamicBatcher(max_queue_delay_microseconds=60_000_000, preferred_batch_size=[8])
    model = bind(noted, ModelConfig(max_batch_size=8, batcher=batcher))

    futures = [model.submit({"x": X * index}) for index in range(8)]

    assert [future.result()["y"].tolist() for future in futures] == [[[i, 2.0 * i]] for i in range(8)]
    assert calls == [8]


def test_each_of_several_functions_is_an_instance_on_a_thread_of_its_own(bind):
    both = threading.Barrier(2)

    def meeting(requests):
        both.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    model = bind([meeting, meeting], ALONE)

    futures = [model.submit({"x": X}) for _ in range(2)]

    assert [future.result()["y"].tolist() for future in futures] == [X.tolist()] * 2


def test_controls_and_states_come_along_and_the_server_keeps_states(bind):
    ends = []

    @batch
    def add(x, END, so_far):
        ends.append(END.item())
        return {"y": x + so_far, "next": x + so_far}

    begin = InitialState(np.array([10, 20], np.float32))
    batcher = SequenceBatcher(
        controls=[Control("END", ControlKind.END)],
        states=[State("so_far", "next", (2,), np.float32, begin)],
    )
    model = bind(add, ModelConfig(batcher=batcher))

    answers = [
        model.infer({"x": X}, outputs=["y"], sequence_id=7, sequence_start=not step, sequence_end=step == 2)
        for step in range(3)
    ]

    assert [answer["y"].tolist() for answer in answers] == [[[11, 22]], [[12, 24]], [[13, 26]]]
    assert ends == [False, False, True]


def test_what_an_execution_needs_is_the_servers_affair_too(bind):
    model = bind(double, ModelConfig(rate_limiter=RateLimiter(resources=[Resource("memory", 2)], priority=3)))

    (group,) = model.config["instance_group"]
    assert group["rate_limiter"] == {
        "resources": [{"name": "memory", "global": False, "count": 2}],
        "priority": 3,
    }
    assert model.infer({"x": X})["y"].tolist() == [[2, 4]]


def test_what_a_request_says_beside_its_inputs_comes_along(bind):
    seen = []

    def noted(requests):
        seen.extend(requests)
        return [{"y": request["x"], "z": request["x"]} for request in requests]

    model = bind(noted, ModelConfig(batcher=SequenceBatcher()), outputs=[vector("y"), vector("z")])

    answer = model.infer(
        {"x": X},
        outputs=["z"],
        id="seven",
        parameters={"a": "b", "c": 1.5, "d": True},
        sequence_id="s",
        sequence_start=True,
        sequence_end=True,
    )

    assert list(answer) == ["z"]
    (request,) = seen
    assert (request.id, request.sequence_id, request.batch_size) == ("seven", "s", 1)
    assert (request.is_sequence_start, request.is_sequence_end) == (True, True)
    assert request.parameters == {"a": "b", "c": 1.5, "d": True}
    assert request.requested_output_names == ("z",)


def test_inputs_may_be_written_to(bind):
    @batch
    def in_place(x):
        x += 1
        return {"y": x}

    given = X.copy()

    assert bind(in_place).infer({"x": given})["y"].tolist() == [[2, 3]]
    assert given.tolist() == X.tolist()


def test_a_function_may_use_an_output_again(bind):
    kept = np.empty((1, 100_000), np.float32)  # too large for a socket to take it at once

    @batch
    def into_kept(x):
        kept.fill(x[0, 0])
        return {"y": kept}

    @batch
    def accumulate(x):
        total = np.zeros((1, 100_000), np.float32)
        for _ in range(4):
            total += 1
            yield {"y": total}

    model = bind(into_kept, ALONE)

    futures = [model.submit({"x": X + index}) for index in range(8)]
    parts = list(bind(accumulate, ALONE).stream({"x": X}))

    assert [np.unique(future.result()["y"]).tolist() for future in futures] == [[1 + i] for i in range(8)]
    assert [np.unique(part["y"]).tolist() for part in parts] == [[1], [2], [3], [4]]


async def waited(requests):
    return [{"y": request["x"] + 1} for request in requests]


class Counter:
    def __init__(self):
        self.started = False

    def initialize(self):
        self.started = True

    def __call__(self, requests):
        assert self.started
        return [{"y": request["x"]} for request in requests]


@pytest.mark.parametrize(("function", "expected"), [(waited, [[2, 3]]), (Counter, [[1, 2]])])
def test_coroutines_and_classes_are_functions_too(bind, function, expected):
    assert bind(function).infer({"x": X})["y"].tolist() == expected


@batch
def count(x):
    for factor in range(3):
        yield {"y": x * factor}


@batch
async def count_waiting(x):
    for factor in range(3):
        yield {"y": x * factor}


@pytest.mark.parametrize("function", [count, count_waiting])
def test_generators_send_any_number_of_responses(bind, function):
    model = bind(function)

    assert [part["y"].tolist() for part in model.stream({"x": X})] == [[[0, 0]], [[1, 2]], [[2, 4]]]


def test_a_generator_waits_for_a_client_that_does_not_read(bind):
    sent = []

    @sample
    def many(x):
        for index in range(5_000):
            sent.append(index)
            yield {"y": x[:1] * 0 + index}

    stream = bind(many, PLAIN).stream({"x": X[0]})
    until(lambda: len(sent) > 256)
    held = until(lambda: sent and _is_still(sent) and len(sent))

    assert held < 5_000
    assert [int(part["y"][0]) for part in stream] == list(range(5_000))


def _is_still(sent):
    before = len(sent)
    threading.Event().wait(0.2)
    return len(sent) == before


def test_a_client_that_gives_up_ends_the_generator(bind):
    over = threading.Event()

    @sample
    def endless(x):
        try:
            while True:
                yield {"y": x}
        finally:
            over.set()

    with bind(endless, PLAIN).stream({"x": X[0]}) as stream:
        next(stream)

    assert over.wait(DEADLINE_S)


def test_a_function_hears_that_a_request_was_cancelled(bind):
    begun = threading.Event()

    def until_cancelled(requests):
        begun.set()
        until(requests[0].is_cancelled)
        return [{"y": request["x"]} for request in requests]

    model = bind(until_cancelled, ALONE)
    future = model.submit({"x": X})
    assert begun.wait(DEADLINE_S)
    future.cancel()

    until(lambda: model.statistics["model_stats"][0]["execution_count"] == 1)


def raises(error):
    def function(requests):
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (raises(ValueError("as asked")), Internal, "ValueError: as asked"),
        (raises(NotFound("no such word")), NotFound, "no such word"),
        (raises(SystemExit("now")), Internal, "SystemExit: now"),
        (lambda requests: [], Internal, "returned 0 results"),
        (lambda requests: [{"z": X}], Internal, "returned outputs z, expected y"),
        (lambda requests: [Unsupported("not this one")], Unsupported, "not this one"),
    ],
)
def test_what_a_function_raises_is_what_its_clients_get(bind, function, kind, text):
    model = bind(function)

    with pytest.raises(kind, match=text):
        model.infer({"x": X})
    assert model.is_ready()


def test_one_request_of_a_batch_may_fail_alone(bind):
    def odd(requests):
        return [InvalidArg("odd") if request["x"][0, 0] % 2 else {"y": request["x"]} for request in requests]

    batcher = DynamicBatcher(max_queue_delay_microseconds=60_000_000, preferred_batch_size=[2])
    model = bind(odd, ModelConfig(max_batch_size=2, batcher=batcher))

    first, second = (model.submit({"x": X * factor}) for factor in (1, 2))

    with pytest.raises(InvalidArg, match="odd"):
        first.result()
    assert second.result()["y"].tolist() == [[2, 4]]


def test_an_error_behind_the_first_response_of_a_stream(bind):
    @batch
    def breaking(x):
        yield {"y": x}
        raise ValueError("in the middle")

    stream = bind(breaking).stream({"x": X})

    assert next(stream)["y"].tolist() == [[1, 2]]
    with pytest.raises(Internal, match="in the middle"):
        next(stream)


def test_a_function_that_is_lost_makes_its_model_unready(bind, server):
    model = bind(raises(UnrecoverableError("broken")))

    with pytest.raises(Internal, match="broken"):
        model.infer({"x": X})

    assert not model.is_ready()
    with pytest.raises(Unavailable, match="bind it again"):
        model.infer({"x": X})
    assert server.model("neighbour").is_ready()
    bind(double, name=model.name)
    assert model.infer({"x": X})["y"].tolist() == [[2, 4]]


def test_binding_again_loses_no_request(bind, remote):
    model = bind(double, ModelConfig(instances=2))
    is_over = threading.Event()
    answers = []

    def ask():
        while not is_over.is_set():
            answers.append(model.infer({"x": X})["y"].tolist())

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    for factor in range(3, 8):
        bind(batch(lambda x, factor=factor: {"y": x * factor}), name=model.name)
        until(lambda factor=factor: answers[-1] == [[factor, 2 * factor]])
    is_over.set()
    for thread in asking:
        thread.join()

    assert {answer[0][0] for answer in answers} == {2, 3, 4, 5, 6, 7}


def test_another_program_takes_the_name_and_the_first_one_does_not_take_it_back(
    bind, remote, server, address, token
):
    model = bind(double)
    with RemoteServer(address, token=token) as other:
        other.bind(model.name, batch(lambda x: {"y": x * 10}), [vector("x")], [vector("y")])

        assert model.infer({"x": X})["y"].tolist() == [[10, 20]]
        until(lambda: not remote.is_served(model.name))
        assert other.is_served(model.name)
        remote.unbind(model.name)  # its own, which is nobody's model any more
        assert model.infer({"x": X})["y"].tolist() == [[10, 20]]
    assert not model.is_ready()


def test_unbinding_answers_what_was_accepted(bind, remote):
    go_on = threading.Event()
    begun = threading.Semaphore(0)

    def waiting(requests):
        begun.release()
        assert go_on.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    model = bind(waiting, ALONE)
    futures = [model.submit({"x": X}) for _ in range(5)]
    assert begun.acquire(timeout=DEADLINE_S)
    unbinding = threading.Thread(target=remote.unbind, args=(model.name,))
    unbinding.start()
    until(lambda: not model.is_ready())
    go_on.set()
    unbinding.join()

    assert [future.result()["y"].tolist() for future in futures] == [X.tolist()] * 5
    with pytest.raises(TritonError, match=r"unknown model|not available|no available versions"):
        model.infer({"x": X})


def test_a_model_of_a_repository_keeps_its_name(bind, server):
    with pytest.raises(AlreadyExists, match="'neighbour' is served already"):
        bind(double, name="neighbour")

    assert server.model("neighbour").infer({"INPUT0": X})["OUTPUT0"].tolist() == X.tolist()


def test_what_cannot_be_served_is_refused_and_leaves_the_server_ready(bind, server, remote):
    model = bind(double)
    bad = ModelConfig(more={"sequence_batching": {"direct": {}}})  # beside a dynamic batcher

    with pytest.raises(InvalidArg):
        bind(double, bad, name=model.name)
    with pytest.raises(InvalidArg):
        bind(double, bad, name="bad")
    with pytest.raises(InvalidArg, match="cannot configure 'cc_model_filenames'"):
        bind(double, ModelConfig(more={"cc_model_filenames": {"8.0": "/etc/passwd"}}), name="bad")
    with pytest.raises(InvalidArg, match="cannot configure 'TRITON_BATCH_STRATEGY_PATH'"):
        bind(double, ModelConfig(parameters={"TRITON_BATCH_STRATEGY_PATH": "/tmp/x.so"}), name="bad")
    with pytest.raises(InvalidArg, match="got 65 instances, expected 1 to 64"):
        bind(double, ModelConfig(instances=65), name="bad")
    with pytest.raises(InvalidArg, match="model 'bad' cannot be sent to the server: TypeError"):
        bind(double, ModelConfig(more={"parameters": object()}), name="bad")
    with pytest.raises(ZeroDivisionError):
        bind(type("Broken", (), {"initialize": lambda self: 1 / 0, "__call__": double}), name="bad")

    assert model.infer({"x": X})["y"].tolist() == [[2, 4]]
    assert server.is_ready()
    assert remote.is_connected


def test_a_model_is_warmed_up_before_it_is_ready(bind, tmp_path):
    seen = []

    @batch
    def noted(x):
        seen.append(x.tolist())
        return {"y": x}

    (tmp_path / "numbers").write_bytes(np.array([3, 4], np.float32).tobytes())
    given = WarmupInput(shape=(2,), dtype=np.float32, input_data_file=tmp_path / "numbers")
    bind(noted, ModelConfig(model_warmup=[ModelWarmup(name="one", inputs={"x": given})]))

    assert seen == [[[3, 4]]]
    missing = WarmupInput(shape=(2,), dtype=np.float32, input_data_file=tmp_path / "none")
    with pytest.raises(InvalidArg, match="cannot read input_data_file"):
        bind(noted, ModelConfig(model_warmup=[ModelWarmup(name="one", inputs={"x": missing})]))


def test_what_is_larger_than_a_frame_may_be_fails_alone(bind):
    fits = np.zeros((1, MOST_FRAME_BYTES // 4), np.float32)
    model = bind(batch(lambda x: {"y": x}), ALONE)
    larger = bind(batch(lambda x: {"y": np.concatenate([x, x], axis=1)}), ALONE)

    @batch
    def growing(x):
        yield {"y": x}
        yield {"y": np.concatenate([x, x], axis=1)}

    assert model.infer({"x": fits})["y"].shape == fits.shape
    with pytest.raises(InvalidArg, match=r"4194304 bytes, .* sent 1048576 at most .*max-frame-bytes"):
        model.infer({"x": np.zeros((4, MOST_FRAME_BYTES // 4), np.float32)})
    with pytest.raises(InvalidArg, match="got 2097152 bytes, and the server takes 1048576"):
        larger.infer({"x": fits})
    stream = bind(growing, ALONE).stream({"x": fits})
    assert next(stream)["y"].shape == fits.shape
    with pytest.raises(InvalidArg, match="max-frame-bytes"):
        next(stream)
    assert model.infer({"x": X})["y"].tolist() == X.tolist()


def test_the_control_mode_of_the_server_does_not_matter(token_file, token, tmp_path):
    given = options(token_file, model_repositories=(str(tmp_path),))
    with (  # mode none, in which clients load and unload nothing
        CoreServer(given) as server,
        RemoteServer(f"127.0.0.1:{server.port('bind')}", token=token) as remote,
    ):
        remote.bind("bound", double, [vector("x")], [vector("y")])

        assert server.runtime.registry.find("bound", "").is_ready
        remote.unbind("bound")
        until(lambda: not server.runtime.registry.ready_versions("bound"))
