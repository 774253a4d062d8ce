"""Try one plugin as a server would use it; a program of its own, since a library may crash.

Started by `corectl plugins check` as `python -m tritonpy.cli.plugin_check KIND NAME REPORT`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tritonpy.errors import TritonError
from tritonpy.ipc.child import describe_end
from tritonpy.model.backend import BoundBackend
from tritonpy.plugin_files import PluginOpener
from tritonpy.plugin_manager import PluginManager

_LAST_LINES = 5  # of what a program printed before it ended


def check_plugin(kind: str, name: str) -> str:
    """Try a plugin in a process of its own; blocking, for as long as it takes to import and open it.

    Returns:
        Why it cannot be used; "" if it can.
    """
    with tempfile.TemporaryDirectory(prefix="tritonpy-check-") as directory:
        report = Path(directory) / "report"
        command = [sys.executable, "-m", "tritonpy.cli.plugin_check", kind, name, str(report)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if report.exists():
            return str(json.loads(report.read_text("utf-8")))
    printed = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    lines = "".join(f"\n  {line}" for line in printed[-_LAST_LINES:])
    return f"the process that tried it {describe_end(done.returncode)}{lines}"


def try_plugin(kind: str, name: str) -> None:
    """Import a plugin and bind its hooks; open one that is a library; initialise a backend, and finalise it.

    Raises:
        TritonError: why it cannot be used.
    """
    manager = PluginManager(kind)
    if kind == "backends":
        backend = BoundBackend(name, manager, {})
        backend.acquire()
        backend.release()
    elif isinstance(manager.load(name), Path):
        PluginOpener(manager, PluginManager("loaders"), f"plugin '{name}' of kind '{kind}'").load(name)


def main() -> None:
    """Write the outcome to a file, which is not there if the process ends first."""
    kind, name, report = sys.argv[1:]
    fault = ""
    try:
        try_plugin(kind, name)
    except TritonError as exc:
        fault = exc.described()
    Path(report).write_text(json.dumps(fault), "utf-8")


if __name__ == "__main__":
    main()
