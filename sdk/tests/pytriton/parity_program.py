"""A program for PyTriton that uses all of it; prints what its models and clients answer, by name."""

import asyncio
import json
import sys

import numpy as np
import pytriton.client.exceptions
import pytriton.exceptions
import tritonclient.http
from pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from pytriton.decorators import (
    ConstantPadder,
    batch,
    fill_optionals,
    first_value,
    group_by_keys,
    group_by_values,
    pad_batch,
    sample,
    triton_context,
)
from pytriton.exceptions import PyTritonError
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor, TimeoutAction
from pytriton.model_config.common import ModelWarmup, WarmupInput
from pytriton.triton import Triton, TritonConfig, TritonSecurityConfig

HTTP, GRPC = (int(port) for port in sys.argv[1:])
URLS = {"http": f"http://127.0.0.1:{HTTP}", "grpc": f"grpc://127.0.0.1:{GRPC}"}
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMBERS = ["bool_", *INTEGERS, "float16", "float32", "float64"]
A = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
B = np.array([[10, 20], [30, 40], [50, 60]], np.float32)
answers = {}


def vector(name, dtype=np.float32, **more):
    return Tensor(name=name, dtype=dtype, shape=(-1,), **more)


def plain(value):
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), plain(value.tolist())]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if isinstance(value, bool | int | float | str | None) else type(value).__name__


def note(name, call, *words):
    """Note what a call returns, or the kind of its error and which of some words its text has."""
    assert name not in answers, name
    try:
        answers[name] = plain(call())
    except Exception as exc:
        answers[name] = {"error": kind(exc), "says": [word for word in words if word in str(exc)]}


KINDS = {
    each: name
    for module in (pytriton.exceptions, pytriton.client.exceptions)
    for name, each in vars(module).items()
    if name.startswith("PyTriton")
}


def kind(exc):
    """The first of its types that is PyTriton's own, by PyTriton's name, or one of Python's."""
    types = type(exc).__mro__
    own = [KINDS[each] for each in types if each in KINDS]
    return own[0] if own else next(each.__name__ for each in types if each.__module__ == "builtins")


# Functions.


@batch
def same(x):
    return {"y": x}


@batch
def two_in_order(a, b):
    return a + b, a - b


@batch
def two_as_list(a, b):
    return [a + b, a - b]


@sample
def one_sample(a, b):
    return {"sum": a + b, "difference": a - b}


@sample
def one_in_order(a, b):
    return [a + b, a - b]


@batch
@pad_batch
def padded(x):
    return {"y": x, "rows": np.full((len(x), 1), len(x), np.int64)}


@batch
@group_by_values("kind")
@first_value("kind")
def by_kind(x, kind):
    return {"y": x * np.float32(kind), "rows": np.full((len(x), 1), len(x), np.int64)}


@batch
@group_by_values("kind", "name", pad_fn=ConstantPadder(-1))
def by_two(x, kind, name):
    width = int(kind[0, 0])
    return {"y": np.repeat(x[:, :1], width, axis=1), "rows": np.full((len(x), 1), len(x), np.int64)}


@batch
@first_value("kind")
def first(x, kind):
    return {"y": x * np.float32(kind)}


@batch
@first_value("kind", strict=False)
def first_of_any(x, kind):
    return {"y": x * np.float32(kind)}


@batch
@first_value("kind", squeeze_single_values=False)
def first_as_array(x, kind):
    return {"y": x * kind.astype(np.float32) + len(kind.shape)}


@group_by_keys
@fill_optionals(b=np.array([100, 200], np.float32))
@batch
def optional(a, b):
    return {"sum": a + b}


@group_by_keys
@batch
def by_keys(**inputs):
    return {"sum": sum(inputs.values())}


@triton_context
@batch
def in_context(x, triton_context):
    return {"y": x + (triton_context is not None)}


@batch
def writes(x):
    x += 1
    return {"y": x}


