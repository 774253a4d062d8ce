"""What tests bind, and the options of their servers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tritonpy_sdk import LOCAL, Tensor, batch

MOST_FRAME_BYTES = 1 << 20
X = np.array([[1.0, 2.0]], np.float32)


def vector(name, dtype=np.float32, **more):
    return Tensor((-1,), dtype, name, **more)


@batch
def double(x):
    return {"y": x * 2}


def options(token_file, *settings, **more):
    """Options of a server with the frontend on a port that the system chooses."""
    given = {"port": "0", "token-file": str(token_file), **dict(settings)}
    return replace(
        LOCAL,
        frontend_config=tuple(("bind", key, value) for key, value in given.items() if value),
        **more,
    )
