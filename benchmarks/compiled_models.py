"""The part "compiled": a backend in C++, the same file on both servers.

On ours it runs in a worker process, or on a thread of the server, as the name of a model says; the real
server has it in its process.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from load_generator import Load
from tritonpy_sdk.testing.shared_objects import compile_shared_object

SOURCE = Path(__file__).with_name("compiled_identity.cc")
SINGLE = ("identity_cc", "identity_cc_thread")
BATCHED = ("identity_cc_batched", "identity_cc_thread_batched")
MODELS = (*SINGLE, *BATCHED)
BATCH_CLIENTS = 128
"""Two batches of 64 requests, the preferred size: one is collected while the other is answered."""


def build(folder: Path) -> Path:
    """Compile the backend and return its library.

    Raises:
        RuntimeError: there is no compiler for C++, or it refused.
    """
    return compile_shared_object(SOURCE, folder / "libtriton_compiled_identity.so", "-O2")


def loads(protocols: Sequence[str], concurrency: Sequence[int], sizes: Sequence[int]) -> list[Load]:
    """Return the cases: each size, protocol and concurrency, and small requests in batches."""
    single = [
        Load(model, protocol, clients, "INPUT0", str(byte_size // 4), byte_size)
        for byte_size, protocol, clients, model in itertools.product(sizes, protocols, concurrency, SINGLE)
    ]
    batched = [
        Load(model, protocol, BATCH_CLIENTS, "INPUT0", "16", 64)
        for protocol, model in itertools.product(protocols, BATCHED)
    ]
    return single + batched