def writes_to_requests(requests):
    for request in requests:
        request["x"] += 1
    return [{"y": request["x"]} for request in requests]


def reads_requests(requests):
    found = []
    for request in requests:
        told = {
            "parameters": {key: str(value) for key, value in sorted(request.parameters.items())},
            "keys": sorted(request.keys()),
            "kind": type(request).__name__,
            "shape": list(request["x"].shape),
        }
        found.append({"y": np.array([[json.dumps(told).encode()]] * len(request["x"]))})
    return found


@batch
def of_strings(x):
    return {"y": np.array([[each.decode().upper().encode() for each in row] for row in x])}


@batch
async def coroutine(x):
    await asyncio.sleep(0)
    return {"y": x + 1}


class Bound:
    def __init__(self, factor):
        self.factor = factor

    @batch
    def method(self, x):
        return {"y": x * self.factor}

    @batch
    def __call__(self, x):
        return {"y": x * self.factor}


@batch
def raises(x):
    raise ValueError("as asked")


@batch
def too_few_rows(x):
    return {"y": x[:1]}


def too_few_results(requests):
    return []


def no_list(requests):
    return {"y": requests[0]["x"]}


@batch
def wrong_dtype(x):
    return {"y": x.astype(np.float64)}


@batch
def wrong_shape(x):
    return {"y": np.stack([x, x], axis=1)}


@batch
def no_array(x):
    return {"y": x.tolist()}


warmed = []


@batch
def is_warmed(x):
    warmed.append(x.tolist())
    return {"y": x}


@batch
def count(x):
    for factor in range(3):
        yield {"y": x * factor}


@sample
def count_samples(x):
    for factor in range(2):
        yield {"y": x * factor}


@batch
async def count_waiting(x):
    for factor in range(3):
        await asyncio.sleep(0)
        yield {"y": x * factor}


@batch
def breaks(x):
    yield {"y": x}
    raise ValueError("in the middle")


kept = np.empty((1, 2), np.float32)


@batch
def into_kept(x):
    np.multiply(x, 2, out=kept)
    return {"y": kept}


@batch
def yields_nothing(x):
    return
    yield


