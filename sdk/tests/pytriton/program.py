"""A program for PyTriton, which also runs without it; prints what its models answer."""

import json
import sys

import numpy as np
from pytriton.client import AsyncioModelClient, DecoupledModelClient, FuturesModelClient, ModelClient
from pytriton.client.exceptions import (
    PyTritonClientInferenceServerError,
    PyTritonClientValueError,
)
from pytriton.decorators import batch, fill_optionals, first_value, group_by_keys, group_by_values, sample
from pytriton.exceptions import PyTritonUnrecoverableError
from pytriton.model_config import DynamicBatcher, ModelConfig, QueuePolicy, Tensor
from pytriton.triton import Triton, TritonConfig

HTTP, GRPC = (int(port) for port in sys.argv[1:])
answers = {}


def vector(name, dtype=np.float32, **more):
    return Tensor(name=name, dtype=dtype, shape=(-1,), **more)


@batch
def add(a, b):
    return {"sum": a + b}


@batch
def in_order(a, b):
    return [a + b]


@sample
def alone(a, b):
    return {"sum": a - b}


@batch
@group_by_values("kind")
@first_value("kind")
def by_kind(x, kind):
    return {"y": x * int(kind)}


@group_by_keys
@fill_optionals(b=np.array([100], np.float32))
@batch
def optional(a, b):
    return {"sum": a + b}


def of_requests(requests):
    return [
        {"sum": request["a"] * request.parameters.get("factor", 1) + request["b"]} for request in requests
    ]


def upper(requests):
    return [{"y": np.char.upper(request["x"].astype(bytes))} for request in requests]


@batch
def failing(a, b):
    raise ValueError("as asked")


@batch
def lost(a, b):
    raise PyTritonUnrecoverableError("for good")


@batch
def wrong(a, b):
    return {"other": a}


@batch
def count(x):
    for factor in range(3):
        yield {"y": x * factor}


def main():
    config = TritonConfig(
        http_address="127.0.0.1",
        http_port=HTTP,
        grpc_address="127.0.0.1",
        grpc_port=GRPC,
        allow_metrics=False,
        exit_timeout_secs=5,
    )
    pair, total = [vector("a"), vector("b")], [vector("sum")]
    policy = QueuePolicy(max_queue_size=16)
    batching = ModelConfig(max_batch_size=8, batcher=DynamicBatcher(default_queue_policy=policy))
    with Triton(config=config) as triton:
        for function in (add, in_order, of_requests, failing, wrong, lost):
            triton.bind(function.__name__, function, pair, total, config=batching)
        triton.bind("two", [add, add], pair, total)
        triton.bind("strict", wrong, pair, total, strict=True)
        triton.bind("alone", alone, pair, total, config=ModelConfig(batching=False))
        triton.bind("optional", optional, [vector("a"), vector("b", optional=True)], total)
        kinds = [vector("x"), Tensor(name="kind", dtype=np.int64, shape=(1,))]
        triton.bind("by_kind", by_kind, kinds, [vector("y")])
        triton.bind("upper", upper, [vector("x", bytes)], [vector("y", bytes)])
        triton.bind("count", count, [vector("x")], [vector("y")], config=ModelConfig(decoupled=True))
        triton.run()
        ask(triton)
    print(json.dumps(answers))


def ask(triton):
    a, b = np.array([[1, 2], [3, 4]], np.float32), np.array([[10, 20], [30, 40]], np.float32)
    for url in (f"http://127.0.0.1:{HTTP}", f"grpc://127.0.0.1:{GRPC}"):
        protocol = url.partition(":")[0]

        def note(name, client, call, *args, protocol=protocol, **kwargs):
            try:
                result = getattr(client, call)(*args, **kwargs)
                found = {key: value.tolist() for key, value in result.items()}
            except (PyTritonClientInferenceServerError, PyTritonClientValueError) as exc:
                is_value = isinstance(exc, PyTritonClientValueError)
                found = {"kind": "ValueError" if is_value else "InferenceServerError"}
                found["text"] = "ValueError: as asked" in exc.message or "for good" in exc.message
            answers[f"{protocol} {name}"] = found

        for name in ("add", "in_order", "of_requests", "two", "optional", "failing", "wrong", "strict"):
            with ModelClient(url, name) as client:
                note(name, client, "infer_batch", a, b)
                note(f"{name} sample", client, "infer_sample", a=a[0], b=b[0])
        with ModelClient(url, "of_requests") as client:
            note("parameters", client, "infer_batch", a, b, parameters={"factor": 5})
        with ModelClient(url, "optional") as client:
            note("left out", client, "infer_batch", a=a)
        with ModelClient(url, "alone") as client:
            note("alone", client, "infer_sample", a[0], b[0])
        with ModelClient(url, "by_kind") as client:
            note("by kind", client, "infer_batch", a, np.array([[2], [3]]))
        with ModelClient(url, "add") as client:
            note("mixed", client, "infer_batch", a, b=b)
        with ModelClient(url, "two") as client:
            answers[f"{protocol} config"] = [client.is_batching_supported, client.model_config.max_batch_size]
    http = f"http://127.0.0.1:{HTTP}"  # PyTriton's own client of this kind speaks nothing else
    with FuturesModelClient(http, "add", max_workers=2) as client:
        futures = [client.infer_sample(a[0] * factor, b[0]) for factor in range(4)]
        answers["futures"] = [future.result()["sum"].tolist() for future in futures]
    with ModelClient(f"http://127.0.0.1:{HTTP}", "upper") as client:
        answers["upper"] = [text.decode() for text in client.infer_sample(np.array([b"a", b"b"]))["y"]]
    with DecoupledModelClient(f"grpc://127.0.0.1:{GRPC}", "count") as client:
        answers["count"] = [part["y"].tolist() for part in client.infer_sample(a[0])]
    answers["token"] = bool(triton.get_access_token())
    with ModelClient(http, "lost") as client:
        try:
            client.infer_sample(a[0], b[0])
        except Exception:  # PyTriton's server is gone with the model, and its client says so in many ways
            answers["lost"] = True
    assert AsyncioModelClient


if __name__ == "__main__":
    main()
