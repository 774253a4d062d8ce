"""Calls every function that a backend may call with arguments that are not good; prints a line before each.

    python calling.py nulls|numbers

The functions are those that the headers for authors declare and the library has. Each is called while a
request is executed, with handles that live; then again with one argument spoilt. Lines are JSON: the call
before it is made, then its outcome, so that whoever reads them knows which one ended the process.
"""

from __future__ import annotations

import ctypes
import json
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tritonpy.plugin import Backend, InferRequest, Model, Tensor
from tritonpy_abi.backends.state_array import StateArray
from tritonpy_abi.build import exported, headers, library, read_sources, unsupported
from tritonpy_abi.shim import open_shim
from tritonpy_abi.strategies.model_handle import ModelHandle
from tritonpy_abi.strategies.request_blocks import RequestBlocks

_DECLARATION = re.compile(r"TRITONPY_EXPORT\s+([^;()]+?)(TRITON(?:BACKEND|SERVER)_\w+)\(([^()]*)\)\s*;")
_INTEGERS = {"int": 32, "bool": 8, "size_t": 64, "double": 0}
_INTEGERS |= {f"{sign}int{bits}_t": bits for sign in ("", "u") for bits in (32, 64)}


@dataclass(frozen=True)
class Parameter:
    """Of a function.

    Attributes:
        type: without `const`, with one blank before its stars.
        name: in the header.
    """

    type: str
    name: str

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith(("*", "Fn_t"))

    @property
    def is_text(self) -> bool:
        return self.type == "char *"


@dataclass(frozen=True)
class Function:
    """One of the API.

    Attributes:
        name: as it is exported.
        result: its type.
        parameters: in their order.
    """

    name: str
    result: str
    parameters: tuple[Parameter, ...]


def _typed(words: str) -> str:
    """A type without `const`, spelt in one way."""
    return re.sub(r"\s*\*", "*", re.sub(r"\bconst\b|\s+", " ", words)).strip().replace("*", " *", 1)


def _parameters(text: str) -> Iterator[Parameter]:
    for each in text.split(","):
        found = re.fullmatch(r"\s*(.*?)(\w+)\s*", each, re.S)
        assert found is not None, text
        if found[1]:  # no "void"
            yield Parameter(_typed(found[1]), found[2])


def declarations() -> str:
    """What the headers say, without comments."""
    files = sorted((headers() / "tritonpy").glob("*.h"))
    return "".join(re.sub(r"/\*.*?\*/", " ", file.read_text(), flags=re.S) for file in files)


def functions() -> list[Function]:
    """Those that a backend may call, and that are there."""
    missing = {*unsupported(read_sources(headers()))}
    names = {*exported()} - missing
    return [
        Function(name, _typed(result), tuple(_parameters(parameters)))
        for result, name, parameters in _DECLARATION.findall(declarations())
        if name in names
    ]


def handles() -> set[str]:
    """The opaque types."""
    return {*re.findall(r"typedef struct (TRITON\w+) \1;", declarations())}


_REQUEST, _QUESTION = 0, 3
"""Kinds of `TRITONPY_Call`."""