def bind_all(triton):
    x, y, rows = [vector("x")], [vector("y")], Tensor(name="rows", dtype=np.int64, shape=(1,))
    pair, both = [vector("a"), vector("b")], [vector("sum"), vector("difference")]
    kinds = [vector("x"), Tensor(name="kind", dtype=np.int64, shape=(1,))]
    eight, alone = ModelConfig(max_batch_size=8), ModelConfig(batching=False)
    stream = ModelConfig(decoupled=True, max_batch_size=8)
    for name in [*NUMBERS, "bytes_"]:
        dtype = getattr(np, name)
        triton.bind(f"same_{name}", same, [vector("x", dtype)], [vector("y", dtype)], config=eight)
    for function in (two_in_order, two_as_list):
        triton.bind(function.__name__, function, pair, both, config=eight)
    for function in (one_sample, one_in_order):
        triton.bind(function.__name__, function, pair, both, config=alone)
    preferred = ModelConfig(max_batch_size=8, batcher=DynamicBatcher(preferred_batch_size=[2, 4]))
    triton.bind("padded", padded, x, [*y, rows], config=preferred)
    triton.bind("padded_to_most", padded, x, [*y, rows], config=eight)
    triton.bind("by_kind", by_kind, kinds, [*y, rows], config=eight)
    names = [*kinds, Tensor(name="name", dtype=bytes, shape=(1,))]
    triton.bind("by_two", by_two, names, [*y, rows], config=eight)
    for function in (first, first_of_any, first_as_array):
        triton.bind(function.__name__, function, kinds, y, config=eight)
    some = [vector("a"), vector("b", optional=True)]
    triton.bind("optional", optional, some, both[:1], config=eight)
    triton.bind("by_keys", by_keys, some, both[:1], config=eight)
    for function in (in_context, writes, writes_to_requests, coroutine, raises, too_few_rows):
        triton.bind(function.__name__, function, x, y, config=eight)
    for function in (too_few_results, no_list, no_array):
        triton.bind(function.__name__, function, x, y, config=eight)
    for function in (same, wrong_dtype, wrong_shape):
        triton.bind(f"{function.__name__}_strict", function, x, y, config=eight, strict=True)
    texts = [vector("y", bytes)]
    triton.bind("reads_requests", reads_requests, x, texts, config=eight)
    triton.bind("of_strings", of_strings, [vector("x", bytes)], texts, config=eight)
    triton.bind("method", Bound(2).method, x, y, config=eight)
    triton.bind("object", Bound(3), x, y, config=eight)
    triton.bind("several", [Bound(4), Bound(4).method], x, y, config=eight)
    triton.bind("dots.and-dashes_1", same, x, y, config=eight)
    triton.bind("version", same, x, y, model_version=7, config=eight)
    triton.bind(
        "unnamed",
        two_by_place,
        [Tensor(dtype=np.float32, shape=(-1,))] * 2,
        [Tensor(dtype=np.float32, shape=(-1,))],
    )
    zeros = WarmupInput(dtype=np.float32, shape=(2,), zero_data=True)
    warm = [ModelWarmup(name="zeros", batch_size=2, inputs={"x": zeros}, count=1)]
    triton.bind("is_warmed", is_warmed, x, y, config=ModelConfig(max_batch_size=4, model_warmup=warm))
    policy = QueuePolicy(
        timeout_action=TimeoutAction.REJECT,
        default_timeout_microseconds=10_000_000,
        allow_timeout_override=True,
        max_queue_size=16,
    )
    batcher = DynamicBatcher(
        max_queue_delay_microseconds=100,
        preferred_batch_size=[4],
        priority_levels=3,
        default_priority_level=2,
        default_queue_policy=policy,
        priority_queue_policy={1: policy},
    )
    triton.bind("batcher", same, x, y, config=ModelConfig(max_batch_size=16, batcher=batcher))
    triton.bind("unbatched", same, x, y, config=ModelConfig(batching=True, max_batch_size=1))
    triton.bind("into_kept", into_kept, x, y, config=ModelConfig(max_batch_size=1))
    for function in (count, count_waiting, breaks, yields_nothing):
        triton.bind(function.__name__, function, x, y, config=stream)
    triton.bind("count_samples", count_samples, x, y, config=ModelConfig(batching=False, decoupled=True))


@batch
def two_by_place(**inputs):
    return [inputs["INPUT_1"] - inputs["INPUT_2"]]


# Clients.


def ask(protocol, name, *inputs, call="infer_batch", words=(), label="", **named):
    def called():
        with ModelClient(URLS[protocol], name) as client:
            return getattr(client, call)(*inputs, **named)

    note(f"{protocol} {name}{label and f' {label}'}", called, *words)


