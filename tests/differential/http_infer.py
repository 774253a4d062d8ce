"""HTTP inference requests: what they are made of, and which model they reach."""

from __future__ import annotations

import json
from typing import Any

from .bodies import body, http_case, infer, tensor

GOOD = body(tensor())
FIX = (tensor(shape=[1, 2]), tensor("IN1", "INT32", [1, 1], [1]))
_OTHER: tuple[Any, ...] = (5, -1, 1.5, True, None, "text", [], [5], {}, {"a": 1})


def _without(key: str) -> bytes:
    return body({name: value for name, value in tensor().items() if name != key})


def _named(value: Any) -> str:
    return json.dumps(value)


_DOCUMENTS = {
    "nothing": b"",
    "a blank": b" ",
    "no JSON": b"x",
    "half an object": b'{"inputs": [',
    "an array": b"[]",
    "null": b"null",
    "a number": b"5",
    "a string": b'"text"',
    "an empty object": b"{}",
    "a misspelt literal": b'{"inputs": tru}',
    "a value that is none": b'{"inputs": x}',
    "single quotes": b"{'inputs': []}",
    "a comma too many": GOOD[:-1] + b",}",
    "a comma too many in an array": b'{"inputs": [1,]}',
    "no colon": b'{"inputs" []}',
    "a key that is no string": b"{5: 1}",
    "an open string": b'{"inputs": "abc',
    "a bad escape": b'{"id": "\\x", "inputs": []}',
    "a bad unicode escape": b'{"id": "\\u12x4", "inputs": []}',
    "half of a surrogate pair": b'{"id": "\\ud800", ' + GOOD[1:],
    "a control character in a string": b'{"id": "a\nb", ' + GOOD[1:],
    "a NUL in a string": b'{"id": "a\\u0000b", ' + GOOD[1:],
    "a byte that is no UTF-8": b'{"id": "\xff", ' + GOOD[1:],
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "UTF-16": GOOD.decode().encode("utf-16"),
    "text behind": GOOD + b" x",
    "a second document behind": GOOD + GOOD,
    "a NUL behind": GOOD + b"\0",
    "white space around": b" \t\r\n" + GOOD + b" \t\r\n",
    "a comment": b"/* */" + GOOD,
    "a leading zero": b'{"inputs": [01]}',
    "a plus": b'{"inputs": [+1]}',
    "a bare point": b'{"inputs": [.5]}',
    "a point at the end": b'{"inputs": [5.]}',
    "a bare exponent": b'{"inputs": [5e]}',
    "a bare minus": b'{"inputs": [-]}',
    "hexadecimal": b'{"inputs": [0x1]}',
    "keys twice: inputs": b'{"inputs": [], ' + GOOD[1:],
    "keys twice: inputs, the other way": GOOD[:-1] + b', "inputs": []}',
    "keys twice: id": b'{"id": "a", "id": "b", ' + GOOD[1:],
    "keys twice: shape": GOOD.replace(b'"shape"', b'"shape": [3], "shape"'),
    "keys twice: name": GOOD.replace(b'"name"', b'"name": "ZZ", "name"'),
    "keys twice: data": GOOD.replace(b'"data"', b'"data": [7, 8], "data"'),
    "keys twice: parameters": b'{"parameters": {"priority": "x"}, "parameters": {}, ' + GOOD[1:],
    "unknown keys": b'{"other": {"a": [1, null]}, "model_name": 5, ' + GOOD[1:],
    "unknown keys of an input": body(tensor(other=1, Data=[5])),
    "another order": b'{"outputs": [], "inputs": [{"data": [1, 2], "shape": [2], "name": "IN0", '
    b'"datatype": "FP32"}]}',
    "escaped keys": GOOD.replace(b'"shape"', b'"\\u0073hape"'),
    "the model's name and version": b'{"model_name": "other", "model_version": "7", ' + GOOD[1:],
}

