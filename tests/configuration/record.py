"""Ask the real server for its verdict on every case, and keep it: `python -m tests.configuration.record`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..differential.servers import Server
from .asking import Verdict, ask_all, lay_out
from .cases import CASES, STRICT, Case
from .comparison import write_recorded

OPTIONS = ("--model-control-mode=explicit", "--exit-timeout-secs=3")
STRICT_OPTION = "--disable-auto-complete-config"


def verdicts(
    folder: Path, cases: dict[str, Case], *options: str, is_real: bool, at_once: int
) -> dict[str, Verdict]:
    """What a server of its own makes of some cases; `folder` is made."""
    repository = folder / "models"
    for name, case in cases.items():
        lay_out(repository, name, case)
    server = Server(repository, folder / "log", is_real=is_real, options=(*OPTIONS, *options))
    try:
        return ask_all(server, list(cases), repository, at_once=at_once)
    finally:
        server.close()


def real_verdicts(folder: Path) -> dict[str, dict[str, Verdict]]:
    """What the real server makes of all cases: a few minutes, because it crashes over two loads at once."""
    return {
        "usual": verdicts(folder / "usual", CASES, is_real=True, at_once=1),
        "strict": verdicts(folder / "strict", STRICT, STRICT_OPTION, is_real=True, at_once=1),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        write_recorded(real_verdicts(Path(temporary)))