def ask_all(protocol):
    for name in NUMBERS:
        numbers = np.array([[0, 1], [2, 100]]).astype(getattr(np, name))
        ask(protocol, f"same_{name}", numbers)
    ask(protocol, "same_bytes_", np.array([[b"", b"a\xff"], ["ü".encode(), b"b"]], dtype=object))
    for name in ("two_in_order", "two_as_list"):
        ask(protocol, name, A, B)
    ask(protocol, "two_in_order", call="infer_sample", a=A[0], b=B[0], label="sample")
    ask(protocol, "one_sample", A[0], B[0], call="infer_sample")
    ask(protocol, "one_in_order", A[0], B[0], call="infer_sample")
    for rows in (1, 2, 3):
        ask(protocol, "padded", A[:rows], label=str(rows))
    ask(protocol, "padded_to_most", A)
    ask(protocol, "by_kind", A, np.array([[2], [3], [2]]))
    ask(protocol, "by_two", A, np.array([[2], [3], [2]]), np.array([[b"a"], [b"a"], [b"b"]]))
    for name in ("first", "first_of_any", "first_as_array"):
        ask(protocol, name, A, np.array([[2], [2], [2]]))
        ask(protocol, name, A, np.array([[2], [3], [2]]), label="of others", words=("are not equal",))
    ask(protocol, "optional", A, B)
    ask(protocol, "optional", a=A, label="left out")
    ask(protocol, "by_keys", a=A, b=B)
    ask(protocol, "by_keys", a=A, label="one")
    for name in ("in_context", "writes", "writes_to_requests", "coroutine", "method", "object", "several"):
        ask(protocol, name, A)
    ask(protocol, "reads_requests", A, parameters={"text": "a", "whole": 3, "flag": True})
    ask(protocol, "of_strings", np.array([["a", "b"]]))
    ask(protocol, "of_strings", np.array(["a", "b"]), call="infer_sample", label="sample")
    ask(protocol, "raises", A, words=("ValueError: as asked", "At:"))
    ask(protocol, "too_few_rows", A, words=("Received output tensors with different batch sizes",))
    for name in ("too_few_results", "no_list"):
        ask(protocol, name, A)
    for name in ("same_strict", "wrong_dtype_strict", "wrong_shape_strict"):
        ask(protocol, name, A)
    ask(protocol, "dots.and-dashes_1", A)
    ask(protocol, "unnamed", A, B)
    ask(protocol, "is_warmed", A)
    ask(protocol, "batcher", A, parameters={"priority": 1})
    ask(protocol, "unbatched", A, label="too many", words=("batch-size must be <= 1",))
    ask(protocol, "unbatched", A[:1])
    ask(protocol, "same_float32", A, A, label="too many inputs")
    ask(protocol, "same_float32", z=A, label="unknown input")
    ask(protocol, "same_float32", A, call="infer_sample", label="rank")
    ask(protocol, "same_float32", label="no input")
    ask(protocol, "one_sample", A, B, label="batch")
    note(f"{protocol} version", lambda: versions(protocol))
    note(f"{protocol} facts", lambda: facts(protocol))
    note(f"{protocol} closed", lambda: closed(protocol))
    note(f"{protocol} absent", lambda: late(protocol))


def versions(protocol):
    with ModelClient(URLS[protocol], "version", "7") as client:
        return client.infer_batch(A)


def facts(protocol):
    with ModelClient(URLS[protocol], "batcher") as client:
        client.wait_for_server(10)
        client.wait_for_model(10)
        config = client.model_config
        tensors = [
            [each.name, str(np.dtype(each.dtype)), list(each.shape)]
            for each in (*config.inputs, *config.outputs)
        ]
        return [
            config.model_name,
            config.max_batch_size,
            config.decoupled,
            client.is_batching_supported,
            tensors,
        ]


def closed(protocol):
    client = ModelClient(URLS[protocol], "batcher")
    client.close()
    return client.infer_batch(A)


def late(protocol):
    with ModelClient(URLS[protocol], "absent", init_timeout_s=0.5) as client:
        return client.infer_batch(A)


