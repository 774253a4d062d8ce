"""HTTP requests to generate and generate_stream, and compressed ones."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

from .bodies import PAIR, body, http_case, infer, sized, tensor
from .servers import Http

GOOD = body(tensor())
_COMPRESSED = gzip.compress(GOOD, mtime=0)
_SIZED = sized("nob", 8, PAIR)
_ACCEPTED = (
    *(
        "gzip",
        "deflate",
        "gzip, deflate",
        "deflate, gzip",
        "identity",
        "*",
        "br",
        "gzip;q=0",
        "gzip;q=0.5, deflate",
    ),
    *(
        "gzip;q=0.5, deflate;q=0.5",
        "identity;q=0.5, gzip;q=0.1",
        "GZIP",
        "gzip;q=abc",
        "",
        "gzip;q=1.5",
        "gzip ;q=1",
    ),
    *("deflate;q=0.1", "identity, gzip", "identity;q=0, gzip;q=0.2", "x-gzip", "gzip;level=9"),
)
_ENCODED = {
    "gzip": _COMPRESSED,
    "deflate": zlib.compress(GOOD),
    "identity": GOOD,
    "": GOOD,
    "br": GOOD,
    "GZIP": _COMPRESSED,
    "gzip, deflate": _COMPRESSED,
    "x-gzip": _COMPRESSED,
}


def _generate(model: str, document: Any, *headers: tuple[str, str], streams: bool = False) -> Http:
    sent = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Http("POST", f"/v2/models/{model}/generate{'_stream' if streams else ''}", sent, headers)


CASES = [
    *(
        http_case(f"generate{'_stream' * streams} {name}", _generate(model, document, streams=streams))
        for streams in (False, True)
        for name, model, document in (
            ("a good request", "told", {"IN0": 0}),
            ("with an array", "told", {"IN0": [0]}),
            ("with parameters", "told", {"IN0": 0, "a": 1, "b": "x", "c": True}),
            ("with an object of parameters", "told", {"IN0": 0, "parameters": {"a": 1, "sequence_id": 5}}),
            ("with an id", "told", {"IN0": 0, "id": "7"}),
            ("with an id that is no string", "told", {"IN0": 0, "id": 7}),
            ("with priority and timeout", "told", {"IN0": 0, "priority": 1, "timeout": 5}),
            ("whose parameters are no object", "told", {"IN0": 0, "parameters": 5}),
            ("with an input among the parameters", "told", {"parameters": {"IN0": 0}}),
            ("with an input in both places", "told", {"IN0": 0, "parameters": {"IN0": 1}}),
            ("with response parameters", "told", {"IN0": 1}),
            ("without the input", "told", {}),
            ("with a null parameter", "told", {"IN0": 0, "a": None}),
            ("with an array as parameter", "told", {"IN0": 0, "a": [1]}),
            ("with an object as parameter", "told", {"IN0": 0, "a": {"b": 1}}),
            ("with a float parameter", "told", {"IN0": 0, "a": 1.5}),
            ("with too many elements", "told", {"IN0": [0, 1]}),
            ("with a nested array", "told", {"IN0": [[0]]}),
            ("with no element", "told", {"IN0": []}),
            ("with a string for a number", "told", {"IN0": "x"}),
            ("with null for a number", "told", {"IN0": None}),
            ("with an object for a number", "told", {"IN0": {}}),
            ("with a float for an integer", "told", {"IN0": 1.5}),
            ("with a reserved name", "told", {"IN0": 0, "triton_x": 1}),
            ("of a pair", "nob", {"IN0": [1, 2]}),
            ("of a batch", "fix", {"IN0": [1, 2], "IN1": 5}),
            ("of a batch of two", "fix", {"IN0": [1, 2, 3, 4], "IN1": [5, 6]}),
            ("that does not divide", "fix", {"IN0": [1, 2, 3], "IN1": 5}),
            ("of a variable shape", "vector", {"IN0": [1, 2, 3]}),
            ("of a variable shape, a scalar", "vector", {"IN0": 1}),
            ("of two variable dimensions", "variable", {"IN0": [1, 2, 3, 4]}),
            ("of strings", "strings", {"IN0": ["a", "ä"]}),
            ("of a string", "one_string", {"IN0": "a"}),
            ("of a boolean for a string", "one_string", {"IN0": True}),
            ("of an unknown model", "nope", {"IN0": 1}),
            ("with one response", "streams", {"IN0": [5]}),
            ("with no response", "streams", {"IN0": []}),
            ("with two responses", "streams", {"IN0": [5, 6]}),
            ("with an error", "streams", {"IN0": [-1]}),
            ("with a response and an error", "streams", {"IN0": [5, -1]}),
            ("with an error and a response", "streams", {"IN0": [-1, 5]}),
            *((f"with error {kind}", "fails", {"IN0": kind}) for kind in (0, 1, 2, 3, 4, 5, 6, 7, 100)),
            ("of nothing", "told", b""),
            ("of no JSON", "told", b"x"),
            ("of an array", "told", b"[]"),
            ("of null", "told", b"null"),
            ("of a number", "told", b"5"),
            ("with a key twice", "told", b'{"IN0": 0, "IN0": 1}'),
            ("with text behind", "told", b'{"IN0": 0} x'),
            ("wanting an output", "fix", {"IN0": [1, 2], "IN1": 5, "outputs": ["OUT0"]}),
            ("with FP16", "types", {"IN_FP16": 1}),
            (
                "with all kinds of numbers",
                "types",
                {
                    "IN_BOOL": [True, False],
                    "IN_UINT64": [2**64 - 1],
                    "IN_FP64": [0.1, 1e300],
                    "IN_INT8": [-128],
                },
            ),
        )
    ),
    http_case(
        "generate of a version",
        Http("POST", "/v2/models/told/versions/1/generate", b'{"IN0": 0}'),
        Http("POST", "/v2/models/told/versions/9/generate", b'{"IN0": 0}'),
    ),
    http_case(
        "generate, compressed",
        _generate("told", gzip.compress(b'{"IN0": 0}', mtime=0), ("Content-Encoding", "gzip")),
    ),
    http_case(
        "generate, not compressed and said so",
        _generate("told", {"IN0": 0}, ("Content-Encoding", "identity")),
    ),
    http_case("generate, compression accepted", _generate("told", {"IN0": 0}, ("Accept-Encoding", "gzip"))),
    *(
        http_case(f"accepted encodings {accepted!r}", infer("nob", GOOD, ("Accept-Encoding", accepted)))
        for accepted in _ACCEPTED
    ),
    http_case(
        "a compressed binary response",
        infer("nob", body(tensor(), parameters={"binary_data_output": True}), ("Accept-Encoding", "gzip")),
    ),
    http_case(
        "an error where compression is accepted",
        infer("nob", b"x", ("Accept-Encoding", "gzip")),
        infer("fails", body(tensor("IN0", "INT32", [1], [2])), ("Accept-Encoding", "gzip")),
    ),
    http_case(
        "metadata where compression is accepted",
        Http("GET", "/v2/models/nob", headers=(("Accept-Encoding", "gzip"),)),
    ),
    *(
        http_case(f"content encoding {encoding!r}", infer("nob", sent, ("Content-Encoding", encoding)))
        for encoding, sent in _ENCODED.items()
    ),
    http_case("compressed data cut short", infer("nob", _COMPRESSED[:-12], ("Content-Encoding", "gzip"))),
    http_case("no compressed data", infer("nob", b"", ("Content-Encoding", "gzip"))),
    http_case("data that are not compressed", infer("nob", GOOD, ("Content-Encoding", "gzip"))),
    http_case("gzip called deflate", infer("nob", _COMPRESSED, ("Content-Encoding", "deflate"))),
    http_case(
        "two compressed members",
        infer(
            "nob",
            gzip.compress(GOOD[:9], mtime=0) + gzip.compress(GOOD[9:], mtime=0),
            ("Content-Encoding", "gzip"),
        ),
    ),
    http_case(
        "deflate without its header", infer("nob", zlib.compress(GOOD)[2:-4], ("Content-Encoding", "deflate"))
    ),
    http_case(
        "compressed both ways",
        infer("nob", _COMPRESSED, ("Content-Encoding", "gzip"), ("Accept-Encoding", "deflate")),
    ),
    http_case("a compressed request to an unknown model", infer("nope", b"x", ("Content-Encoding", "br"))),
]

CASES += [
    http_case(
        "compressed binary data",
        Http(
            "POST",
            _SIZED.path,
            gzip.compress(_SIZED.body, mtime=0),
            (*_SIZED.headers, ("Content-Encoding", "gzip")),
        ),
    ),
    http_case(
        "a compressed raw request",
        infer(
            "nob",
            gzip.compress(PAIR, mtime=0),
            ("Inference-Header-Content-Length", "0"),
            ("Content-Encoding", "gzip"),
        ),
    ),
]
