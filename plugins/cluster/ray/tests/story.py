"""What a fleet lives through on a Ray cluster of three nodes; prints as JSON what was seen.

Runs as a program, in a namespace of its own, where all that it starts ends with it: `python story.py FOLDER`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import psutil
import ray
import trustme
from ray.cluster_utils import Cluster
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

ECHO: Mapping[str, Any] = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}
TENSOR = {"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2]}
SLOW = {"execute_delay_ms": {"string_value": "50"}}
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
        self.slow = folder / "slow"
        ModelRepository(self.slow).model("echo", {**ECHO, "parameters": SLOW})
        self.files = {}
        for name in ("server", "router", "front"):
            authority = trustme.CA()
            issued = authority.issue_cert("localhost", "127.0.0.1")
            pems = (authority.cert_pem, issued.cert_chain_pems[0], issued.private_key_pem)
            for part, pem in zip(("ca", "cert", "key"), pems, strict=True):
                self.files[f"{name}_{part}"] = str(folder / f"{name}.{part}")
                pem.write_to_path(self.files[f"{name}_{part}"])
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

    def up(self, *words: str, models: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Start the fleet on free ports."""
        ports = [f"--{service}-port=0" for service in ("http", "grpc", "metrics")]
        return self.command(
            "up", f"--model-repository={models or self.models}", "--resource=slot=1", *ports, *words
        )

    def tls(self) -> list[str]:
        """Flags of a fleet that encrypts everything; all its nodes are on this machine."""
        files = self.files
        return [
            *(f"--server-cert={files['server_cert']}", f"--server-key={files['server_key']}"),
            *(f"--replica-ca={files['server_ca']}", "--replica-tls-name=localhost"),
            *(f"--replica-cert={files['router_cert']}", f"--replica-key={files['router_key']}"),
            f"--server-client-ca={files['router_ca']}",
            *(f"--https-certificate={files['front_cert']}", f"--https-key={files['front_key']}"),
            *("--grpc-use-ssl=true", f"--grpc-server-cert={files['front_cert']}"),
            f"--grpc-server-key={files['front_key']}",
        ]

    def rows(self, kind: str, fleet: str = "default") -> list[dict[str, Any]]:
        """The servers or routers."""
        done = self.command("status", "--json", f"--name={fleet}")
        # Ray's own library may write a line of its own there while a node dies.
        lines = [line for line in done.stdout.splitlines() if line.startswith("[{")]
        rows: list[dict[str, Any]] = json.loads(lines[-1] if lines else "[]")
        return [row for row in rows if row["name"].startswith(kind)]

    def wait_for_servers(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Ask for the servers until something holds of them."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            found[:] = self.rows("server")
            return holds(found)

        until(look, lambda: str(self.command("status").stdout))
        return found

    def router(self, fleet: str = "default") -> dict[str, Any]:
        """The router on the head node, which is not killed."""
        name = f"router-{self.cluster.head_node.node_id[:12]}"
        return next(row for row in self.rows("router", fleet) if row["name"].startswith(name))

    def told(self) -> list[str]:
        """The servers that tell that router how they are."""
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.router()['metrics']}/metrics").read().decode()
        return sorted(re.findall(r'tritonpy_router_replica_queue_seconds{replica="(.+?)"}', page))

    def follow_load(self) -> None:
        """Have a fleet whose number follows the load, and note its numbers under load and after it."""
        rule = ("--max-replicas=2", "--target-queue-ms=20", "--scale-up-secs=5", "--scale-down-secs=10")
        up = self.up("--name=elastic", "--spare=1", *rule, models=self.slow)
        seen["elastic up"] = up.stdout + up.stderr

        def count() -> int:
            rows = self.rows("server", "elastic")
            counts.append(len(rows))
            return len(rows) if {row["state"] for row in rows} == {"ready"} else 0

        counts: list[int] = []
        with Traffic(self.router("elastic"), clients=2 * CLIENTS, pause_s=0) as traffic:
            until(lambda: count() == 3)  # 1 became 2, and there is a spare
            until(lambda: count() == 3)
        until(lambda: count() == 2)
        seen["elastic counts"] = [first for first, next_one in pairwise([*counts, 0]) if first != next_one]
        seen["elastic traffic"] = traffic.as_document()
        seen["elastic down"] = self.command("down", "--name=elastic").stderr


class Left:
    """An actor of a fleet whose controller was ended."""

    def wait(self) -> None: ...


