"""HTTP inference requests: numbers and strings of every datatype, as JSON and in binary."""

from __future__ import annotations

import struct

from .bodies import LENGTH, ONE, PAIR, binary, body, http_case, infer, sized, strings, tensor
from .comparison import Case
from .servers import Http

_SIGNED = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64}
_UNSIGNED = {"UINT8": 8, "UINT16": 16, "UINT32": 32, "UINT64": 64}


def _literal(datatype: str, *literals: str, count: int | None = None) -> Http:
    """One input of the model `types`, its data written as they stand here."""
    shape = len(literals) if count is None else count
    name = "STRING" if datatype == "BYTES" else datatype
    text = (
        f'{{"inputs": [{{"name": "IN_{name}", "datatype": "{datatype}", "shape": [{shape}], '
        f'"data": [{", ".join(literals)}]}}]}}'
    )
    return infer("types", text.encode("utf-8", "surrogateescape"))


def _literals(datatype: str, *literals: str) -> list[Case]:
    return [http_case(f"{datatype} {one}", _literal(datatype, one)) for one in dict.fromkeys(literals)]


def _integers() -> list[Case]:
    cases = []
    for datatype, bits in _SIGNED.items():
        most = 2 ** (bits - 1) - 1
        cases += _literals(
            datatype,
            str(most),
            str(-most - 1),
            str(most + 1),
            str(-most - 2),
            "-0",
            "1.0",
            "1.5",
            "1e2",
            "true",
        )
        cases += _literals(datatype, "null", '"1"', "NaN", str(2**63 + 1), str(2**64), str(-(2**64)), "1e400")
    for datatype, bits in _UNSIGNED.items():
        most = 2**bits - 1
        cases += _literals(
            datatype, str(most), str(most + 1), "-1", "-0", "1.0", "1.5", "1e2", "false", "null"
        )
        cases += _literals(datatype, '"1"', str(2**64 + 1), str(2**65), "1e400", "[1]")
    return cases


_FLOATS = (
    *("0", "-0", "-0.0", "1", "0.1", "1e3", "1E+3", "1e-400", "1e400", "-1e400", "3.5e38", "1e300", "1e-45"),
    *("16777217", "0.30000001192092896", "123456789012345678901234567890", str(2**63), str(2**64), "1.7e308"),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "Inf",
        "-Inf",
        "-NaN",
        "nan",
        "inf",
        "+Infinity",
        "true",
        "null",
        '"1"',
    ),
    *(
        "5e-324",
        "2.2250738585072014e-308",
        "1.0000000000000002",
        "0.1e1",
        "1e22",
        "1e21",
        "1e16",
        "1e15",
        "1e-7",
    ),
    *("123456.789", "3.4028234663852886e38", "3.4028235677973366e38", "1e17", "100000000000000000000.0"),
)
_STRINGS = (
    *(
        '""',
        '"a"',
        '"ä"',
        '"\\u00e4"',
        '"\\ud83d\\ude00"',
        '"😀"',
        '"a\\u0000b"',
        '"\\/\\b\\f\\n\\r\\t"',
        "5",
        "null",
    ),
    *("true", "[]", '["a"]', '"\udcff"', '"\udce4\udcff"', '"\\udc80"', '"\\ud800"', '"\x7f"', '"\u2028"'),
)
_BINARY = {
    "BOOL": b"\0\1\2\xff",
    "FP16": struct.pack("<2e", 1.5, -2),
    "FP32": struct.pack("<4f", 1.5, float("nan"), float("inf"), -0.0),
    "FP64": struct.pack("<2d", 0.1, 1e300),
    "INT8": b"\x80\x7f",
    "UINT64": b"\xff" * 8,
}
_SIZES = {"BOOL": 1, "FP16": 2, "FP32": 4, "FP64": 8, "INT8": 1, "UINT64": 8}
_WANT_BINARY = {"parameters": {"binary_data_output": True}}


