"""What a fleet lives through on a Ray cluster of three nodes; prints as JSON what was seen.

Runs as a program, in a namespace of its own, where all that it starts ends with it: `python story.py FOLDER`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

ECHO: Mapping[str, Any] = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}
TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}
CLIENTS = 3
PAUSE_S = 0.02

seen: dict[str, Any] = {}


class Story:
    """A cluster, and `corectl cluster` in it.

    Args:
        folder: for repositories.
    """

    def __init__(self, folder: Path) -> None:
        self.models = folder / "models"
        self.broken = folder / "broken"
        ModelRepository(self.models).model("echo", ECHO)
        ModelRepository(self.broken).model("lame", {**ECHO, "backend": "nosuch"})
        head = {"num_cpus": 0, "include_dashboard": False}
        self.cluster = Cluster(head_node_args=head, initialize_head=True)
        for _ in range(2):
            self.cluster.add_node(num_cpus=1, resources={"slot": 2})
        ray.init(address=self.cluster.address, namespace="tritonpy", log_to_driver=False)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `corectl cluster`, for this cluster."""
        where = ("--engine=ray", f"--address={self.cluster.address}")
        return subprocess.run(
            [sys.executable, "-m", "tritonpy.cli.main", "cluster", words[0], *where, *words[1:]],
            capture_output=True,
            text=True,
            timeout=4 * DEADLINE_S,
        )

    def up(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Start the fleet on free ports."""
        ports = [f"--{service}-port=0" for service in ("http", "grpc", "metrics")]
        return self.command("up", f"--model-repository={self.models}", "--resource=slot=1", *ports, *words)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """The servers or routers."""
        done = self.command("status", "--json")
        rows: list[dict[str, Any]] = json.loads(done.stdout or "[]")
        return [row for row in rows if row["name"].startswith(kind)]

    def wait_for_servers(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Ask for the servers until something holds of them."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = self.rows("server")
            return holds(found)

        until(look, lambda: str(self.command("status").stdout))
        return found

    def router_port(self) -> int:
        """The HTTP port of the router on the head node, which is not killed."""
        head: str = self.cluster.head_node.node_id
        port: int = next(row["http"] for row in self.rows("router") if row["name"] == f"router-{head[:12]}")
        return port


class Left:
    """An actor of a fleet whose controller was ended."""

    def wait(self) -> None: ...


class Traffic:
    """Clients that send numbered requests, one after the other, and note how each ended.

    Args:
        port: of a router.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(CLIENTS)]
        self.sent = 0
        self.ends: Counter[str] = Counter()

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    @property
    def answered(self) -> int:
        with self._lock:
            return self.ends["answered"]

    def as_document(self) -> dict[str, Any]:
        return {"sent": self.sent, "ends": dict(self.ends)}

    def _send(self, client: int) -> None:
        number = 0
        while not self._is_over.is_set():
            name = f"{client}-{number}"
            number += 1
            with self._lock:
                self.sent += 1
            end = self._ask(name)
            with self._lock:
                self.ends[end] += 1
            time.sleep(PAUSE_S)

    def _ask(self, name: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2 * DEADLINE_S)
        try:
            connection.request("POST", "/v2/models/echo/infer", json.dumps({"id": name, "inputs": [TENSOR]}))
            answer = connection.getresponse()
            document = json.loads(answer.read())
        except (OSError, ValueError, http.client.HTTPException) as exc:
            return f"unnamed: {type(exc).__name__}"
        finally:
            connection.close()
        if answer.status == 200:
            return "answered" if document.get("id") == name else "answered another"
        return f"{answer.status}: {document['error']}"


