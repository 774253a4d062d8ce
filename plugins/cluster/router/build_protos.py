"""Turn `replica.proto` into what the package ships, as `core/build_protos.py` does; `make protos` runs it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

ROUTER = Path(__file__).resolve().parent
PROTOS = ROUTER / "src" / "tritonpy_router" / "protos"
CORE_SCRIPT = ROUTER.parents[2] / "core" / "build_protos.py"

if __name__ == "__main__":
    build = runpy.run_path(str(CORE_SCRIPT))["build"]
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS, PROTOS, ("replica.proto",))