CASES = [
    http_case("a good request", infer("nob", GOOD)),
    http_case("a good request to a version", infer("nob", GOOD, version="1")),
    http_case("a good request to a version with zeros", infer("nob", GOOD, version="001")),
    http_case("a good request with a batch", infer("fix", body(*FIX))),
    http_case("a good request in another order", infer("fix", body(*reversed(FIX)))),
    http_case("a good request of another content type", infer("nob", GOOD, ("Content-Type", "text/plain"))),
    *(http_case(f"body: {name}", infer("nob", document)) for name, document in _DOCUMENTS.items()),
    http_case("unknown model", infer("nope", GOOD)),
    http_case("unknown model, bad body", infer("nope", b"x")),
    http_case("unknown version", infer("nob", GOOD, version="9")),
    http_case("version 0", infer("nob", GOOD, version="0")),
    http_case("version that is no number", infer("nob", GOOD, version="x")),
    http_case("negative version", infer("nob", GOOD, version="-1")),
    http_case("version of 20 digits", infer("nob", GOOD, version="9" * 20)),
    http_case("version just beyond 64 bits", infer("nob", GOOD, version=str(2**63))),
    http_case("version just within 64 bits", infer("nob", GOOD, version=str(2**63 - 1))),
    http_case("decoupled model", infer("streams", body(tensor(datatype="INT32", shape=[1], data=[1])))),
    http_case("decoupled model, bad body", infer("streams", b"x")),
    *(http_case(f"an input without {key}", infer("nob", _without(key))) for key in tensor()),
    *(
        http_case(f"{key} of an input is {_named(value)}", infer("nob", body({**tensor(), key: value})))
        for key in ("name", "datatype", "shape", "data", "parameters")
        for value in _OTHER
    ),
    *(
        http_case(f"{key} is {_named(value)}", infer("nob", body(tensor(), **{key: value})))
        for key in ("id", "outputs", "parameters")
        for value in _OTHER
    ),
    *(
        http_case(f"inputs is {_named(value)}", infer("nob", json.dumps({"inputs": value}).encode()))
        for value in _OTHER
    ),
    *(
        http_case(f"an output that is {_named(value)}", infer("nob", body(tensor(), outputs=[value])))
        for value in _OTHER
    ),
    *(
        http_case(
            f"{key} of an output is {_named(value)}",
            infer("nob", body(tensor(), outputs=[{"name": "OUT0", key: value}])),
        )
        for key in ("name", "parameters")
        for value in _OTHER
    ),
    *(
        http_case(
            f"binary_data is {_named(value)}",
            infer("nob", body(tensor(), outputs=[{"name": "OUT0", "parameters": {"binary_data": value}}])),
        )
        for value in _OTHER
    ),
    *(
        http_case(f"a shape of {_named(value)}", infer("nob", body(tensor(shape=value))))
        for value in ([], [0], [1], [3], [-1], [2, 1], [1, 2], ["2"], [2.0], [None], [[2]], [True], [2**64])
    ),
    *(
        http_case(f"data of {_named(value)}", infer("nob", body(tensor(data=value))))
        for value in (
            [],
            [1],
            [1, 2, 3],
            [[1, 2]],
            [[1], [2]],
            [[[1]], 2],
            [[], 1, 2],
            [[1], [], [2]],
            {"a": 1},
        )
    ),
    *(
        http_case(f"data with {_named(value)}", infer("nob", body(tensor(data=[1, value]))))
        for value in ("2", None, True, {}, {"a": 1}, [], [2], [[2]], [2, 3])
    ),
    *(
        http_case(f"datatype {name}", infer("nob", body(tensor(datatype=name))))
        for name in (
            "INT32",
            "FP64",
            "BYTES",
            "BOOL",
            "FP16",
            "BF16",
            "fp32",
            "",
            "TYPE_FP32",
            "STRING",
            "FP8",
        )
    ),
    http_case("missing input", infer("fix", body(FIX[0]))),
    http_case("no inputs for two", infer("fix", body())),
    http_case("one input too many", infer("nob", body(tensor(), tensor("ZZ")))),
    http_case("an input of another name", infer("nob", body(tensor("ZZ")))),
    http_case("one of two inputs of another name", infer("fix", body(FIX[0], {**FIX[1], "name": "ZZ"}))),
    http_case("the same input twice", infer("fix", body(FIX[0], FIX[0]))),
    http_case("the same input twice for one", infer("nob", body(tensor(), tensor()))),
    http_case("an input without a name", infer("nob", body(tensor("")))),
    http_case("two bad inputs", infer("fix", body(tensor(datatype="INT8"), tensor("IN1", shape=[3])))),
    http_case(
        "a bad output and a bad input", infer("nob", body(tensor(datatype="INT8"), outputs=[{"name": "ZZ"}]))
    ),
    http_case("a bad output and a missing input", infer("fix", body(FIX[0], outputs=[{"name": "ZZ"}]))),
    http_case(
        "a bad parameter and a bad input", infer("nob", body(tensor(shape=5), parameters={"priority": "x"}))
    ),
    http_case(
        "a bad parameter and a bad datatype",
        infer("nob", body(tensor(datatype="INT8"), parameters={"timeout": "x"})),
    ),
    http_case("a bad id and a bad input", infer("nob", body(tensor(shape=5), id=5))),
    http_case("a bad output and bad data", infer("nob", body(tensor(data=[1]), outputs=5))),
    http_case(
        "a batch of 0", infer("fix", body(tensor(shape=[0, 2], data=[]), tensor("IN1", "INT32", [0, 1], [])))
    ),
    http_case(
        "the largest batch",
        infer("fix", body(tensor(shape=[4, 2], data=[1] * 8), tensor("IN1", "INT32", [4, 1], [1] * 4))),
    ),
    http_case(
        "a batch too large",
        infer("fix", body(tensor(shape=[5, 2], data=[1] * 10), tensor("IN1", "INT32", [5, 1], [1] * 5))),
    ),
    http_case("batches that differ", infer("fix", body(tensor(shape=[2, 2], data=[1, 2, 3, 4]), FIX[1]))),
    http_case("no batch dimension", infer("fix", body(tensor(), tensor("IN1", "INT32", [1], [1])))),
    http_case("no dimension for one", infer("fix", body(tensor(shape=[], data=[1]), FIX[1]))),
    http_case("a dimension too many", infer("fix", body(tensor(shape=[1, 2, 1]), FIX[1]))),
    http_case(
        "a wrong shape behind the batch", infer("fix", body(tensor(shape=[1, 3], data=[1, 2, 3]), FIX[1]))
    ),
    http_case(
        "a variable shape",
        infer("variable", body(tensor(datatype="INT32", shape=[1, 2, 3], data=list(range(6))))),
    ),
    http_case(
        "an empty variable shape", infer("variable", body(tensor(datatype="INT32", shape=[0, 2, 3], data=[])))
    ),
    http_case(
        "a wrong variable shape",
        infer("variable", body(tensor(datatype="INT32", shape=[1, 3, 2], data=list(range(6))))),
    ),
    http_case("empty rows", infer("vector", body(tensor(shape=[1, 0], data=[])))),
    http_case("optional input left out", infer("optional", body(tensor(shape=[1, 1], data=[1])))),
    http_case(
        "optional input given",
        infer("optional", body(tensor(shape=[1, 1], data=[1]), tensor("IN1", shape=[1, 1], data=[2]))),
    ),
    http_case("only the optional input", infer("optional", body(tensor("IN1", shape=[1, 1], data=[1])))),
    http_case("no input where one is optional", infer("optional", body())),
    http_case(
        "an unknown input instead of the optional",
        infer("optional", body(tensor(shape=[1, 1], data=[1]), tensor("ZZ", shape=[1, 1], data=[1]))),
    ),
    http_case(
        "only an unknown input beside an optional",
        infer("optional", body(tensor("ZZ", shape=[1, 1], data=[1]))),
    ),
    http_case(
        "too many inputs where one is optional",
        infer("optional", body(*(tensor(name, shape=[1, 1], data=[1]) for name in ("IN0", "IN1", "ZZ")))),
    ),
    http_case(
        "a batch of the optional that differs",
        infer("optional", body(tensor(shape=[1, 1], data=[1]), tensor("IN1", shape=[2, 1], data=[2, 3]))),
    ),
    http_case("one wanted output", infer("fix", body(*FIX, outputs=[{"name": "OUT1"}]))),
    http_case(
        "wanted outputs in another order",
        infer("fix", body(*FIX, outputs=[{"name": "OUT1"}, {"name": "OUT0"}])),
    ),
    http_case(
        "a wanted output twice", infer("fix", body(*FIX, outputs=[{"name": "OUT1"}, {"name": "OUT1"}]))
    ),
    http_case("an unknown output", infer("nob", body(tensor(), outputs=[{"name": "ZZ"}]))),
    http_case("an input wanted as output", infer("nob", body(tensor(), outputs=[{"name": "IN0"}]))),
    http_case(
        "outputs that the model makes in another order",
        infer("reversed", body(*(tensor(name, "INT32", [1], [1]) for name in ("IN0", "IN1")))),
    ),
    http_case(
        "an output that the model does not make",
        infer(
            "reversed",
            body(*(tensor(name, "INT32", [1], [1]) for name in ("IN0", "IN1")), outputs=[{"name": "ABSENT"}]),
        ),
    ),
    http_case(
        "outputs, one of which the model does not make",
        infer(
            "reversed",
            body(
                *(tensor(name, "INT32", [1], [1]) for name in ("IN0", "IN1")),
                outputs=[{"name": "OUT0"}, {"name": "ABSENT"}],
            ),
        ),
    ),
    *(
        http_case(f"the id {_named(value)}", infer("nob", body(tensor(), id=value)))
        for value in ("", "7", 'ä\n"', "x" * 300)
    ),
    http_case("the id in an error", infer("nob", body(tensor(datatype="INT8"), id="7"))),
    http_case("an empty id in an error", infer("nob", body(tensor(datatype="INT8"), id=""))),
    http_case("an odd id in an error", infer("nob", body(tensor(datatype="INT8"), id='ä\n"'))),
    *(
        http_case(
            f"error {kind} of a model, id {id!r}",
            infer("fails", body(tensor(datatype="INT32", shape=[1], data=[kind]), id=id)),
        )
        for kind in (*range(8), 100, 101, 102, 103, 104, 105, 200)
        for id in ("", "7")
    ),
]
