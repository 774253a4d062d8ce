"""The directory of the C headers for shared objects.

cc -shared -fPIC -I"$(python -m tritonpy_sdk.headers)" -o batchstrategy.so strategy.c
"""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parent / "include"
"""Sources include `tritonpy/backend.h` or `backend.hpp`, `batching.h`, `repo_agent.h` or `cache.h`.

And maybe `server.h` and `parameters.h`.
"""

if __name__ == "__main__":
    print(DIRECTORY)
