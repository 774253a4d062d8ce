"""Turn our `.proto` files into what the package ships: `descriptors.binpb` and the stub `messages.pyi`.

`make protos` runs it after an edit of a `.proto` file; a test fails when that was forgotten. Needs
grpcio-tools, which is a development dependency:

    python core/build_protos.py [DIRECTORY]

Distributions with messages of their own call `build` from a script beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorSet,
)

PROTOS = Path(__file__).resolve().parent / "src" / "tritonpy" / "protos"
SOURCES = ("model_config.proto", "grpc_service.proto", "health.proto", "reflection.proto")

_STUB_HEADER = '''"""The message classes as type checkers see them; `make protos` writes this file."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
    ScalarMap,
)
from google.protobuf.internal.enum_type_wrapper import _EnumTypeWrapper
from google.protobuf.message import Message

_Like: TypeAlias = Mapping[str, Any]  # Any: keyword arguments of the message it stands for
'''

_SCALARS = {
    FieldDescriptorProto.TYPE_DOUBLE: "float",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT64: "int",
    FieldDescriptorProto.TYPE_UINT64: "int",
    FieldDescriptorProto.TYPE_INT32: "int",
    FieldDescriptorProto.TYPE_UINT32: "int",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "str",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_ENUM: "int",
}


def compile_descriptors(
    output: Path, protos: Path | None = None, sources: Sequence[str] = SOURCES
) -> FileDescriptorSet:
    """Compile the sources in `protos`, or the core's, into `output`; return the same descriptors parsed.

    Raises:
        SystemExit: the compiler refused a source; its messages are on standard error.
    """
    from grpc_tools import protoc  # type: ignore[import-not-found, import-untyped, unused-ignore]

    arguments = [
        "protoc",
        f"--proto_path={protos or PROTOS}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        "--include_imports",  # also sorts: a file stands behind what it imports
        f"--descriptor_set_out={output}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    return FileDescriptorSet.FromString(output.read_bytes())


def stub_text(descriptors: FileDescriptorSet) -> str:
    """The text of `messages.pyi` for these files."""
    lines = [_STUB_HEADER]
    files = _without_packages(descriptors)
    for file in files.file:
        for enum in file.enum_type:
            lines += _enum(enum)
        for message in file.message_type:
            lines += [*_message(message), ""]
    return "\n".join(lines).rstrip() + "\n"


def _without_packages(descriptors: FileDescriptorSet) -> FileDescriptorSet:
    """The same with types of fields named as in a stub, without the package that they begin with."""
    files = FileDescriptorSet()
    files.CopyFrom(descriptors)
    packages = sorted((f".{file.package}." for file in files.file), key=len, reverse=True)
    messages = [message for file in files.file for message in file.message_type]
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in message.field:
            package = next((each for each in packages if field.type_name.startswith(each)), "")
            field.type_name = field.type_name.removeprefix(package)
    return files


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"class _{enum.name}Wrapper(_EnumTypeWrapper[int]):"
    yield from (f"    {value.name}: Literal[{value.number}]" for value in enum.value)
    yield ""
    yield f"{enum.name}: _{enum.name}Wrapper"
    yield ""


def _message(message: DescriptorProto) -> Iterator[str]:
    yield f"class {message.name}(Message):"
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    for enum in message.enum_type:
        yield from (f"    {line}".rstrip() for line in _enum(enum))
        yield from (f"    {value.name}: Literal[{value.number}]" for value in enum.value)
    for nested in message.nested_type:
        if nested.name not in entries:
            yield from (f"    {line}".rstrip() for line in _message(nested))
    for field in message.field:
        if not iskeyword(field.name):  # `global`: reached by getattr and setattr only
            yield from (f"    {line}" for line in _attribute(field, entries))
    yield from (f"    {line}" for line in _methods(message, entries))


def _attribute(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> Iterator[str]:
    if field.label != FieldDescriptorProto.LABEL_REPEATED and field.type != FieldDescriptorProto.TYPE_MESSAGE:
        yield f"{field.name}: {_SCALARS[field.type]}"
        return
    yield "@property"  # protobuf refuses assignment to messages and containers
    yield f"def {field.name}(self) -> {_container(field, entries)}: ..."


def _container(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
    entry = _map_entry(field, entries)
    if entry is not None:
        key, value = (_element(part) for part in entry.field)
        is_message = entry.field[1].type == FieldDescriptorProto.TYPE_MESSAGE
        return f"{'MessageMap' if is_message else 'ScalarMap'}[{key}, {value}]"
    if field.label != FieldDescriptorProto.LABEL_REPEATED:
        return _element(field)
    is_message = field.type == FieldDescriptorProto.TYPE_MESSAGE
    return f"Repeated{'Composite' if is_message else 'Scalar'}FieldContainer[{_element(field)}]"


def _methods(message: DescriptorProto, entries: dict[str, DescriptorProto]) -> Iterator[str]:
    if not message.field:
        yield "def __init__(self) -> None: ..."
        return
    yield "def __init__("
    yield "    self,"
    yield "    *,"
    for field in message.field:
        if not iskeyword(field.name):
            yield f"    {field.name}: {_argument(field, entries)} | None = ...,"
    yield ") -> None: ..."
    with_presence = [
        field.name
        for field in message.field
        if field.HasField("oneof_index")
        or (field.type == field.TYPE_MESSAGE and field.label != field.LABEL_REPEATED)
    ]
    oneofs = [oneof.name for oneof in message.oneof_decl]
    if with_presence:
        yield f"def HasField(self, field_name: {_literal(with_presence + oneofs)}) -> bool: ..."
    names = [field.name for field in message.field]
    yield f"def ClearField(self, field_name: {_literal(names + oneofs)}) -> None: ..."
    if len(oneofs) > 1:
        raise NotImplementedError(f"{message.name}: a stub for several oneofs needs overloads")
    for oneof in oneofs:
        members = [field.name for field in message.field if field.HasField("oneof_index")]
        answer = f"{_literal(members)} | None"
        yield f"def WhichOneof(self, oneof_group: {_literal([oneof])}) -> {answer}: ..."


def _argument(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
    entry = _map_entry(field, entries)
    if entry is not None:
        key, value = (_element(part) for part in entry.field)
        return f"Mapping[{key}, {value}]"
    element = _element(field)
    if field.type == FieldDescriptorProto.TYPE_MESSAGE:
        element = f"{element} | _Like"
    elif field.type == FieldDescriptorProto.TYPE_ENUM:
        element = "int | str"
    return f"Iterable[{element}]" if field.label == FieldDescriptorProto.LABEL_REPEATED else element


def _map_entry(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> DescriptorProto | None:
    if field.type != FieldDescriptorProto.TYPE_MESSAGE:
        return None
    return entries.get(field.type_name.rpartition(".")[2])


def _element(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_MESSAGE:
        return field.type_name
    return _SCALARS[field.type]


def _literal(names: list[str]) -> str:
    return f"Literal[{', '.join(repr(name) for name in names)}]".replace("'", '"')


def build(directory: Path, protos: Path = PROTOS, sources: Sequence[str] = SOURCES) -> None:
    """Write both files into `directory`."""
    descriptors = compile_descriptors(directory / "descriptors.binpb", protos, sources)
    (directory / "messages.pyi").write_text(stub_text(descriptors), encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS)
