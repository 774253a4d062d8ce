"""What strangers' bytes cost: work and memory for each byte, of cases that dice put together.

A case is made of few pieces that are repeated many times, since that is what costs: a line without an end, a
million empty fields, a tensor of zeros that is compressed. Each reader takes it as it would from a client.
What it takes is measured as CPU time and peak memory of this process, never by the clock, and has a bound ten
times above what ordinary requests take. A case above it is measured again, and fails if it stays there.

Run by `test_costs.py`, or by hand for longer:

    python tests/fuzz/costs.py http --seed 7 --cases 10000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import io
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tritonpy.admission import Admission
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.frontends.grpc.compression import COMPRESSED, MessageInflation
from tritonpy.frontends.grpc.convert import parse_infer_request as parse_grpc
from tritonpy.frontends.grpc.convert import to_infer_request
from tritonpy.frontends.grpc.wire import field_head
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http import infer
from tritonpy.frontends.http.codec import large_json
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.frontends.http.connection.reader import RequestReader
from tritonpy.frontends.inflation import inflated
from tritonpy.frontends.outputs import References
from tritonpy.model.signature import Signature
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy_backend_python import archive

MEASUREMENTS = 3
MIB = 1024 * 1024
MOST_INFLATED = 2 * MIB


@dataclass(frozen=True)
class Bound:
    """What a case may take: so much whatever its size, and so much for each byte."""

    cpu_s: float
    cpu_us_per_byte: float
    bytes_fixed: int
    bytes_per_byte: float


@dataclass(frozen=True)
class Case:
    """What is sent, and what is done with it.

    Attributes:
        sent: bytes of it.
        byte_size: what they become, within the limit for that, which is what may cost.
        run: reads them.
        words: say what they are.
    """

    sent: int
    byte_size: int
    run: Callable[[], None]
    words: str


REFERENCES = References(SharedMemoryRegions(is_allowed=True))
_NAMES = [name for name in DATATYPES if name != "BF16"]
SIGNATURE = Signature(
    {
        "name": "m",
        "max_batch_size": 4,
        "input": [
            {
                "name": name,
                "data_type": "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}",
                "dims": [-1],
                "optional": True,
            }
            for name in _NAMES
        ],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
    }
)


def repeated(dice: Random, units: list[bytes], most: int) -> bytes:
    """One unit without end, or some, each of them many times or once."""
    if dice.random() < 0.5:
        unit = dice.choice(units)
        return (unit * (most // len(unit) + 1))[:most]
    parts = []
    for _ in range(dice.randint(1, 4)):
        unit = dice.choice(units)
        parts.append(unit * dice.choice((1, 2, 30, most // (3 * len(unit)) + 1)))
    return b"".join(parts)[:most]


# HTTP


class _Receiver:
    """Takes requests until one is refused."""

    def __init__(self) -> None:
        self.reader = RequestReader(self, Admission(0), MIB, HeaderForwarding("^x-(a|b)+$", "--flag"))
        self.is_refused = False

    def on_request(self, request: HttpRequest) -> None: ...

    def on_expectation(self, request: HttpRequest) -> None: ...

    def on_refusal(self, response: bytes) -> None:
        self.is_refused = True
        self.reader.discard()

    def on_lack_of_room(self) -> None: ...


_HEADS = [
    b"",
    b"GET / HTTP/1.1\r\nHost: t\r\n",
    b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    b"GET / HTTP/1.1\r\nHost: t\r\nX: ",
    b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    b"POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n1;x=",
    b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 12000\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 900000\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: t\r\nUpgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 9000\r\n\r\n",
]
_LINES = [
    b"\r\n",
    b"X: ",
    *[b"a"] * 5,
    b"0",
    b" ",
    b"1;",
    b"x=y;",
    b"a:b\r\n",
    b"X-a: y\r\n",
    b"x-ab%d: y\r\n",
    b"1\r\na\r\n",
    b"0001;a\r\nb\r\n",
    b"ff\r\n" + b"z" * 255 + b"\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"/",
]


def http_case(dice: Random) -> Case:
    """Bytes of one connection, in pieces of one size."""
    head = dice.choice(_HEADS)
    piece = dice.choice((1, 1, 7, 1000, 256 * 1024))
    sent = head + repeated(dice, _LINES, 400_000 if piece < 1000 else MIB)

    def run() -> None:
        receiver = _Receiver()
        for start in range(0, len(sent), piece):
            if receiver.is_refused:
                break
            data = memoryview(sent)[start : start + piece]
            view = receiver.reader.view
            if view is None:
                receiver.reader.feed(data)
            else:
                rest = receiver.reader.rest
                taken = min(len(rest), len(data))
                rest[:taken] = data[:taken]
                receiver.reader.body_arrived(taken)
                if taken < len(data):
                    receiver.reader.feed(data[taken:])

    return Case(len(sent), len(sent), run, f"pieces of {piece}: {_short(sent)}")


# gRPC

_FIELDS = [
    b"\x2a\x00",
    b"\x32\x00",
    b"\x22\x00",
    b"\x3a\x00",
    b"\x2a\x02\x2a\x00",
    b"\x2a\x04\x18\x01\x18\x01",
    b"\x22\x04\x0a\x00\x12\x00",
    b"\x78\x01",
    b"\x1a\x00",
    b"\x0a\x01m",
]
_NESTED = [
    b"\x18\x01",
    b"\x22\x00",
    b"\x2a\x00",
    b"\x0a\x00",
    b"\x2a\x02\x42\x00",
    b"\x2a\x02\x10\x01",
    b"\x1a\x02\x01\x01",
]
_CONTENTS = [b"\x42\x00", b"\x10\x01", b"\x0a\x01\x01", b"\x35\x00\x00\x00\x00", b"\x32\x04\x00\x00\x00\x00"]


def grpc_case(dice: Random) -> Case:
    """A message, which may be compressed."""
    kind = dice.randint(0, 3)
    size = dice.choice((1000, 130_000, MIB, 3 * MIB))
    if kind == 0:
        message = repeated(dice, _FIELDS, size)
    elif kind == 3:
        message = field_head(7, size) + bytes(size)
    else:
        inner = repeated(dice, _CONTENTS if kind == 2 else _NESTED, size)
        inner = field_head(5, len(inner)) + inner if kind == 2 else inner
        message = field_head(dice.choice((5, 6)), len(inner)) + inner
    pack = dice.choice((None, None, gzip.compress, zlib.compress))
    sent = pack(message) if pack is not None else message

    def run() -> None:
        async def read() -> None:
            body: bytes | memoryview = sent
            if sent.startswith(COMPRESSED):
                body = await MessageInflation(MOST_INFLATED, Admission(0)).inflate(sent)
            request = to_infer_request(*parse_grpc(body), REFERENCES)[0]
            SIGNATURE.check(request)

        _refusable(lambda: asyncio.run(read()))

    return Case(len(sent), _counted(message), run, f"{'compressed ' if pack else ''}{_short(message)}")


# Patterns

_ATOMS = ["a", r"\w", ".", "[a-z]", "(a|a)", "(a|ab)", "-?", "^", "$", r"\b", "(?i:a)", "[^x]", "x"]
_REPEATS = ["", "*", "+", "?", "{2,9}", "*?"]


def pattern_case(dice: Random) -> Case:
    """Names of headers that a pattern is to find; the pattern itself is the operator's."""
    pattern = ""
    for _ in range(dice.randint(1, 5)):
        pattern = f"({pattern}{dice.choice(_ATOMS)}){dice.choice(_REPEATS)}"
    pattern += dice.choice(("", "$", "!", "-id$"))
    names = [
        (dice.choice((b"a", b"ab", b"a-", b"x", b"\xff")) * 256)[:length]
        for length in range(1, HeaderForwarding.LONGEST_NAME, 3)
    ]
    try:
        forwarding = HeaderForwarding(pattern, "--flag")
    except InvalidArg:
        return pattern_case(dice)

    def run() -> None:
        for name in names:
            forwarding._known.clear()
            forwarding.finds(name)

    size = sum(map(len, names))
    return Case(size, size, run, pattern)


