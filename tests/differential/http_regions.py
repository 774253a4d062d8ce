"""HTTP requests about shared memory: of regions that are there, and of some that are not."""

from __future__ import annotations

import json
from typing import Any

from .bodies import body, http_case, infer, tensor
from .regions import KEY, SIZE
from .servers import Http

_INPUT = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")


def _region(action: str, document: Any = None, name: str | None = "r", kind: str = "system") -> Http:
    where = "" if name is None else f"/region/{name}"
    sent = b"" if document is None else json.dumps(document).encode()
    method = "GET" if action == "status" else "POST"
    return Http(method, f"/v2/{kind}sharedmemory{where}/{action}", sent)


def _used(input: Any = None, output: Any = None, model: str = "nob", **more: Any) -> Http:
    """An inference whose input and output lie in regions: name, offset and size."""
    wanted = [{"name": "OUT0", "parameters": _place(*output)}] if output else []
    one = tensor(data=None, parameters=_place(*input)) if input else tensor()
    return infer(model, body({**one, **more}, outputs=wanted))


def _place(name: str, offset: object, size: object) -> dict[str, object]:
    return {
        "shared_memory_region": name,
        "shared_memory_offset": offset,
        "shared_memory_byte_size": size,
    }


_REGISTER = _region("register", {"key": KEY, "byte_size": SIZE})
_UNREGISTER = _region("unregister", name=None)

CASES = [
    http_case(
        "regions: none",
        _region("status", name=None),
        _region("status"),
        _region("unregister"),
        _region("unregister", name=None),
    ),
    *(
        http_case(f"register {document!r}", _region("register", document))
        for document in (
            {},
            {"key": "/none"},
            {"byte_size": 8},
            {"key": 5, "byte_size": 8},
            {"key": "/none", "byte_size": "8"},
            {"key": "/no_such_region", "byte_size": 8},
            {"key": "/no_such_region", "byte_size": -1},
            {"key": "/no_such_region", "byte_size": 8, "offset": -1},
            {"key": "/no_such_region", "byte_size": 8, "offset": "1"},
            {"key": "", "byte_size": 8},
            [],
            5,
        )
    ),
    http_case("register without a body", _region("register")),
    http_case("register without a name", _region("register", {"key": "/none", "byte_size": 8}, name=None)),
    http_case(
        "CUDA regions: none",
        _region("status", name=None, kind="cuda"),
        _region("status", kind="cuda"),
        _region("unregister", kind="cuda"),
    ),
    *(
        http_case(f"register for CUDA {document!r}", _region("register", document, kind="cuda"))
        for document in (
            {},
            {"raw_handle": {"b64": "YQ=="}},
            {"raw_handle": {"b64": "YQ=="}, "device_id": 0, "byte_size": 8},
            {"raw_handle": "YQ==", "device_id": 0, "byte_size": 8},
            {"raw_handle": {}, "device_id": 0, "byte_size": 8},
            {"raw_handle": {"b64": "!"}, "device_id": 0, "byte_size": 8},
        )
    ),
    http_case(
        "input in an unknown region",
        infer(
            "nob",
            body(
                tensor(data=None, parameters={"shared_memory_region": "nope", "shared_memory_byte_size": 8})
            ),
        ),
    ),
    *(
        http_case(
            f"input in a region, {key} is {value!r}",
            infer(
                "nob",
                body(
                    tensor(
                        data=None,
                        parameters={"shared_memory_region": "nope", "shared_memory_byte_size": 8, key: value},
                    )
                ),
            ),
        )
        for key in _INPUT
        for value in (5, -1, "x", None, [])
    ),
    http_case(
        "input in a region of no size",
        infer("nob", body(tensor(data=None, parameters={"shared_memory_region": "nope"}))),
    ),
    http_case(
        "data and a region",
        infer("nob", body(tensor(parameters={"shared_memory_region": "nope", "shared_memory_byte_size": 8}))),
    ),
    http_case(
        "output in an unknown region",
        infer(
            "nob",
            body(
                tensor(),
                outputs=[
                    {
                        "name": "OUT0",
                        "parameters": {"shared_memory_region": "nope", "shared_memory_byte_size": 8},
                    }
                ],
            ),
        ),
    ),
    http_case(
        "output in a region of no size",
        infer(
            "nob", body(tensor(), outputs=[{"name": "OUT0", "parameters": {"shared_memory_region": "nope"}}])
        ),
    ),
    http_case(
        "output in a region and binary",
        infer(
            "nob",
            body(
                tensor(),
                outputs=[
                    {
                        "name": "OUT0",
                        "parameters": {
                            "shared_memory_region": "nope",
                            "shared_memory_byte_size": 8,
                            "binary_data": True,
                        },
                    }
                ],
            ),
        ),
    ),
    http_case("a region", _REGISTER, _region("status"), _region("status", name=None), _UNREGISTER),
    http_case("a region registered twice", _REGISTER, _REGISTER, _UNREGISTER),
    http_case("a region unregistered twice", _REGISTER, _region("unregister"), _region("unregister")),
    http_case(
        "a region of another name", _region("register", {"key": KEY, "byte_size": SIZE}, "a.b"), _UNREGISTER
    ),
    http_case(
        "a part of a region",
        _region("register", {"key": KEY, "byte_size": 8, "offset": 8}),
        _region("status"),
        _UNREGISTER,
    ),
    http_case(
        "a region larger than it is",
        _region("register", {"key": KEY, "byte_size": 2 * SIZE}),
        _region("status"),
        _UNREGISTER,
    ),
    http_case(
        "a region beyond its end",
        _region("register", {"key": KEY, "byte_size": 8, "offset": SIZE}),
        _region("status"),
        _UNREGISTER,
    ),
    http_case(
        "a region of size 0",
        _region("register", {"key": KEY, "byte_size": 0}),
        _region("status"),
        _UNREGISTER,
    ),
    http_case(
        *("inputs and outputs in a region", _REGISTER),
        *(
            _used(("r", 0, 8)),
            _used(None, ("r", 16, 8)),
            _used(("r", 16, 8)),
            _used(("r", 0, 8), ("r", 32, 8)),
        ),
        *(_used(("r", 32, 8)), _used(("r", 0, 8), ("r", 40, SIZE - 40)), _UNREGISTER),
    ),
    *(
        http_case(
            f"an input at {offset} of size {size} in a region",
            _REGISTER,
            _used(("r", offset, size)),
            _UNREGISTER,
        )
        for offset, size in (
            (SIZE, 8),
            (SIZE - 4, 8),
            (0, 2 * SIZE),
            (0, 4),
            (0, 16),
            (0, 0),
            (2**62, 8),
            (8, 2**63),
            (-8, 8),
            (2**64, 8),
        )
    ),
    *(
        http_case(
            f"an output at {offset} of size {size} in a region",
            _REGISTER,
            _used(None, ("r", offset, size)),
            _UNREGISTER,
        )
        for offset, size in (
            (SIZE, 8),
            (SIZE - 4, 8),
            (0, 2 * SIZE),
            (0, 4),
            (0, 0),
            (2**62, 8),
            (8, 2**63),
            (-8, 8),
        )
    ),
    http_case(
        "a bad request with a region",
        _REGISTER,
        _used(("r", 0, 8), shape=[3]),
        _used(("r", 0, 8), datatype="INT8"),
        _UNREGISTER,
    ),
]
