"""What a server in this process keeps, read where it is written: on its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tritonpy.server import Server
from tritonpy_sdk.testing import DEADLINE_S

Value = TypeVar("Value")


def on_loop(server: Server, read: Callable[[], Value]) -> Value:
    """What `read` returns on the server's loop.

    A client has its answer while the server still counts it. Whoever looks from another thread at once may
    come too early; the loop does not read before it has counted.
    """

    async def there() -> Value:
        return read()

    return asyncio.run_coroutine_threadsafe(there(), server.loop).result(DEADLINE_S)
