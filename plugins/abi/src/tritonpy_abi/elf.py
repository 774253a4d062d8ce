"""Facts about ELF files before they are opened, and an empty file that has nothing but a name."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TAG = struct.Struct("<qQ")

_IDENTITY = b"\x7fELF\x02\x01"  # 64 bits, the low byte first: all machines that Triton runs on
_SHARED_OBJECT = 3
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ_WRITE = 6
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 1, 4, 5, 6, 10, 11, 14
_PAGE = 0x10000  # the largest there are

_MACHINES = {3: "32-bit x86", 21: "PowerPC", 22: "s390x", 40: "32-bit ARM", 62: "x86-64", 183: "AArch64"}


@dataclass(frozen=True, slots=True)
class Elf:
    """A shared object.

    Attributes:
        machine: the number of the machine that it is made for.
        needed: the libraries that it asks for, by their names.
        byte_size: of the part of the file that is loaded, at least; a shorter file is not whole.
    """

    machine: int
    needed: tuple[str, ...]
    byte_size: int

    @property
    def machine_name(self) -> str:
        """The machine in words."""
        return _MACHINES.get(self.machine, f"the machine that ELF files call {self.machine}")


def read_elf(data: bytes) -> Elf | None:
    """Read a file; None where it is no shared object, or a damaged one: the linker has words for that.

    Of one that was cut off as much is read as there is.
    """
    if not data.startswith(_IDENTITY):
        return None
    try:
        _, _, machine, _, _, table, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
        segments = [_SEGMENT.unpack_from(data, table + index * size) for index in range(count)]
    except struct.error:
        return None
    loaded = (offset + size for kind, _, offset, _, _, size, _, _ in segments if kind == _LOAD)
    byte_size = max(loaded, default=0)
    try:
        needed = tuple(_needed(data, segments))
    except (struct.error, ValueError):
        if byte_size <= len(data):
            return None
        needed = ()
    return Elf(machine, needed, byte_size)


def _needed(data: bytes, segments: list[tuple[int, ...]]) -> list[str]:
    tags = [
        _TAG.unpack_from(data, at)
        for kind, _, offset, _, _, size, _, _ in segments
        if kind == _DYNAMIC
        for at in range(offset, offset + size, _TAG.size)
    ]
    address = dict(tags).get(_STRTAB, 0)
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == _LOAD and start <= address < start + size:
            names = [offset + address - start + value for tag, value in tags if tag == _NEEDED]
            return [data[at : data.index(b"\0", at)].decode(errors="replace") for at in names]
    return []


def empty_library(name: str, machine: int) -> bytes:
    """A shared object that has a name (SONAME) and nothing in it.

    Where one is loaded, the linker takes it for any library of that name that is asked for.

    Args:
        name: the name.
        machine: the number of the machine.
    """
    strings = b"\0" + name.encode() + b"\0"
    symbols = bytes(24)  # there is always a first one, without a name
    chains = struct.pack("<4I", 1, 1, 0, 0)  # it cannot be found, and nothing else can
    at_symbols = _HEADER.size + 3 * _SEGMENT.size
    at_chains = at_symbols + len(symbols)
    at_strings = at_chains + len(chains)
    at_tags = (at_strings + len(strings) + 7) // 8 * 8
    tags = (
        _TAG.pack(_SONAME, 1)
        + _TAG.pack(_HASH, at_chains)
        + _TAG.pack(_STRTAB, at_strings)
        + _TAG.pack(_STRSZ, len(strings))
        + _TAG.pack(_SYMTAB, at_symbols)
        + _TAG.pack(_SYMENT, len(symbols))
        + _TAG.pack(0, 0)
    )
    end = at_tags + len(tags)
    header = _HEADER.pack(
        _IDENTITY + b"\1" + bytes(9),
        *(_SHARED_OBJECT, machine, 1, 0, _HEADER.size, 0, 0, _HEADER.size, _SEGMENT.size, 3, 0, 0, 0),
    )
    segments = (
        # Writable, since linkers turn the addresses in the tags into real ones.
        _SEGMENT.pack(_LOAD, _READ_WRITE, 0, 0, 0, end, end, _PAGE)
        + _SEGMENT.pack(_DYNAMIC, _READ_WRITE, at_tags, at_tags, at_tags, len(tags), len(tags), 8)
        # Without this one linkers make the stacks of all threads executable.
        + _SEGMENT.pack(_STACK, _READ_WRITE, 0, 0, 0, 0, 0, 16)
    )
    content = header + segments + symbols + chains + strings
    return content.ljust(at_tags, b"\0") + tags