# Archives


def archive_case(dice: Random) -> Case:
    """A packed environment of links, directories and files."""
    sent = _zip(dice) if dice.random() < 0.3 else _tar(dice)

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            packed, target = Path(folder, "packed"), Path(folder, "target")
            packed.write_bytes(sent)
            target.mkdir()
            try:
                archive.extract(packed, target)
            except (archive.BadArchive, OSError):
                pass
            finally:
                shutil.rmtree(target, ignore_errors=True)

    return Case(len(sent), len(sent), run, f"an archive of {len(sent)} bytes")


def _tar(dice: Random) -> bytes:
    file = io.BytesIO()
    part = dice.choice(("d", "d" * 100))
    with tarfile.open(fileobj=file, mode="w") as tar:
        names = ["."]
        for number in range(dice.choice((10, 100, 300))):
            parent = names[-1] if dice.random() < 0.2 else dice.choice(names[-20:])
            member = tarfile.TarInfo(f"{parent}/{part}{number}")
            kind = dice.random()
            if kind < 0.4:
                member.type = tarfile.SYMTYPE
                member.linkname = "/".join(
                    dice.choice(("..", ".", f"{part}{max(0, number - 1)}", f"{part}0", f"{part}{number}"))
                    for _ in range(dice.choice((1, 3, 40)))
                )
                names.append(member.name)
            elif kind < 0.8:
                member.type = tarfile.DIRTYPE
                names.append(member.name)
            elif kind < 0.9:
                member.type, member.linkname = tarfile.LNKTYPE, dice.choice(names)
            tar.addfile(member)
    return file.getvalue()


def _zip(dice: Random) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as packed:
        for number in range(dice.choice((10, 300))):
            depth = dice.choice((1, 3, 30))
            packed.writestr("d/" * depth + str(number), bytes(dice.choice((0, 10, 20_000))))
    return file.getvalue()


# JSON

