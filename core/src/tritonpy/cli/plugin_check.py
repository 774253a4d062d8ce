"""Try one plugin as a server would use it; a program of its own, since a library may crash.

Started by `corectl plugins check` as `python -m tritonpy.cli.plugin_check KIND NAME REPORT`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from tritonpy.errors import Internal, TritonError
from tritonpy.ipc.child import describe_end
from tritonpy.model.backend import BoundBackend
from tritonpy.plugin_faults import missing_hooks
from tritonpy.plugin_files import PluginOpener
from tritonpy.plugin_manager import PluginInfo, PluginManager

_LAST_LINES = 5  # of what a program printed before it ended


@dataclass(slots=True)
class Trial:
    """What came of trying a plugin.

    Attributes:
        fault: why it cannot be used; "" if it can.
        deprecated: what it implements and will not be asked for some day.
    """

    fault: str = ""
    deprecated: list[str] = field(default_factory=list)


def check_plugin(kind: str, name: str) -> Trial:
    """Try a plugin in a process of its own; blocking, for as long as it takes to import and open it."""
    with tempfile.TemporaryDirectory(prefix="tritonpy-check-") as directory:
        report = Path(directory) / "report"
        command = [sys.executable, "-m", "tritonpy.cli.plugin_check", kind, name, str(report)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if report.exists():
            return Trial(**json.loads(report.read_text("utf-8")))
    printed = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    lines = "".join(f"\n  {line}" for line in printed[-_LAST_LINES:])
    return Trial(f"the process that tried it {describe_end(done.returncode)}{lines}")


def try_plugin(kind: str, name: str) -> PluginInfo:
    """Import a plugin and bind its hooks; open one that is a library; initialise a backend, and finalise it.

    Raises:
        TritonError: why it cannot be used.
    """
    manager = PluginManager(kind)
    plugin = manager.load(name)
    if kind == "backends":
        backend = BoundBackend(name, manager, {})
        backend.acquire()
        backend.release()
    elif isinstance(plugin, Path):
        PluginOpener(manager, PluginManager("loaders"), f"plugin '{name}' of kind '{kind}'").load(name)
    elif missing := missing_hooks(kind, partial(manager.bind, plugin), plugin):
        raise Internal(f"plugin '{name}' of kind '{kind}' cannot be used: {missing}")
    (info,) = [info for info in manager.info() if info.name == name]
    return info


def main() -> None:
    """Write the outcome to a file, which is not there if the process ends first."""
    kind, name, report = sys.argv[1:]
    tried = Trial()
    try:
        tried.deprecated += try_plugin(kind, name).deprecated
    except TritonError as exc:
        tried.fault = exc.described()
    Path(report).write_text(json.dumps(asdict(tried)), "utf-8")


if __name__ == "__main__":
    main()
