"""gRPC requests about a region of shared memory that is there."""

from __future__ import annotations

from typing import Any

from .bodies import PAIR, call, grpc_case, message, stream, unary
from .regions import KEY, SIZE
from .servers import Grpc

_PLACES = (
    (0, 8),
    (8, 8),
    (SIZE - 8, 8),
    (SIZE - 4, 8),
    (SIZE, 8),
    (0, 4),
    (0, 16),
    (0, 2 * SIZE),
    (-8, 8),
    (8, -8),
)


def _place(offset: int, size: int) -> dict[str, Any]:
    return {
        "shared_memory_region": {"string_param": "r"},
        "shared_memory_offset": {"int64_param": offset},
        "shared_memory_byte_size": {"int64_param": size},
    }


def _used(input: tuple[int, int] | None = None, output: tuple[int, int] | None = None, **more: Any) -> Any:
    """An inference whose input and output lie in the region: offset and size."""
    outputs = [("OUT0", _place(*output))] if output else ()
    made = message("nob", ("IN0", "FP32", (2,)), raw=() if input else (PAIR,), outputs=outputs, **more)
    for key, value in _place(*input).items() if input else ():
        made.inputs[0].parameters[key].MergeFrom(type(made.inputs[0].parameters[key])(**value))
    return made


def _within(*steps: Grpc) -> tuple[Grpc, ...]:
    return (
        call("SystemSharedMemoryRegister", name="r", key=KEY, byte_size=SIZE),
        *steps,
        call("SystemSharedMemoryUnregister"),
    )


_typed = _used((0, 8))
_typed.inputs[0].contents.fp32_contents.extend([1, 2])
_raw = _used((0, 8))
_raw.raw_input_contents.append(PAIR)

CASES = [
    grpc_case(
        "a region", *_within(call("SystemSharedMemoryStatus"), call("SystemSharedMemoryStatus", name="r"))
    ),
    grpc_case("a region registered twice", *_within(*_within())),
    *(
        grpc_case(
            f"a region of {size} bytes from {offset}",
            call("SystemSharedMemoryRegister", name="r", key=KEY, byte_size=size, offset=offset),
            *_within(),
        )
        for size, offset in ((2 * SIZE, 0), (8, SIZE), (0, 0), (8, 8))
    ),
    grpc_case(
        "inputs and outputs in a region",
        *_within(
            *map(
                unary,
                (
                    _used((0, 8)),
                    _used(None, (16, 8)),
                    _used((16, 8)),
                    _used((0, 8), (32, 16)),
                    _used((32, 8)),
                ),
            )
        ),
    ),
    grpc_case(
        "a stream of inputs and outputs in a region",
        *_within(stream(_used((0, 8), (40, 8), id="1"), _used((40, 8), id="2"))),
    ),
    *(
        grpc_case(
            f"an input of {size} bytes from {offset} in a region", *_within(unary(_used((offset, size))))
        )
        for offset, size in _PLACES
    ),
    *(
        grpc_case(
            f"an output of {size} bytes from {offset} in a region",
            *_within(unary(_used(None, (offset, size)))),
        )
        for offset, size in _PLACES
    ),
    grpc_case("an input in a region and typed", *_within(unary(_typed))),
    grpc_case("an input in a region and raw", *_within(unary(_raw))),
    grpc_case(
        "classes in a region",
        *_within(
            unary(
                message(
                    "labelled",
                    ("IN0", "FP32", (1, 4)),
                    raw=(PAIR * 2,),
                    outputs=(("OUT0", {**_place(0, 64), "classification": {"int64_param": 1}}),),
                )
            )
        ),
    ),
]
