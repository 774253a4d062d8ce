"""Cache keys: equal for requests that must get equal answers, and for no others.

A key covers the model, its version and its generation; the inputs, sorted by name, with datatype, shape and
bytes; which outputs are wanted; and the custom parameters. It leaves out what only says how a request
travels: its id, priority and timeout. Triton's key covers names and bytes of inputs alone, so that there
[1,4] and [2,2] with the same bytes get one answer.

The hash is XXH3 with 128 bits: 64 bytes take 0.2 µs and a mebibyte 25 µs, where BLAKE2b takes 0.5 µs and
1.2 ms, on the loop, which serves all clients. It is no cryptographic hash: with its seed an attacker can
construct two inputs with one key, and could plant an answer for others. So the seed is made from the model's
generation, which no client knows.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import xxhash

from tritonpy.buffers import MemoryType
from tritonpy.cache.entry import LAYOUT
from tritonpy.errors import TritonError
from tritonpy.request import InferRequest


class CacheKey(NamedTuple):
    """The name of one entry.

    Attributes:
        text: what a cache is asked for: `<model>:<version>:<32 hexadecimal digits>`.
        digest: the digits as bytes; an entry carries them, so that one that was mixed up is seen.
        model: `<model>:<version>`, for the log.
    """

    text: str
    digest: bytes
    model: str


class KeyMaker:
    """Makes the keys of one loaded model version.

    Args:
        name: the model.
        version: its version.
        generation: differs between loads whose answers may differ, also between models of one name in several
            repositories; kept from clients.
    """

    def __init__(self, name: str, version: str, generation: bytes) -> None:
        # What another layout has written is no entry for this one: they do not take each other's places.
        identity = repr((LAYOUT, name, version, generation)).encode()
        self._identity = hashlib.blake2b(identity, digest_size=24).digest()
        self._seed = int.from_bytes(self._identity[:8], "little")
        self._model = f"{name}:{version}"

    def make(self, request: InferRequest) -> CacheKey | None:
        """The key of a checked request; None for one whose inputs cannot be read here."""
        described: list[tuple[str, str, tuple[int, ...], int]] = []
        parts: list[bytes | bytearray | memoryview] = []
        for name, tensor in sorted(request.inputs.items()):
            if tensor.memory_type is MemoryType.GPU:
                return None
            try:
                data = tensor.wire()
            except TritonError:  # a region that is gone: the model's own reading tells its client
                return None
            described.append((name, tensor.datatype, tensor.shape, tensor.byte_size))
            parts.append(data)
        wanted = request.requested_outputs
        # The representation of a tuple is never the beginning of another's, and it tells 1, True, 1.0 and "1"
        # apart; sizes stand in it, so bytes of neighbours cannot be mistaken for each other's.
        head = (
            self._identity,
            described,
            None if wanted is None else sorted(set(wanted)),
            sorted(request.parameters.items()),
        )
        hasher = xxhash.xxh3_128(repr(head).encode(), seed=self._seed)
        for part in parts:
            hasher.update(part)
        return CacheKey(f"{self._model}:{hasher.hexdigest()}", hasher.digest(), self._model)