def ask_streams():
    for name in ("count", "count_waiting", "breaks", "yields_nothing"):

        def streamed(name=name):
            parts = []
            with DecoupledModelClient(URLS["grpc"], name) as client:
                try:
                    parts += [part["y"] for part in client.infer_batch(A)]
                except Exception as exc:
                    parts.append(kind(exc))
                    parts.append("in the middle" in str(exc))
            return parts

        note(f"stream {name}", streamed)
    with DecoupledModelClient(URLS["grpc"], "count_samples") as client:
        note("stream of samples", lambda: list(client.infer_sample(A[0])))
    note("stream over http", lambda: DecoupledModelClient(URLS["http"], "count"))
    with FuturesModelClient(URLS["http"], "into_kept", max_workers=4, max_queue_size=8) as client:
        note(
            "kept array",
            lambda: [each.result() for each in [client.infer_batch(A[:1] * i) for i in range(4)]],
        )
    with ModelClient(URLS["grpc"], "count") as client:
        note("stream by a client of one answer", lambda: client.infer_batch(A))
    with FuturesModelClient(URLS["http"], "same_float32", max_workers=2, max_queue_size=4) as client:
        note("future of a batch", lambda: client.infer_batch(A).result())
        note("future of a sample", lambda: client.infer_sample(A[0]).result())
        note("future of the facts", lambda: client.model_config().result().max_batch_size)
        note("future of an error", lambda: client.infer_sample(z=A[0]).result())
    asyncio.run(ask_asyncio())


async def ask_asyncio():
    for protocol, url in URLS.items():
        async with AsyncioModelClient(url, "same_float32") as client:
            for call, array in (("infer_batch", A), ("infer_sample", A[0])):
                answer = await getattr(client, call)(array)
                note(f"asyncio {protocol} {call}", lambda answer=answer: answer)
            try:
                await client.infer_batch(z=A)
            except Exception as exc:
                answers[f"asyncio {protocol} error"] = kind(exc)
    async with AsyncioDecoupledModelClient(URLS["grpc"], "count") as client:
        answers["asyncio stream"] = [plain(part) async for part in client.infer_batch(A)]


# What needs no server, and what restricts it.


def make_all():
    for value in ("ftp://x", "x:y"):
        note(f"url {value}", lambda value=value: ModelClient(value, "x"))
    note("nothing allowed", lambda: TritonConfig(allow_http=False, allow_grpc=False))
    note("unknown endpoint", lambda: TritonSecurityConfig(restricted_endpoints=["everything"]))
    note("tensor", lambda: plain_tensor(Tensor(shape=(1, -1), dtype=np.int32)))
    note("tensor of strings", lambda: plain_tensor(Tensor(shape=(1,), dtype=bytes, name="x", optional=True)))
    note(
        "model",
        lambda: [getattr(ModelConfig(), name) for name in ("batching", "max_batch_size", "response_cache")],
    )
    note("padder", lambda: ConstantPadder(7)([{"a": np.zeros((1, 1))}, {"a": np.ones((2, 3))}]))
    note("config", lambda: TritonConfig.from_dict({"http_port": "7", "unknown": 1}).http_port)
    note("error", lambda: raise_(PyTritonError("text")), "text")


def raise_(exc):
    raise exc


def plain_tensor(tensor):
    return [list(tensor.shape), str(np.dtype(tensor.dtype)), tensor.name, tensor.optional]


def ask_restricted(triton):
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{HTTP}") as client:
        token = {"triton-access-token": triton.get_access_token()}
        note("statistics without the token", lambda: client.get_inference_statistics("object"))
        note(
            "statistics with the token",
            lambda: sorted(client.get_inference_statistics("object", headers=token)["model_stats"][0])[:1],
        )
        note("ready without the token", lambda: [client.is_server_live(), client.is_model_ready("object")])


def main():
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=HTTP,
        grpc_address="127.0.0.1",
        grpc_port=GRPC,
        allow_metrics=False,
        exit_timeout_secs=5,
    )
    make_all()
    with Triton(config=config) as triton:
        for name in ("", "a b", "a/b", "ä"):
            note(f"name '{name}'", lambda name=name: triton.bind(name, same, [vector("x")], [vector("y")]))
        bind_all(triton)
        triton.run()
        answers["state"] = [triton.is_alive(), triton.is_connected()]
        for protocol in URLS:
            ask_all(protocol)
        ask_streams()
        ask_restricted(triton)
        answers["warmed"] = warmed[:2]
    answers["stopped"] = [triton.is_connected(), triton.stop()]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
