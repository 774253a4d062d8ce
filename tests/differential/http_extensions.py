"""HTTP inference requests: parameters and classification."""

from __future__ import annotations

from typing import Any

from .bodies import body, http_case, infer, tensor
from .servers import Http

_ZERO = tensor("IN0", "INT32", [1], [0])
_FOUR = tensor("IN0", "FP32", [1, 4], [1, 4, 2, 3])
_BYTES4 = tensor("IN1", "INT8", [1, 2, 2], [1, -4, 2, 2])
_KINDS: tuple[Any, ...] = (5, -1, 0, 1.5, True, "text", "", None, [], {}, 2**40, 2**63, 2**64, 2**70)
_KEYS = (
    *("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "mine", "triton_x"),
)


def _told(parameters: Any, **more: Any) -> Http:
    return infer("told", body(_ZERO, parameters=parameters, **more))


def _classified(count: Any, *inputs: Any, output: str = "OUT0", **more: Any) -> Http:
    parameters = {"classification": count, **more}
    return infer(
        "labelled", body(*(inputs or (_FOUR,)), outputs=[{"name": output, "parameters": parameters}])
    )


CASES = [
    http_case("parameters: none", _told({}), infer("told", body(_ZERO))),
    *(http_case(f"parameter {key}: {value!r}", _told({key: value})) for key in _KEYS for value in _KINDS),
    http_case(
        "parameters of all kinds",
        _told({"b": True, "a": 1, "c": "x", "d": 1.5, "sequence_id": 7, "timeout": 9}),
    ),
    http_case(
        "parameter names", _told({"": 1, "ä": 2, "with space": 3, "Sequence_ID": 4, "binary_data": True})
    ),
    http_case("an id with parameters", _told({"a": 1}, id="7")),
    http_case("response parameters", infer("told", body({**_ZERO, "data": [1]}))),
    http_case(
        "response parameters in binary",
        infer("told", body({**_ZERO, "data": [1]}, parameters={"binary_data_output": True})),
    ),
    http_case("response parameters and an id", infer("told", body({**_ZERO, "data": [1]}, id="7"))),
    http_case("wanted outputs", infer("told", body(_ZERO, outputs=[{"name": "TOLD"}]))),
    http_case(
        "parameters of an input", infer("told", body({**_ZERO, "parameters": {"mine": 5, "other": None}}))
    ),
    http_case(
        "parameters of an output",
        infer("told", body(_ZERO, outputs=[{"name": "TOLD", "parameters": {"mine": [5]}}])),
    ),
    *(
        http_case(f"classification of {count}", _classified(count))
        for count in (0, 1, 2, 3, 4, 5, 2**31, 2**32, 2**64)
    ),
    *(
        http_case(f"classification of {count!r}", _classified(count))
        for count in (-1, 1.5, "2", True, None, [], {})
    ),
    http_case(
        "classification of a batch",
        _classified(2, tensor("IN0", "FP32", [2, 4], [1, 4, 2, 3, 0, -1, 0.5, 9])),
    ),
    http_case("classification in binary", _classified(2, binary_data=True)),
    http_case("classification of equal values", _classified(4, tensor("IN0", "FP32", [1, 4], [1, 1, 1, 1]))),
    http_case(
        "classification of NaN",
        infer(
            "labelled",
            body(
                tensor("IN0", "FP32", [1, 4], [1, 2, 3, 4]),
                outputs=[{"name": "OUT0", "parameters": {"classification": 4}}],
            ).replace(b"[1, 2, 3, 4]", b"[Infinity, -Infinity, 1e30, 1e-9]"),
        ),
    ),
    http_case("classification of integers", _classified(3, _FOUR, _BYTES4, output="OUT1")),
    http_case(
        "classification and a region", _classified(2, shared_memory_region="r", shared_memory_byte_size=8)
    ),
    http_case("classification of an unknown output", _classified(2, output="ZZ")),
    *(
        http_case(
            f"classification of {datatype}",
            infer(
                "types",
                body(
                    tensor(f"IN_{datatype}", datatype, [3], [1, 3, 2]),
                    outputs=[{"name": f"OUT_{datatype}", "parameters": {"classification": 2}}],
                ),
            ),
        )
        for datatype in (
            "UINT8",
            "UINT16",
            "UINT32",
            "UINT64",
            "INT8",
            "INT16",
            "INT32",
            "INT64",
            "FP32",
            "FP64",
        )
    ),
    http_case(
        "classification of BOOL",
        infer(
            "types",
            body(
                tensor("IN_BOOL", "BOOL", [2], [True, False]),
                outputs=[{"name": "OUT_BOOL", "parameters": {"classification": 2}}],
            ),
        ),
    ),
]