def serving() -> list[int]:
    """The pids of all servers and routers in this namespace."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[1:3] == ["-m", "tritonpy.cli.main"] and words[3] in ("serve", "route"):
                found.append(process.pid)
    return found


def raylet_of(pid: int) -> psutil.Process:
    """The node on which a server runs."""
    return next(each for each in psutil.Process(pid).parents() if each.name() == "raylet")


def are_ready(rows: list[dict[str, Any]]) -> bool:
    return [row["state"] for row in rows] == ["ready"] * 2


@contextlib.contextmanager
def chapter(name: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    finally:
        print(f"{name}: {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)


def tell(folder: Path) -> None:
    with chapter("cluster"):
        story = Story(folder)
    with chapter("up"):
        seen["broken up"] = story.up(f"--model-repository={story.broken}").stderr
        seen["left of broken"] = serving()
        left = ray.remote(name="default/server-1", lifetime="detached", num_cpus=0)(Left).remote()
        ray.get(left.wait.remote())
        up = story.up("--replicas=2")
        seen["up"] = up.stdout + up.stderr
        seen["again"] = story.up().stderr
        servers = story.rows("server")
        seen["servers"] = [row["state"] for row in servers]
        seen["routers"] = [row["state"] for row in story.rows("router")]
        seen["nodes of servers"] = len({raylet_of(row["pid"]).pid for row in servers})
    port = story.router_port()
    with chapter("scale"), Traffic(port) as traffic:
        seen["scale up"] = story.command("scale", "3").stderr
        seen["scaled up"] = [row["state"] for row in story.rows("server")]
        seen["scale down"] = story.command("scale", "2").stderr
        seen["scaled down"] = [row["name"] for row in story.rows("server")]
    seen["scale traffic"] = traffic.as_document()
    with chapter("update"), Traffic(port) as traffic:
        before = [row["pid"] for row in story.rows("server")]
        seen["broken update"] = story.command("update", f"--model-repository={story.broken}").stderr
        seen["kept"] = before == [row["pid"] for row in story.rows("server")]
        seen["update"] = story.command("update").stderr
        after = story.rows("server")
        seen["replaced"] = not {row["pid"] for row in after} & set(before)
        seen["updated"] = [row["state"] for row in after]
    seen["update traffic"] = traffic.as_document()
    with chapter("server killed"):
        first = story.rows("server")[0]
        os.kill(first["pid"], signal.SIGKILL)
        after = story.wait_for_servers(lambda rows: are_ready(rows) and rows[0]["restarts"] == 1)
        seen["restarted"] = after[0]["name"] == first["name"] and after[0]["pid"] != first["pid"]
    with chapter("controller killed"), Traffic(port) as traffic:
        pids = {row["name"]: row["pid"] for row in story.rows("server")}
        killed = [each for each in psutil.process_iter() if "ControllerActor" in "".join(each.cmdline())]
        for process in killed:
            process.kill()
        after = story.wait_for_servers(are_ready)
        seen["controllers killed"] = len(killed)
        seen["after the controller"] = pids == {row["name"]: row["pid"] for row in after}
    seen["controller traffic"] = traffic.as_document()
    with chapter("node killed"), Traffic(port) as traffic:
        victim = story.rows("server")[0]
        raylet = raylet_of(victim["pid"])
        for process in [raylet, *raylet.children(recursive=True)]:  # at once, as the power of a machine goes
            with contextlib.suppress(psutil.Error):
                process.kill()
        begun = time.monotonic()
        story.wait_for_servers(
            lambda rows: are_ready(rows) and victim["pid"] not in [row["pid"] for row in rows]
        )
        seen["replaced after s"] = round(time.monotonic() - begun, 1)
        count = traffic.answered
        until(lambda: traffic.answered > count + 20)
    seen["node traffic"] = traffic.as_document()
    with chapter("down"):
        seen["down"] = story.command("down").stderr
        seen["left"] = serving()
        seen["actors left"] = ray.util.list_named_actors(all_namespaces=True)
        seen["status after"] = story.command("status").stderr
    ray.shutdown()
    story.cluster.shutdown()


if __name__ == "__main__":
    try:
        tell(Path(sys.argv[1]))
    finally:
        print(json.dumps(seen))
