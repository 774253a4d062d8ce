"""Asks a library all that can be asked of Triton's C API without a server; prints the answers as JSON.

    python answers.py libtritonserver.so [--also-null]

Needs the standard library only. With `--also-null`, arguments that the real library does not survive are
tried too.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from ctypes import (
    CDLL,
    POINTER,
    RTLD_GLOBAL,
    Array,
    byref,
    c_bool,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    cast,
    create_string_buffer,
    string_at,
)
from itertools import count
from typing import Any

Answers = dict[str, Any]

DOCUMENTS = (
    b"",
    b'{"a": 1,  "b":[1.50, "\\u00e9"]}',
    b"{",
    b'{"a":"\xff"}',
    b'{"a":1}\0',
    b"[" * 5000,
)
NAMES = (b"a:b", b"_a", b"1a", b"a-b", b"", b"__a", b"\xff")
NUMBERS = (2.5, -1.0, 0.0, math.inf, math.nan)
KINDS = ("counter", "gauge", "histogram")


class Refused(Exception):
    """An error came back: its code and text."""


class Api:
    """The functions of one library."""

    def __init__(self, path: str) -> None:
        self._lib = CDLL(path, mode=RTLD_GLOBAL)

    def function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        found = getattr(self._lib, name)
        found.restype, found.argtypes = result, arguments
        return found  # type: ignore[no-any-return]

    def call(self, name: str, *arguments: Any) -> None:
        """Call what returns an error; a `Refused` with its code and text where there is one."""
        found = getattr(self._lib, name)
        found.restype, found.argtypes = c_void_p, None
        error = found(*arguments)
        if error:
            raise Refused(*self.error(error))

    def error(self, error: int) -> tuple[int, str, str]:
        code = self.function("TRITONSERVER_ErrorCode", c_int, c_void_p)(error)
        name = self.function("TRITONSERVER_ErrorCodeString", c_char_p, c_void_p)(error)
        text = self.function("TRITONSERVER_ErrorMessage", c_char_p, c_void_p)(error)
        self.function("TRITONSERVER_ErrorDelete", None, c_void_p)(error)
        return code, name.decode(), text.decode(errors="replace")


def attempt(ask: Callable[[], object]) -> object:
    """The answer, or the code and the text of the error."""
    try:
        return ask()
    except Refused as refused:
        return list(refused.args)


def strings(api: Api) -> Answers:
    names = (
        "DataTypeString",
        "MemoryTypeString",
        "ParameterTypeString",
        "InstanceGroupKindString",
        "InferenceTraceLevelString",
        "InferenceTraceActivityString",
    )
    answers: Answers = {}
    for name in names:
        ask = api.function(f"TRITONSERVER_{name}", c_char_p, c_int)
        answers[name] = [ask(number).decode() for number in range(-1, 18)]
    size = api.function("TRITONSERVER_DataTypeByteSize", c_uint32, c_int)
    answers["DataTypeByteSize"] = [size(number) for number in range(-1, 18)]
    number = api.function("TRITONSERVER_StringToDataType", c_int, c_char_p)
    names = (*answers["DataTypeString"], "TYPE_FP32", "fp32", "STRING", "FP3", "FP320", "")
    answers["StringToDataType"] = {name: number(name.encode()) for name in names}
    new = api.function("TRITONSERVER_ErrorNew", c_void_p, c_int, c_char_p)
    answers["errors"] = [api.error(new(code, b"t\xc3\xa9xt")) for code in range(-1, 10)]
    return answers


def versions(api: Api) -> Answers:
    answers: Answers = {}
    for whose in ("TRITONSERVER", "TRITONBACKEND", "TRITONREPOAGENT", "TRITONCACHE"):
        major, minor = c_uint32(99), c_uint32(99)
        api.call(f"{whose}_ApiVersion", byref(major), byref(minor))
        answers[whose] = [major.value, minor.value]
    return answers


def messages(api: Api) -> Answers:
    answers: Answers = {}
    for document in DOCUMENTS:
        message, data, size = c_void_p(), c_void_p(), c_size_t()
        given = create_string_buffer(document, max(1, len(document)))
        api.call("TRITONSERVER_MessageNewFromSerializedJson", byref(message), given, c_size_t(len(document)))
        given.raw = b"?" * len(given)  # it is a copy
        api.call("TRITONSERVER_MessageSerializeToJson", message, byref(data), byref(size))
        answers[repr(document[:40])] = repr(string_at(data.value or 0, size.value)[:40]), size.value
        api.call("TRITONSERVER_MessageDelete", message)
    return answers


def parameters(api: Api) -> Answers:
    new = api.function("TRITONSERVER_ParameterNew", c_void_p, c_char_p, c_int, c_void_p)
    new_bytes = api.function("TRITONSERVER_ParameterBytesNew", c_void_p, c_char_p, c_void_p, c_uint64)
    delete = api.function("TRITONSERVER_ParameterDelete", None, c_void_p)
    value = create_string_buffer(b"abcdefgh12345678")
    made = {str(kind): new(b"name", kind, cast(value, c_void_p)) for kind in range(-1, 7)}
    made |= {"bytes": new_bytes(b"name", cast(value, c_void_p), 3), "nothing": new_bytes(b"name", None, 0)}
    for parameter in filter(None, made.values()):
        delete(parameter)
    return {kind: parameter is not None for kind, parameter in made.items()}


def attributes(api: Api) -> Answers:
    made, found, identity = c_void_p(), c_int(99), c_int64(99)
    size, handle = c_size_t(99), c_void_p(99)
    prefix = "TRITONSERVER_BufferAttributes"
    api.call(f"{prefix}New", byref(made))
    api.call(f"{prefix}MemoryType", made, byref(found))
    api.call(f"{prefix}MemoryTypeId", made, byref(identity))
    api.call(f"{prefix}CudaIpcHandle", made, byref(handle))
    answers: Answers = {"new": [found.value, identity.value, handle.value]}
    ipc = create_string_buffer(bytes(range(64)), 64)
    api.call(f"{prefix}SetMemoryType", made, c_int(2))
    api.call(f"{prefix}SetMemoryTypeId", made, c_int64(-3))
    api.call(f"{prefix}SetByteSize", made, c_size_t(1 << 40))
    api.call(f"{prefix}SetCudaIpcHandle", made, ipc)
    ipc.raw = bytes(64)  # it is a copy
    api.call(f"{prefix}MemoryType", made, byref(found))
    api.call(f"{prefix}MemoryTypeId", made, byref(identity))
    api.call(f"{prefix}ByteSize", made, byref(size))
    api.call(f"{prefix}CudaIpcHandle", made, byref(handle))
    answers["set"] = [found.value, identity.value, size.value, string_at(handle.value or 0, 64).hex()]
    api.call(f"{prefix}Delete", made)
    return answers


def logs(api: Api) -> Answers:
    enabled = api.function("TRITONSERVER_LogIsEnabled", c_bool, c_int)

    def log(level: int) -> None:
        api.call("TRITONSERVER_LogMessage", c_int(level), b"/a/b.cc", c_int(7), b'say "it"\n\t\xff\x01\x7f\\')

    return {
        "enabled": [enabled(level) for level in range(-1, 6)],
        "messages": [attempt(lambda level=level: log(level)) for level in range(-1, 6)],  # type: ignore[misc]
    }


class Metrics:
    """Makes metrics, each family under a name of its own unless it is given one."""

    _numbers = count()

    def __init__(self, api: Api) -> None:
        self.api = api

    def family(self, kind: int, name: bytes | None = None, description: bytes = b"text") -> c_void_p:
        made = c_void_p()
        chosen = b"family_%d" % next(self._numbers) if name is None else name
        self.api.call("TRITONSERVER_MetricFamilyNew", byref(made), c_int(kind), chosen, description)
        return made

    def arguments(self, *bounds: float) -> c_void_p:
        made = c_void_p()
        self.api.call("TRITONSERVER_MetricArgsNew", byref(made))
        given = (c_double * len(bounds))(*bounds)
        self.api.call("TRITONSERVER_MetricArgsSetHistogram", made, given, c_uint64(len(bounds)))
        return made

    def no_arguments(self) -> c_void_p:
        made = c_void_p()
        self.api.call("TRITONSERVER_MetricArgsNew", byref(made))
        return made

    def metric(self, family: c_void_p, *labels: int, arguments: c_void_p | None = None) -> c_void_p:
        made = c_void_p()
        given: Array[c_void_p] = (c_void_p * max(1, len(labels)))(*labels)
        self.api.call(
            "TRITONSERVER_MetricNewWithArgs", byref(made), family, given, c_uint64(len(labels)), arguments
        )
        return made

    def label(self, name: bytes, value: bytes | int) -> int:
        new = self.api.function("TRITONSERVER_ParameterNew", c_void_p, c_char_p, c_int, c_void_p)
        if isinstance(value, int):
            return int(new(name, 1, cast(POINTER(c_int64)(c_int64(value)), c_void_p)))
        return int(new(name, 0, cast(create_string_buffer(value), c_void_p)))

    def value(self, metric: c_void_p) -> object:
        number = c_double(-7)
        self.api.call("TRITONSERVER_MetricValue", metric, byref(number))
        return repr(number.value)

    def change(self, what: str, metric: c_void_p, number: float) -> object:
        """The error, and the value afterwards."""
        error = attempt(lambda: self.api.call(f"TRITONSERVER_Metric{what}", metric, c_double(number)))
        return [error, attempt(lambda: self.value(metric))]

    def any_metric(self, kind: int) -> c_void_p:
        return self.metric(self.family(kind), arguments=self.arguments(1.0, 2.0) if kind == 2 else None)


def metric_values(api: Api) -> Answers:
    metrics = Metrics(api)
    answers: Answers = {}
    for kind, name in enumerate(KINDS):
        metric, found = metrics.any_metric(kind), c_int(99)
        api.call("TRITONSERVER_GetMetricKind", metric, byref(found))
        answers[name] = found.value
        for what in ("Increment", "Set", "Observe"):
            for number in NUMBERS:
                answers[f"{name} {what} {number}"] = metrics.change(what, metric, number)
    return answers


def metric_rules(api: Api) -> Answers:
    metrics = Metrics(api)
    family, metric, bounds = metrics.family, metrics.metric, metrics.arguments

    def make(kind: int, *labels: int, arguments: c_void_p | None = None) -> Callable[[], object]:
        return lambda: metric(family(kind), *labels, arguments=arguments) and "made"

    def kinds() -> list[object]:
        return [attempt(lambda kind=kind: family(kind) and "made") for kind in range(-1, 5)]  # type: ignore[misc]

    def label(name: bytes) -> object:
        return attempt(lambda: metric(family(0), metrics.label(name, b"v")) and "made")

    def name(given: bytes) -> object:
        return attempt(lambda: family(0, b"n" + given if given in (b"_a", b"a:b") else given) and "made")

    def other_kind() -> object:
        family(0, b"one_name")
        return family(0, b"one_name", b"described otherwise") and family(1, b"one_name") and "made"

    def twice() -> object:
        shared = family(0)
        first, second = (metric(shared, metrics.label(b"a", b"1")) for _ in range(2))
        both = [metrics.change("Increment", first, 2.0), metrics.change("Increment", second, 3.0)]
        api.call("TRITONSERVER_MetricDelete", first)
        return [*both, metrics.value(second)]

    def too_early() -> object:
        used = family(1)
        child = metric(used)
        error = attempt(lambda: api.call("TRITONSERVER_MetricFamilyDelete", used))
        still = metrics.change("Set", child, 4.0)
        api.call("TRITONSERVER_MetricDelete", child)
        return [error, still, attempt(lambda: api.call("TRITONSERVER_MetricFamilyDelete", used))]

    return {
        "kinds": kinds(),
        "names": {repr(given): name(given) for given in NAMES},
        "labels": {repr(given): label(given) for given in NAMES},
        "a number as label": attempt(make(0, metrics.label(b"n", 5))),
        "a label twice": attempt(make(0, metrics.label(b"n", b"1"), metrics.label(b"n", b"2"))),
        "a histogram without arguments": attempt(make(2)),
        "a histogram with empty arguments": attempt(make(2, arguments=metrics.no_arguments())),
        "a histogram without bounds": attempt(make(2, arguments=bounds())),
        "bounds that descend": attempt(make(2, arguments=bounds(2.0, 1.0))),
        "bounds that are equal": attempt(make(2, arguments=bounds(1.0, 1.0))),
        "a counter with bounds": attempt(make(0, arguments=bounds(1.0))),
        "a gauge with bounds": attempt(make(1, arguments=bounds(1.0))),
        "another kind of the same name": attempt(other_kind),
        "the same metric twice": attempt(twice),
        "a family deleted too early": attempt(too_early),
    }


def nulls(api: Api) -> Answers:
    """What ends the process where the library does not look."""
    some = c_void_p()
    api.call("TRITONSERVER_BufferAttributesNew", byref(some))
    metrics = Metrics(api)
    calls: dict[str, tuple[Any, ...]] = {
        "TRITONSERVER_ApiVersion": (None, None),
        "TRITONSERVER_MessageNewFromSerializedJson": (byref(c_void_p()), None, c_size_t(3)),
        "TRITONSERVER_MessageSerializeToJson": (None, None, None),
        "TRITONSERVER_MessageDelete": (None,),
        "TRITONSERVER_BufferAttributesByteSize": (some, None),
        "TRITONSERVER_BufferAttributesSetByteSize": (None, c_size_t(1)),
        "TRITONSERVER_BufferAttributesDelete": (None,),
        "TRITONSERVER_LogMessage": (c_int(0), None, c_int(1), None),
        "TRITONSERVER_MetricFamilyNew": (byref(c_void_p()), c_int(0), b"n", None),
        "TRITONSERVER_MetricFamilyDelete": (None,),
        "TRITONSERVER_MetricNew": (byref(c_void_p()), None, None, c_uint64(0)),
        "TRITONSERVER_MetricNewWithArgs": (byref(c_void_p()), metrics.family(0), None, c_uint64(1), None),
        "TRITONSERVER_MetricIncrement": (None, c_double(1)),
        "TRITONSERVER_MetricDelete": (None,),
        "TRITONSERVER_ResponseAllocatorNew": (byref(c_void_p()), None, None, None),
        "TRITONSERVER_ResponseAllocatorSetQueryFunction": (None, None),
        "TRITONSERVER_ResponseAllocatorDelete": (None,),
        "TRITONBACKEND_ModelServer": (None, byref(c_void_p())),
    }
    return {name: attempt(lambda name=name: api.call(name, *calls[name])) for name in calls}  # type: ignore[misc]


def main(path: str, *flags: str) -> None:
    api = Api(path)
    asked = [strings, versions, messages, parameters, attributes, logs, metric_values, metric_rules]
    if "--also-null" in flags:
        asked.append(nulls)
    print(json.dumps({ask.__name__: ask(api) for ask in asked}))


if __name__ == "__main__":
    main(*sys.argv[1:])