_VALUES = [
    b"1,",
    b"-1.5e3,",
    b'"a",',
    b'"\\u0000",',
    b'"\\',
    b"[",
    b"[[1],[2]],",
    b"{",
    b'{"a":',
    b'"parameters":{"a":1},',
    b"null,",
    b"NaN,",
    b"1e999,",
    b"9" * 400 + b",",
    b" ",
    b'{"name":"FP32","datatype":"FP32","shape":[1],"data":[1]},',
    b'"inputs":[],',
    b"\xff",
]


def json_case(dice: Random) -> Case:
    """The JSON of an inference request, as it comes or compressed."""
    values = repeated(dice, _VALUES, dice.choice((1000, 60_000, MIB, 2 * MIB)))
    values = values.rstrip(b",") if dice.random() < 0.7 else values
    name = dice.choice(_NAMES)
    text = dice.choice(
        (
            b'{"inputs":[{"name":"%b","datatype":"%b","shape":[1,%d],"data":[%b]}]}'
            % (name.encode(), name.encode(), values.count(b","), values),
            b'{"inputs":[%b]}' % values,
            b'{"inputs":[{"name":"FP32","shape":[%b],"datatype":"FP32","data":[]}]}' % values,
            b'{"inputs":[{"name":"FP32","shape":[1],"datatype":"FP32","data":[1],"parameters":{%b}}]}'
            % values,
            b'{"outputs":[%b],"inputs":[]}' % values,
            values,
        )
    )
    pack = dice.choice((None, None, None, gzip.compress))
    sent = pack(text) if pack is not None else text

    def run() -> None:
        def read() -> None:
            body: bytes | memoryview = text
            if pack is not None:
                body = asyncio.run(inflated(sent, b"gzip", MOST_INFLATED, "--flag", Admission(0)))
            is_large = len(body) > large_json.LARGE
            read = None if is_large else infer.parse_infer_request(body, None, "m", "", REFERENCES)
            if read is None:  # done by the codec's process, whose work counts as well
                document = large_json.put_together(large_json.take_apart(memoryview(body)))
                read = infer.read_document(document, memoryview(b""), "m", "", REFERENCES)
            SIGNATURE.check(read[0])

        _refusable(read)

    return Case(len(sent), _counted(text), run, f"{'compressed ' if pack else ''}{_short(text)}")


def _refusable(read: Callable[[], None]) -> None:
    with contextlib.suppress(TritonError):
        read()


def _short(data: bytes) -> str:
    return f"{len(data)} bytes, {data[:100]!r} … {data[-60:]!r}"


def _counted(data: bytes) -> int:
    return min(len(data), MOST_INFLATED)


TARGETS: dict[str, tuple[Callable[[Random], Case], Bound]] = {
    "http": (http_case, Bound(0.05, 3, 8 * MIB, 20)),
    "grpc": (grpc_case, Bound(0.1, 0.5, 12 * MIB, 30)),
    "patterns": (pattern_case, Bound(0.1, 2, 8 * MIB, 20)),
    "archives": (archive_case, Bound(0.2, 20, 16 * MIB, 20)),
    "json": (json_case, Bound(0.1, 5, 16 * MIB, 100)),
}


def _peak() -> tuple[int, int]:
    """Memory of this process now, and the most since it was reset."""
    values = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(values["VmRSS"].split()[0]) * 1024, int(values["VmHWM"].split()[0]) * 1024


def measure(case: Case) -> tuple[float, int]:
    """CPU time in seconds, and bytes beyond what was held before."""
    Path("/proc/self/clear_refs").write_text("5")
    before, _ = _peak()
    begun = time.process_time()
    case.run()
    cpu_s = time.process_time() - begun
    return cpu_s, _peak()[1] - before


def excess(case: Case, bound: Bound) -> tuple[float, float, str]:
    """How far a case reaches, as parts of its bounds for work and memory, and what was measured."""
    cpu_s, byte_size = measure(case)
    return (
        cpu_s / (bound.cpu_s + bound.cpu_us_per_byte * 1e-6 * case.byte_size),
        byte_size / (bound.bytes_fixed + bound.bytes_per_byte * case.byte_size),
        f"{case.sent} bytes sent, {cpu_s:.3f} s of CPU, {byte_size / MIB:.1f} MiB: {case.words}",
    )


def main() -> int:
    """Measure cases; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=500)
    given = parser.parse_args()
    make, bound = TARGETS[given.target]
    worst = [(0.0, ""), (0.0, "")]
    failed = []
    for number in range(given.cases):
        case = make(Random(f"{given.seed} {number}"))
        reached = excess(case, bound)
        for _ in range(MEASUREMENTS - 1):
            if max(reached[:2]) <= 1:
                break
            reached = min(reached, excess(case, bound), key=lambda each: max(each[:2]))
        if max(reached[:2]) > 1:
            failed.append(f"case {number} of seed {given.seed}: {reached[2]}")
        worst = [max(worst[kind], (reached[kind], reached[2])) for kind in (0, 1)]
    for kind, (part, words) in zip(("work", "memory"), worst, strict=True):
        print(f"{given.target}: the most {kind}, {part:.0%} of its bound: {words}")
    print(*failed, sep="\n", file=sys.stderr)
    print(f"{given.cases} cases of {given.target}, seed {given.seed}: {len(failed)} above a bound")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