class Bench:
    """A backend that is these callbacks, and a request that it executes."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL(str(library()))
        self._shim = open_shim()
        self._kept: list[Any] = []
        self._attributes = ctypes.create_string_buffer(256)
        self._todo: Callable[[], None] = lambda: None
        self._request = self._instance = 0
        ffi, lib = self._shim.ffi, self._shim.lib
        execute = ffi.callback("void *(uintptr_t, uintptr_t *, uint32_t)", self._execute)
        initialize = ffi.callback("void *(uintptr_t)", self._initialize)
        self._alive = dict.fromkeys(("backend", "model", "instance"), 0)
        functions = [ffi.NULL] * lib.TRITONPY_BACKEND_FUNCTION_COUNT
        functions[6] = ffi.cast("void *", execute)
        functions[2] = ffi.cast("void *", initialize)
        self._kept += [execute, initialize]
        backend, model, instance = (
            ffi.new(f"{kind} **")
            for kind in ("TRITONBACKEND_Backend", "TRITONPY_ServedModel", "TRITONBACKEND_ModelInstance")
        )
        config = {
            "name": "m",
            "input": [{"name": "name", "data_type": "TYPE_INT32", "dims": [1]}],
            "output": [{"name": "name", "data_type": "TYPE_INT32", "dims": [1]}],
            "sequence_batching": {
                "state": [
                    {"input_name": "in", "output_name": "name", "data_type": "TYPE_INT32", "dims": [-1]}
                ]
            },
        }
        described = Model("m", 1, config, Path("/m"), Backend("b"))
        self._shim.check(lib.TRITONPY_BackendOpen(functions, b"b", b"/b", b"{}", backend))
        handle = ModelHandle(ffi, described)
        server = self._server = lib.TRITONPY_ServerNew()
        threading.Thread(target=self._serve, daemon=True).start()
        self._shim.check(lib.TRITONPY_ModelOpen(backend[0], handle.description, server, model))
        states = StateArray(ffi, described)
        lib.TRITONPY_ModelSettle(model[0], b"{}", False, states.array, len(states.array))
        texts = {"name": ffi.new("char[]", b"i"), "policy": ffi.new("char[]", b"{}")}
        opened = ffi.new("TRITONPY_Instance *", {**texts, "kind": 1})
        self._shim.check(lib.TRITONPY_InstanceOpen(model[0], opened, instance))
        self._alive["backend"] = int(ffi.cast("uintptr_t", backend[0]))
        self._alive["server"] = int(ffi.cast("uintptr_t", server))
        self._alive["instance"] = int(ffi.cast("uintptr_t", instance[0]))
        self._served, self._opened = model[0], instance[0]
        self._blocks = RequestBlocks(ffi, described)

    def _serve(self) -> None:
        """Answer every question with the same, and every request with an error."""
        ffi, lib, server = self._shim.ffi, self._shim.lib, self._server
        call = ffi.new("TRITONPY_Call *")
        text = ffi.new("char[]", b"no")
        refusal = ffi.new("TRITONPY_Called *", {"is_final": True, "has_response": True, "has_error": True})
        refusal.error_code, refusal.error = 5, text
        while lib.TRITONPY_ServerTake(server, call):
            if call.kind == _REQUEST:
                lib.TRITONPY_ServerLetGo(server, call.tag)
                lib.TRITONPY_ServerRespond(server, call.tag, refusal)
            elif call.kind == _QUESTION:
                lib.TRITONPY_ServerAnswer(server, call.tag, b"{}", 2, 1)

    def _initialize(self, model: int) -> Any:
        self._alive["model"] = model
        return self._shim.ffi.NULL

    def _execute(self, _: int, requests: Any, __: int) -> Any:
        self._request = requests[0]
        self._todo()
        # The request stays the server's, unless the call has taken it.
        return self._shim.ffi.cast("void *", self.new_error())

    def execute(self, todo: Callable[[], None]) -> None:
        """Do something while a request is executed."""
        self._todo = todo
        tensor = Tensor.from_numpy("name", np.array([1], np.int32))
        block = self._blocks.fill(InferRequest("m", {"name": tensor}, id="1", parameters={"one": 1}))
        texts = [self._shim.ffi.new("char[]", text) for text in (b"m", b"1", b"")]
        trace = self._shim.ffi.new("TRITONPY_Trace *", (1, 0, 1, *texts))
        block[0].trace = trace
        lib, event = self._shim.lib, self._shim.ffi.new("TRITONPY_Event *")
        lib.TRITONPY_ErrorDelete(lib.TRITONPY_InstanceExecute(self._opened, [block[0]], [1], 1))
        events = lib.TRITONPY_ModelEvents(self._served)
        while lib.TRITONPY_EventsTake(events, event):
            lib.TRITONPY_EventEnd(event)

    def call(self, function: Function, arguments: list[Any]) -> Any:
        """Call; an error comes back as its code and text."""
        found = getattr(self.lib, function.name)
        is_error = function.result == "TRITONSERVER_Error *" and not function.name.endswith("ErrorNew")
        found.restype = ctypes.c_void_p if function.result.endswith("*") else ctypes.c_int64
        result = found(*arguments)
        if not is_error or not result:
            return None
        return self._ended(result)

    def _ended(self, error: int) -> list[Any]:
        shim = self._shim
        raised = shim.error(shim.ffi.cast("TRITONSERVER_Error *", error))
        return [raised.code.name, raised.message]

    # ---- handles, each made anew ----

    def _made(self, name: str, *arguments: Any) -> int:
        out = ctypes.c_void_p()
        function = getattr(self.lib, name)
        function.restype = ctypes.c_void_p
        error = function(ctypes.byref(out), *arguments)
        assert not error, (name, self._ended(error))
        assert out.value
        return out.value

    def _got(self, name: str, *arguments: Any) -> int:
        out = ctypes.c_void_p()
        function = getattr(self.lib, name)
        function.restype = ctypes.c_void_p
        error = function(*arguments, ctypes.byref(out))
        assert not error, (name, self._ended(error))
        assert out.value
        return out.value

    def new_error(self) -> int:
        function = self.lib.TRITONSERVER_ErrorNew
        function.restype = ctypes.c_void_p
        return int(function(1, b"made"))

    def _parameter(self) -> int:
        function = self.lib.TRITONSERVER_ParameterNew
        function.restype = ctypes.c_void_p
        return int(function(b"name", 0, b"value"))

    def _output(self) -> int:
        shape = (ctypes.c_int64 * 1)(1)
        response, out = ctypes.c_void_p(self.handle("TRITONBACKEND_Response")), ctypes.c_void_p()
        self.lib.TRITONBACKEND_ResponseOutput(response, ctypes.byref(out), b"name", 8, shape, 1)
        assert out.value
        return out.value

    def _statistics(self) -> int:
        """Statistics of a response, that are whole."""
        name = "TRITONBACKEND_ModelInstanceResponseStatistics"
        made = self._made(f"{name}New")
        for what, value in (
            ("ModelInstance", ctypes.c_void_p(self._alive["instance"])),
            ("ResponseFactory", ctypes.c_void_p(self.handle("TRITONBACKEND_ResponseFactory"))),
            ("ResponseStart", ctypes.c_uint64(1)),
            ("ResponseEnd", ctypes.c_uint64(2)),
        ):
            getattr(self.lib, f"{name}Set{what}")(ctypes.c_void_p(made), value)
        return made

    def _state(self) -> int:
        request, out = ctypes.c_void_p(self._request), ctypes.c_void_p()
        shape = (ctypes.c_int64 * 1)(1)
        self.lib.TRITONBACKEND_StateNew(ctypes.byref(out), request, b"name", 8, shape, 1)
        assert out.value
        return out.value

    def _family(self, kind: int = 1) -> int:
        return self._made("TRITONSERVER_MetricFamilyNew", kind, b"made", b"description")

    def _made_by_server(self, name: str) -> int:
        return self._got(name, ctypes.c_void_p(self._alive["server"]))

    def _allocator(self) -> int:
        # Nothing is allocated: all responses are errors.
        any_function = ctypes.cast(self.lib.TRITONSERVER_ErrorNew, ctypes.c_void_p)
        return self._made("TRITONSERVER_ResponseAllocatorNew", any_function, any_function, None)

    def _inference_request(self) -> int:
        server = ctypes.c_void_p(self._alive["server"])
        return self._made("TRITONSERVER_InferenceRequestNew", server, b"other", ctypes.c_int64(-1))

    def _inference_response(self) -> int:
        """That of a request which the server refuses."""
        request, server = ctypes.c_void_p(self._inference_request()), ctypes.c_void_p(self._alive["server"])
        responses: queue.SimpleQueue[int] = queue.SimpleQueue()
        callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
        on_release = callback(lambda _, flags, userp: None)
        on_response = callback(lambda response, flags, userp: responses.put(response))
        self._kept += [on_release, on_response]
        lib = self.lib
        assert not lib.TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, None)
        allocator = ctypes.c_void_p(self._allocator())
        assert not lib.TRITONSERVER_InferenceRequestSetResponseCallback(
            request, allocator, None, on_response, None
        )
        assert not lib.TRITONSERVER_ServerInferAsync(server, request, None)
        return responses.get(timeout=30)

    def memory(self) -> int:
        """A byte of the memory manager."""
        manager = ctypes.c_void_p(self.handle("TRITONBACKEND_MemoryManager"))
        out = ctypes.c_void_p()
        one = ctypes.c_uint64(1)
        self.lib.TRITONBACKEND_MemoryManagerAllocate(manager, ctypes.byref(out), 0, ctypes.c_int64(0), one)
        assert out.value
        return out.value

    def handle(self, kind: str) -> int:
        """A live handle of a type.

        Raises:
            KeyError: nobody has said how it is made.
        """
        request = ctypes.c_void_p(self._request)
        makers: dict[str, Callable[[], int]] = {
            # Zeroes are one without any.
            "TRITONBACKEND_BackendAttribute": lambda: ctypes.addressof(self._attributes),
            "TRITONBACKEND_Backend": lambda: self._alive["backend"],
            "TRITONBACKEND_Model": lambda: self._alive["model"],
            "TRITONBACKEND_ModelInstance": lambda: self._alive["instance"],
            "TRITONBACKEND_Request": lambda: self._request,
            "TRITONBACKEND_Input": lambda: self._got("TRITONBACKEND_RequestInputByIndex", request, 0),
            "TRITONBACKEND_Output": self._output,
            "TRITONBACKEND_Response": lambda: self._made("TRITONBACKEND_ResponseNew", request),
            "TRITONBACKEND_ResponseFactory": lambda: self._made("TRITONBACKEND_ResponseFactoryNew", request),
            "TRITONBACKEND_State": self._state,
            "TRITONSERVER_InferenceTrace": lambda: self._got("TRITONBACKEND_RequestTrace", request),
            "TRITONBACKEND_ModelInstanceResponseStatistics": self._statistics,
            "TRITONBACKEND_MemoryManager": lambda: self._got(
                "TRITONBACKEND_BackendMemoryManager", ctypes.c_void_p(self._alive["backend"])
            ),
            "TRITONSERVER_BufferAttributes": lambda: self._made("TRITONSERVER_BufferAttributesNew"),
            "TRITONSERVER_Error": self.new_error,
            "TRITONSERVER_Message": lambda: self._made(
                "TRITONSERVER_MessageNewFromSerializedJson", b"{}", ctypes.c_size_t(2)
            ),
            "TRITONSERVER_Metric": lambda: self._made(
                "TRITONSERVER_MetricNew", ctypes.c_void_p(self._family()), None, ctypes.c_uint64(0)
            ),
            "TRITONSERVER_MetricArgs": lambda: self._made("TRITONSERVER_MetricArgsNew"),
            "TRITONSERVER_MetricFamily": self._family,
            "TRITONSERVER_Parameter": self._parameter,
            "TRITONSERVER_InferenceRequest": self._inference_request,
            "TRITONSERVER_InferenceResponse": self._inference_response,
            "TRITONSERVER_Metrics": lambda: self._made_by_server("TRITONSERVER_ServerMetrics"),
            "TRITONSERVER_ResponseAllocator": self._allocator,
            "TRITONSERVER_Server": lambda: self._alive["server"],
        }
        return makers[kind]()


def good(bench: Bench, function: Function, parameter: Parameter, kinds: set[str]) -> Any:
    """An argument that a function can use."""
    stem = parameter.type.removesuffix(" *")
    if parameter.is_text:
        return b"name"
    if parameter.is_pointer and stem in kinds:
        return ctypes.c_void_p(bench.handle(stem))
    if parameter.type in ("TRITONSERVER_Parameter **", "TRITONSERVER_BufferAttributes **"):
        return (ctypes.c_void_p * 1)(bench.handle(parameter.type.removesuffix(" **")))  # an array, or a place
    if function.name == "TRITONBACKEND_MemoryManagerFree" and parameter.name == "buffer":
        return ctypes.c_void_p(bench.memory())
    if parameter.is_pointer:
        return ctypes.create_string_buffer(256)
    return number(parameter, 0 if parameter.name in ("index", "memory_type", "memory_type_id") else 1)


def number(parameter: Parameter, value: int) -> Any:
    """An argument that is a number; those that have no type of C are enumerations."""
    kinds: dict[int, Any] = {8: ctypes.c_bool, 32: ctypes.c_uint32, 64: ctypes.c_uint64}
    bits = _INTEGERS.get(parameter.type, 32)
    return ctypes.c_double(value) if bits == 0 else kinds[bits](value)


def spoilt_nulls(function: Function) -> Iterator[tuple[str, dict[str, Any]]]:
    """Nothing spoilt, each pointer NULL, all of them NULL."""
    pointers = [parameter.name for parameter in function.parameters if parameter.is_pointer]
    yield "", {}
    for name in pointers:
        yield name, {name: None}
    yield "*", dict.fromkeys(pointers)


_READ = ("json", "bytes", "shape", "bounds", "labels", "parameters", "device_ids")
_COUNTS = ("count", "byte_size", "dim_count", "label_count", "parameter_count", "id_count")
"""What a function reads as much of as another argument says: it cannot know better."""


def spoilt_numbers(function: Function) -> Iterator[tuple[str, dict[str, Any]]]:
    """Numbers that are none of their enumeration, too large or negative."""
    reads = any(parameter.name in _READ for parameter in function.parameters)
    for parameter in function.parameters:
        if parameter.is_pointer or (reads and parameter.name in _COUNTS):
            continue
        for value in (0, -1, 99, 2**31, 2**32 - 1, 2**63 - 1):
            yield f"{parameter.name} {value}", {parameter.name: number(parameter, value)}


def attempt(bench: Bench, kinds: set[str], function: Function, spoilt: dict[str, Any]) -> Any:
    """Call a function while a request is executed; an error as its code and text, None for none."""
    outcome: list[Any] = []
    failure: list[Exception] = []

    def call() -> None:
        try:
            given = [
                spoilt[parameter.name]
                if parameter.name in spoilt
                else good(bench, function, parameter, kinds)
                for parameter in function.parameters
            ]
            outcome.append(bench.call(function, given))
        except Exception as exc:  # which has no way through the library
            failure.append(exc)

    bench.execute(call)
    if failure:
        raise failure[0]
    return outcome[0]


def main(table: str) -> None:
    bench = Bench()
    kinds = handles()
    spoilt = {"nulls": spoilt_nulls, "numbers": spoilt_numbers}[table]
    for function in functions():
        for what, arguments in spoilt(function):
            print(json.dumps([function.name, what]), flush=True)
            print(json.dumps(attempt(bench, kinds, function, arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
