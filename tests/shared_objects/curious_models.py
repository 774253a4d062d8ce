"""Models of the backend `curious`, and requests that have it answer in all ways."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tritonpy_sdk.repository import ModelRepository

Config = dict[str, Any]

INPUT: Config = {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
OUTPUT: Config = {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
ONE: Config = {"instance_group": [{"count": 1, "kind": "KIND_CPU"}]}
PAIR: Config = {"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}
TENSORS: Config = {"input": [INPUT], "output": [OUTPUT], **ONE}
BATCHING: Config = {"max_batch_size": 8, **TENSORS}
ON_THREADS: Config = {"TRITONPY_ISOLATION": {"string_value": "thread"}}
SQUARE: Config = {"data_type": "TYPE_INT32", "dims": [2, 2], "reshape": {"shape": [4]}}
RICH: Config = {
    **BATCHING,
    "cc_model_filenames": {"7.5": "a.plan"},
    "default_model_filename": "x",
    "metric_tags": {"a": "b"},
    "optimization": {
        "priority": "PRIORITY_MAX",
        "input_pinned_memory": {"enable": False},
        "graph": {"level": -1},
        "cuda": {"graphs": True},
    },
    "parameters": {"a": {"string_value": "größer"}},
    "instance_group": [{"count": 1, "kind": "KIND_MODEL", "name": "of_model"}],
    "response_cache": {"enable": False},
    "model_operations": {"op_library_filename": []},
    "version_policy": {"all": {}},
    "model_transaction_policy": {"decoupled": False},
}


def refusing(function: str, parameters: Config | None = None) -> Config:
    why = {"why": {"string_value": f"refuse in {function}"}}
    return {**BATCHING, "parameters": {**why, **(parameters or {})}}


def control(name: str, kind: str, **how: Any) -> Config:
    return {"name": name, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}", **how}]}


MODELS: dict[str, Config] = {
    "plain": {**BATCHING, "dynamic_batching": {}},
    "threaded": {**BATCHING, "dynamic_batching": {}, "parameters": ON_THREADS},
    "pair": {**BATCHING, **PAIR},
    "threaded_pair": {**BATCHING, **PAIR, "parameters": ON_THREADS},
    "empty": {},
    "bare": {"input": [INPUT], "output": [OUTPUT]},
    "often": {**TENSORS, "model_transaction_policy": {"decoupled": True}},
    "often_threaded": {
        **TENSORS,
        "model_transaction_policy": {"decoupled": True},
        "parameters": ON_THREADS,
    },
    "texts": {
        "input": [
            {**INPUT, "data_type": "TYPE_STRING"},
            {"name": "INPUT1", "data_type": "TYPE_INT64", "dims": [2], "optional": True},
        ],
        "output": [
            {**OUTPUT, "data_type": "TYPE_STRING"},
            {"name": "OUTPUT1", "data_type": "TYPE_INT64", "dims": [2]},
        ],
        **ONE,
    },
    "reshaped": {
        **BATCHING,
        "input": [{"name": "INPUT0", **SQUARE}],
        "output": [{"name": "OUTPUT0", **SQUARE}],
    },
    "ragged": {
        **BATCHING,
        "input": [{**INPUT, "allow_ragged_batch": True}],
        "dynamic_batching": {},
        "batch_input": [
            {
                "kind": "BATCH_ACCUMULATED_ELEMENT_COUNT",
                "target_name": ["INDEX"],
                "data_type": "TYPE_FP32",
                "source_input": ["INPUT0"],
            }
        ],
        "batch_output": [
            {
                "kind": "BATCH_SCATTER_WITH_INPUT_SHAPE",
                "target_name": ["OUTPUT0"],
                "source_input": ["INPUT0"],
            }
        ],
    },
    "sequences": {
        **BATCHING,
        "sequence_batching": {"control_input": [control("START", "START", int32_false_true=[0, 1])]},
    },
    "candidates": {
        **BATCHING,
        "sequence_batching": {
            "oldest": {"max_candidate_sequences": 2},
            "control_input": [
                control("CORRID", "CORRID", data_type="TYPE_UINT64"),
            ],
        },
    },
    "warm": {
        **BATCHING,
        "model_warmup": [
            {
                "name": "once",
                "batch_size": 2,
                "inputs": {"INPUT0": {"data_type": "TYPE_INT32", "dims": [3], "zero_data": True}},
            }
        ],
    },
    "rich": RICH,
    "refused": refusing("ModelInitialize"),
    "refused_threaded": refusing("ModelInitialize", ON_THREADS),
    "instance_refused": refusing("ModelInstanceInitialize"),
    "instance_refused_threaded": refusing("ModelInstanceInitialize", ON_THREADS),
    "whole": {
        "platform": "ensemble",
        "max_batch_size": 8,
        "input": [{**INPUT, "name": "IN"}],
        "output": [{**OUTPUT, "name": "OUT"}],
        "ensemble_scheduling": {
            "step": [
                {
                    "model_name": "plain",
                    "model_version": -1,
                    "input_map": {"INPUT0": "IN"},
                    "output_map": {"OUTPUT0": "OUT"},
                }
            ]
        },
    },
}
SERVED = [name for name in MODELS if "refused" not in name]
ON_BOTH = ("plain", "threaded")
"""The same model in a process of ours, and on threads."""


def write(path: Path) -> Path:
    """The repository; one of the models has two versions."""
    repository = ModelRepository(path)
    for name, config in MODELS.items():
        repository.model(name, config if "platform" in config else {"backend": "curious", **config})
    (path / "rich/3").mkdir()
    return path


class Asked(NamedTuple):
    """A request: its model, and the body that it has over HTTP."""

    model: str
    body: Config


def tensor(*shape: int, name: str = "INPUT0", data: list[Any] | None = None) -> Config:
    count = 1
    for dim in shape:
        count *= dim
    values = list(range(1, count + 1)) if data is None else data
    is_text = any(isinstance(value, str) for value in values) or data == []
    return {
        "name": name,
        "datatype": "BYTES" if is_text else "INT32",
        "shape": list(shape),
        "data": values,
    }


def asked(
    model: str, do: str = "", *inputs: Config, parameters: Mapping[str, Any] | None = None, **others: Any
) -> Asked:
    """A request for what the backend does where its parameter `do` says this."""
    given = {**(parameters or {}), **({"do": do} if do else {})}
    body: Config = {"inputs": list(inputs) or [tensor(1, 2)], **others}
    return Asked(model, {**body, "parameters": given} if given else body)


WISHES = (
    *(f"error {code}" for code in range(8)),
    *(f"refuse {code}" for code in range(8)),
    "other shape",
    "more dims",
    "no dims",
    "no elements",
    "other type",
    "odd outputs",
    "parameters",
    "nothing",
    "dropped response",
    "unreported",
    "log",
)


def requests() -> Iterator[Asked]:
    """All that both protocols can ask."""
    for model in ON_BOTH:
        yield asked(model)
        yield asked(model, "", tensor(3, 2), id="größer")
        for do in WISHES:
            yield asked(model, do, id=do)
        yield asked(model, parameters={"text": "t", "number": -4, "flag": True, "half": 0.5, "big": 2**40})
        yield asked(model, parameters={"timeout": 5_000_000, "priority": 0, "kept": 1})
        yield asked(model, parameters={"sequence_id": 7, "sequence_start": True})
        yield asked(model, parameters={"sequence_id": "abc", "sequence_end": True})
        yield asked(model, outputs=[{"name": "OUTPUT0"}])
        yield asked(model, "", tensor(2, 2, 2))
    for model in ("empty", "bare"):
        yield asked(model, "", tensor(2))
        yield asked(model, "", tensor(1, 2))
    yield asked("texts", "", tensor(3, data=["", "größer", "a\0b"]))
    yield asked("texts", "", tensor(0, data=[]))
    numbers = {"name": "INPUT1", "datatype": "INT64", "shape": [2], "data": [-1, 2**40]}
    yield asked("texts", "", tensor(1, data=["a"]), numbers, outputs=[{"name": "OUTPUT1"}])
    yield asked("reshaped", "", tensor(2, 2, 2))
    yield asked("ragged", "", tensor(2, 3))
    for model in ("sequences", "candidates"):
        yield asked(model, parameters={"sequence_id": 7, "sequence_start": True})
        yield asked(model, parameters={"sequence_id": 7})
        yield asked(model, parameters={"sequence_id": 7, "sequence_end": True})
    for model in ("warm", "rich", "refused"):
        yield asked(model)
    whole = tensor(1, 2, name="IN")
    yield asked("whole", "", whole, id="of a step", parameters={"text": "t"})
    yield asked("whole", "error 2", whole)


def streamed() -> Iterator[Asked]:
    """What decoupled models are asked in a stream."""
    for model in ("often", "often_threaded"):
        for do in ("1", "3", "3 apart", "2 fail", "0"):
            yield asked(model, do, tensor(2))
