"""The program behind an instance of a backend that is isolated.

Started by the server as `python -m tritonpy.workers.child.main`; not meant to be started by hand.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import signal
import sys

_OBJECTS_OF_IMPORTS = 100_000
"""More than are made by importing what a worker needs; nearly all of them stay."""


def main() -> None:
    """Serve the channel this process was started with."""
    # Ctrl-C and a service manager's SIGTERM reach the whole group; when to go is the server's decision. A
    # handler, not SIG_IGN: programs that a model starts would inherit the latter.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # a line that is printed is one for the server's log
    if sys.stderr is not None:
        faulthandler.enable()  # a crash in native code shows the line it came from
    # The collector would look through what is imported, again and again, and find nothing.
    threshold = gc.get_threshold()
    gc.set_threshold(_OBJECTS_OF_IMPORTS, *threshold[1:])
    from tritonpy.ipc.channel import WorkerChannel
    from tritonpy.logs import follow_server
    from tritonpy.workers.child.hook_worker import HookWorker

    gc.freeze()
    gc.set_threshold(*threshold)
    channel = WorkerChannel.from_environment()
    channel.exit_with_server()
    follow_server(channel.admitted_levels())
    HookWorker(channel).serve()


if __name__ == "__main__":
    main()