def _typed(datatype: str, data: bytes, **more: object) -> Http:
    shape = [len(data) // _SIZES[datatype]]
    one = tensor(f"IN_{datatype}", datatype, shape, None, parameters={"binary_data_size": len(data)})
    return binary("types", body(one, **more), data)


def _one_string(data: bytes, shape: object = (1,)) -> Http:
    return sized("one_string", len(data), data, datatype="BYTES", shape=shape)


def _raw(model: str, data: bytes, length: str = "0") -> Http:
    return infer(model, data, (LENGTH, length))


_SIZED = body(tensor(data=None, parameters={"binary_data_size": 8}))
_FIX = (tensor(shape=[1, 2]), tensor("IN1", "INT32", [1, 1], None, parameters={"binary_data_size": 4}))
_JSON_PAIR = body(tensor())

CASES = [
    *_integers(),
    *(case for datatype in ("FP32", "FP64") for case in _literals(datatype, *_FLOATS)),
    *_literals("BOOL", "true", "false", "1", "0", "null", '"true"', "1.0"),
    *_literals("BYTES", *_STRINGS),
    *_literals("FP16", "1", "1.5"),
    http_case("a number too large for 64 bits among too few", _literal("INT32", "1", str(2**63), count=3)),
    http_case("a number too large for its datatype among too few", _literal("INT8", "1", "300", count=3)),
    http_case("a negative number among too few", _literal("UINT8", "1", "-1", count=3)),
    http_case("a negative number behind too many", _literal("UINT8", "1", "-1", count=1)),
    *_literals(
        "FP32", "Infinity.5", "-Infinity.5", "NaN.5", "Infinity5", "Infinitye5", "NaN0", "-Inf.5", "Infi"
    ),
    http_case("many numbers", _literal("FP64", *(str(index / 7) for index in range(300)))),
    http_case("no numbers", _literal("FP32")),
    http_case("no elements, but data", _literal("FP32", "1", "2", count=0)),
    http_case("no elements, but data of a wrong type", _literal("FP32", '"x"', count=0)),
    http_case("no strings", _literal("BYTES")),
    http_case(
        "strings in JSON", infer("strings", body(tensor("IN0", "BYTES", [2, 2], ["a", "", "ccc", "d"])))
    ),
    http_case(
        "strings of another count", infer("strings", body(tensor("IN0", "BYTES", [2, 2], ["a", "b", "c"])))
    ),
    http_case(
        "nested 90 deep",
        infer("nob", body(tensor(data=[1, 2])).replace(b"[1, 2]", b"[" * 90 + b"1, 2" + b"]" * 90)),
    ),
    http_case(
        "nested 300 deep",
        infer("nob", body(tensor(data=[1, 2])).replace(b"[1, 2]", b"[" * 300 + b"1, 2" + b"]" * 300)),
    ),
    http_case(
        "an unknown key nested 300 deep",
        infer("nob", b'{"other": ' + b"[" * 300 + b"]" * 300 + b", " + _JSON_PAIR[1:]),
    ),
    http_case("an unfinished nesting of 3000", infer("nob", b"[" * 3000)),
    *(
        http_case(f"{datatype} in binary", _typed(datatype, data, **_WANT_BINARY))
        for datatype, data in _BINARY.items()
    ),
    *(
        http_case(f"{datatype} in binary, out as JSON", _typed(datatype, data))
        for datatype, data in _BINARY.items()
    ),
    http_case(
        "strings in binary, out as JSON",
        _one_string(strings("ä".encode())),
        _one_string(strings(b"\xff\xfe")),
        _one_string(strings(b'"\\\n\0')),
    ),
    http_case("a good string in binary", _one_string(strings(b"abc"))),
    http_case("an empty string in binary", _one_string(strings(b""))),
    http_case("a string longer than the data", _one_string(struct.pack("<I", 5) + b"ab")),
    http_case("a string of 4 GB", _one_string(b"\xff\xff\xff\xff" + b"ab")),
    http_case("a string's length cut short", _one_string(b"ab")),
    http_case("no string", _one_string(b"")),
    http_case("two strings for one", _one_string(strings(b"a", b"b"))),
    http_case("a string and half a length", _one_string(strings(b"a") + b"\0\0")),
    http_case("a string for two", sized("strings", 5, strings(b"a"), datatype="BYTES", shape=[1, 2])),
    http_case(
        "three strings for two",
        sized("strings", 15, strings(b"a", b"b", b"c"), datatype="BYTES", shape=[1, 2]),
    ),
    http_case("no strings at all", sized("strings", 0, b"", datatype="BYTES", shape=[1, 0])),
    http_case("a batch of no strings", sized("strings", 0, b"", datatype="BYTES", shape=[0, 1])),
    http_case("a good tensor in binary", sized("nob", 8, PAIR)),
    http_case("a tensor too short", sized("nob", 8, PAIR[:4])),
    http_case("no tensor", sized("nob", 8, b"")),
    http_case("a tensor too long", sized("nob", 8, PAIR + b"more")),
    http_case("a size too small for the shape", sized("nob", 4, PAIR[:4])),
    http_case("a size too small for the data", sized("nob", 4, PAIR)),
    http_case("a size too large for the shape", sized("nob", 12, PAIR + b"more")),
    http_case("an enormous size", sized("nob", 2**62, PAIR)),
    http_case("a size beyond 64 bits", sized("nob", 2**64, PAIR)),
    *(
        http_case(f"a size of {value!r}", sized("nob", value, PAIR))
        for value in (-1, 8.0, "8", None, True, [8], {})
    ),
    http_case("a size of 0", sized("nob", 0, b"")),
    http_case("a size of 0 for no elements", sized("vector", 0, b"", shape=[1, 0])),
    http_case("data and a size", binary("nob", body(tensor(parameters={"binary_data_size": 8})), PAIR)),
    http_case(
        "data, a size and a region",
        binary("nob", body(tensor(parameters={"binary_data_size": 8, "shared_memory_region": "r"})), PAIR),
    ),
    http_case("JSON and binary inputs", binary("fix", body(*_FIX), ONE)),
    http_case("JSON and binary inputs, the other way", binary("fix", body(*reversed(_FIX)), ONE)),
    http_case(
        "JSON and binary outputs",
        infer(
            "fix",
            body(
                _FIX[0],
                tensor("IN1", "INT32", [1, 1], [7]),
                outputs=[{"name": "OUT0", "parameters": {"binary_data": True}}, {"name": "OUT1"}],
            ),
        ),
    ),
    http_case(
        "JSON and binary outputs, the other way",
        infer(
            "fix",
            body(
                _FIX[0],
                tensor("IN1", "INT32", [1, 1], [7]),
                outputs=[
                    {"name": "OUT1", "parameters": {"binary_data": True}},
                    {"name": "OUT0", "parameters": {"binary_data": False}},
                ],
            ),
        ),
    ),
    http_case(
        "binary by default, but one",
        infer(
            "fix",
            body(
                _FIX[0],
                tensor("IN1", "INT32", [1, 1], [7]),
                outputs=[{"name": "OUT0", "parameters": {"binary_data": False}}, {"name": "OUT1"}],
                **_WANT_BINARY,
            ),
        ),
    ),
    http_case(
        "binary by default, one named",
        infer(
            "fix",
            body(_FIX[0], tensor("IN1", "INT32", [1, 1], [7]), outputs=[{"name": "OUT1"}], **_WANT_BINARY),
        ),
    ),
    http_case("binary by default", infer("nob", body(tensor(), **_WANT_BINARY))),
    http_case("binary of no elements", infer("vector", body(tensor(shape=[1, 0], data=[]), **_WANT_BINARY))),
    http_case(
        "binary strings", infer("strings", body(tensor("IN0", "BYTES", [1, 2], ["ab", ""]), **_WANT_BINARY))
    ),
    http_case("binary with an id", infer("nob", body(tensor(), id="7", **_WANT_BINARY))),
    http_case("an error where binary is wanted", infer("nob", body(tensor(datatype="INT8"), **_WANT_BINARY))),
    *(
        http_case(
            f"binary_data_output is {value!r}",
            infer("nob", body(tensor(), parameters={"binary_data_output": value})),
        )
        for value in (False, 1, "true", None, [], {})
    ),
    *(
        http_case(f"header length {length!r}", infer("nob", _SIZED + PAIR, (LENGTH, length)))
        for length in (
            "-1",
            "1",
            str(len(_SIZED)),
            str(len(_SIZED) + 1),
            str(len(_SIZED) - 1),
            str(len(_SIZED) + 8),
            str(len(_SIZED) + 9),
            "99999999999999999999",
            "abc",
            "",
            " 5",
            "5 ",
            "+5",
            "0x10",
            "1e2",
            "1.5",
            "00",
            f"0{len(_SIZED)}",
            "-0",
            f"{len(_SIZED)}abc",
            "2147483648",
            "4294967296",
        )
    ),
    http_case("no header length, but binary data", infer("nob", _SIZED + PAIR)),
    http_case("header length of all", infer("nob", _JSON_PAIR, (LENGTH, str(len(_JSON_PAIR))))),
    http_case(
        "header length, but no binary data", infer("nob", _JSON_PAIR + b"abc", (LENGTH, str(len(_JSON_PAIR))))
    ),
    http_case("header length twice", infer("nob", _JSON_PAIR, (LENGTH, str(len(_JSON_PAIR))), (LENGTH, "5"))),
    http_case("a raw request", _raw("nob", PAIR)),
    http_case("a raw request too short", _raw("nob", PAIR[:4])),
    http_case("a raw request too long", _raw("nob", PAIR + PAIR)),
    http_case("an empty raw request", _raw("nob", b"")),
    http_case("a raw request of JSON", _raw("nob", _JSON_PAIR)),
    http_case("a raw request for two inputs", _raw("fix", PAIR)),
    http_case("a raw request for a variable input", _raw("vector", PAIR)),
    http_case("an empty raw request for a variable input", _raw("vector", b"")),
    http_case("a raw request that does not divide", _raw("vector", PAIR[:5])),
    http_case("a raw request for two variable dimensions", _raw("variable", PAIR)),
    http_case("a raw string", _raw("one_string", b"abc")),
    http_case("an empty raw string", _raw("one_string", b"")),
    http_case("a raw string that is no UTF-8", _raw("one_string", b"\xff\0")),
    http_case("a raw string for variable strings", _raw("strings", b"abc")),
    http_case("a raw request where some inputs are optional", _raw("optional", ONE)),
    http_case("a raw request for many optional inputs", _raw("types", ONE)),
    http_case("a raw request to an unknown model", _raw("nope", PAIR)),
    http_case("a raw request to a decoupled model", _raw("streams", ONE)),
    http_case("a raw request to a failing model", _raw("fails", ONE), _raw("fails", struct.pack("<i", 100))),
]
