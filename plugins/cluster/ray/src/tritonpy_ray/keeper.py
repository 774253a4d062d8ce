"""The program between an actor and its server: it ends the server when the actor is gone, however that ended.

    python keeper.py SECONDS COMMAND...

It writes the server's pid to standard output, and has its exit status. Its standard input is a pipe that the
actor holds: when it closes, or at SIGTERM, the server gets SIGTERM, and SIGKILL where it has not ended after
SECONDS. It imports nothing but the standard library, since one runs beside each server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(limit_s: float, command: list[str]) -> int:
    """Run a command until it ends; returns its exit status."""
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
    print(child.pid, flush=True)

    def await_actor() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        told.set()

    def end() -> None:
        told.wait()
        child.terminate()
        try:
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            child.kill()

    for work in (await_actor, end):
        threading.Thread(target=work, daemon=True).start()
    status = child.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