class Traffic:
    """Clients that send numbered requests, one after the other, and note how each ended.

    Args:
        router: its row.
        trust: what certificates of routers are checked by; "" where they have none.
        clients: of which the last one speaks gRPC, on one connection, and the others HTTP, on new ones.
        pause_s: between two requests of one.
    """

    def __init__(
        self, router: dict[str, Any], trust: str = "", clients: int = CLIENTS, pause_s: float = PAUSE_S
    ) -> None:
        self._port: int = router["http"]
        self._pause_s = pause_s
        self._tls = ssl.create_default_context(cafile=trust) if trust else None
        roots = Path(trust).read_bytes() if trust else None
        place = f"localhost:{router['grpc']}"
        channel = (
            grpc.secure_channel(place, grpc.ssl_channel_credentials(roots))
            if roots
            else grpc.insecure_channel(place)
        )
        self._channel = channel
        self._infer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(number, self._call if number == 0 else self._ask))
            for number in range(clients)
        ]
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
        self._channel.close()

    @property
    def answered(self) -> int:
        with self._lock:
            return self.ends["answered"]

    def as_document(self) -> dict[str, Any]:
        return {"sent": self.sent, "ends": dict(self.ends)}

    def _send(self, client: int, ask: Callable[[str], str]) -> None:
        number = 0
        while not self._is_over.is_set():
            name = f"{client}-{number}"
            number += 1
            with self._lock:
                self.sent += 1
            end = ask(name)
            with self._lock:
                self.ends[end] += 1
            time.sleep(self._pause_s)

    def _call(self, name: str) -> str:
        request = service_pb2.ModelInferRequest(model_name="echo", id=name, raw_input_contents=[bytes(8)])
        request.inputs.add(name="INPUT0", datatype="FP32", shape=[2])
        try:
            answer = self._infer(request, timeout=2 * DEADLINE_S)
        except grpc.RpcError as exc:
            return f"{exc.code().name}: {exc.details()}"
        return "answered" if answer.id == name else "answered another"

    def _ask(self, name: str) -> str:
        place, limit_s = ("localhost", self._port), 2 * DEADLINE_S
        connection = (
            http.client.HTTPConnection(*place, timeout=limit_s)
            if self._tls is None
            else http.client.HTTPSConnection(*place, timeout=limit_s, context=self._tls)
        )
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
    with chapter("load"):
        story.follow_load()
    with chapter("up"):
        seen["broken up"] = story.up(f"--model-repository={story.broken}").stderr
        seen["left of broken"] = serving()
        left = ray.remote(name="default/server-1", lifetime="detached", num_cpus=0)(Left).remote()
        ray.get(left.wait.remote())
        up = story.up("--replicas=2", *story.tls())
        seen["up"] = up.stdout + up.stderr
        seen["again"] = story.up().stderr
        servers = story.rows("server")
        seen["servers"] = [row["state"] for row in servers]
        seen["routers"] = [row["state"] for row in story.rows("router")]
        seen["nodes of servers"] = len({raylet_of(row["pid"]).pid for row in servers})
        until(lambda: len(story.told()) == 2)
        seen["told"] = story.told()
        secrets = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        seen["command lines with a token"] = [
            line for line in secrets if re.search(r"token(-file)?[= ](?!/)", line)
        ]
    trust, router = story.files["front_ca"], story.router()
    with chapter("scale"), Traffic(router, trust) as traffic:
        seen["scale up"] = story.command("scale", "3").stderr
        seen["scaled up"] = [row["state"] for row in story.rows("server")]
        seen["scale down"] = story.command("scale", "2").stderr
        seen["scaled down"] = [row["name"] for row in story.rows("server")]
    seen["scale traffic"] = traffic.as_document()
    with chapter("update"), Traffic(router, trust) as traffic:
        routers = story.rows("router")
        before = [row["pid"] for row in story.rows("server")]
        seen["broken update"] = story.command("update", f"--model-repository={story.broken}").stderr
        seen["kept"] = before == [row["pid"] for row in story.rows("server")]
        seen["update"] = story.command("update").stderr
        after = story.rows("server")
        seen["replaced"] = not {row["pid"] for row in after} & set(before)
        seen["updated"] = [row["state"] for row in after]
        new = story.rows("router")
        seen["routers updated"] = [row["state"] for row in new]
        seen["routers replaced"] = not {row["pid"] for row in routers} & {row["pid"] for row in new}
        ports = [
            [[row[each] for each in ("http", "grpc", "metrics")] for row in rows] for rows in (routers, new)
        ]
        seen["routers keep ports"] = sorted(ports[0]) == sorted(ports[1])
    seen["update traffic"] = traffic.as_document()
    with chapter("server killed"):
        first = story.rows("server")[0]
        os.kill(first["pid"], signal.SIGKILL)
        after = story.wait_for_servers(lambda rows: are_ready(rows) and rows[0]["restarts"] == 1)
        seen["restarted"] = after[0]["name"] == first["name"] and after[0]["pid"] != first["pid"]
    with chapter("controller killed"), Traffic(router, trust) as traffic:
        pids = {row["name"]: row["pid"] for row in story.rows("server")}
        killed = [each for each in psutil.process_iter() if "ControllerActor" in "".join(each.cmdline())]
        for process in killed:
            process.kill()
        after = story.wait_for_servers(are_ready)
        seen["controllers killed"] = len(killed)
        seen["after the controller"] = pids == {row["name"]: row["pid"] for row in after}
    seen["controller traffic"] = traffic.as_document()
    with chapter("node killed"), Traffic(router, trust) as traffic:
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
