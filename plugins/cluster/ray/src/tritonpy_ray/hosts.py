"""What actors do on their nodes, without Ray: a server, or a router and the file of servers that it reads."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families
from tritonpy_router.engines import FleetPlan

from tritonpy_ray.child import Child, Program, router_ports, server_ports
from tritonpy_ray.looks import Load, Look

_log = logging.getLogger("tritonpy.ray")

DRAIN_DELAY_S = 1.0
"""How long a server that is to end is not ready and still takes requests: a few questions of routers."""
_PAGE_S = 2.0
_AGAIN_S = 1.0

Follow: TypeAlias = Callable[[int], tuple[int, Sequence[str]]]
"""Waits until the servers are others than at a revision, and returns the new revision and a line for each."""


class ReplicaHost:
    """A server on this node.

    Args:
        name: of the replica.
        host: the address of this node, on which it listens.
        plan: of the fleet.
        environment: of this process.
    """

    def __init__(self, name: str, host: str, plan: FleetPlan, environment: Mapping[str, str]) -> None:
        self._host = host
        arguments = ["serve", *plan.server_flags]
        for service in ("http", "grpc", "metrics"):
            arguments += [f"--{service}-address={host}", f"--{service}-port=0"]
        if not any(flag.startswith("--drain-delay-s") for flag in plan.server_flags):
            arguments.append(f"--drain-delay-secs={DRAIN_DELAY_S:g}")
        given = _environment(environment, owns_cores="cpu" in plan.resources)
        self._child = Child(name, Program(arguments, server_ports, plan.exit_timeout_s, given))
        self._child.start()

    def look(self, with_load: bool) -> Look:
        """How the server is.

        Args:
            with_load: tell what it has done, too, which reads its page of metrics.
        """
        look = self._child.look(self._host)
        if not with_load or look.state != "up" or "metrics" not in look.ports:
            return look
        try:
            return replace(look, load=load_of(_page(self._host, look.ports["metrics"])))
        except (OSError, ValueError) as exc:
            _log.warning("the metrics of this server cannot be read: %s", exc)
            return look

    def stop(self) -> None:
        """End the server, which answers what it has accepted."""
        self._child.stop()


class RouterHost:
    """A router on this node, and the file of servers that it reads.

    The router knows nothing of Ray: when the controller, or all of Ray, is gone, it goes on with what the
    file says, and with what it sees of the servers itself.

    Args:
        name: of the router.
        host: the address of this node.
        plan: of the fleet.
        environment: of this process.
        follow: tells the servers.
        again_s: before the controller is asked again, after it could not be.
    """

    def __init__(
        self,
        name: str,
        host: str,
        plan: FleetPlan,
        environment: Mapping[str, str],
        follow: Follow,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._host = host
        self._follow = follow
        self._again_s = again_s
        self._is_over = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="tritonpy-router-")
        self._file = Path(self._folder.name) / "servers.json"
        self._write([])
        arguments = ["route", f"--servers-file={self._file}", *(plan.router_flags or ())]
        given = _environment(environment, owns_cores=False)
        self._child = Child(name, Program(arguments, router_ports, plan.exit_timeout_s, given))
        self._child.start()
        threading.Thread(target=self._keep_following, name=f"follows for {name}", daemon=True).start()

    def look(self, with_load: bool) -> Look:
        """How the router is, and which replicas it knows."""
        del with_load  # of servers
        look = self._child.look(self._host)
        if look.state != "up" or not look.ports.get("metrics"):
            return look
        try:
            ups = replicas_of(_page(self._host, look.ports["metrics"]))
        except (OSError, ValueError) as exc:
            _log.warning("the metrics of this router cannot be read: %s", exc)
            return look
        return replace(look, up=frozenset(name for name, is_up in ups.items() if is_up), known=frozenset(ups))

    def stop(self) -> None:
        """End the router, which answers what it has accepted."""
        self._is_over.set()
        self._child.stop()
        self._folder.cleanup()

    def _keep_following(self) -> None:
        revision = -1
        while not self._is_over.is_set():
            try:
                new, lines = self._follow(revision)
                if new != revision and not self._is_over.is_set():
                    self._write(lines)
                    revision = new
            except Exception as exc:  # whatever it is: the router goes on with what it knows
                _log.warning("the controller does not tell the servers; those known go on: %s", exc)
                self._is_over.wait(self._again_s)

    def _write(self, lines: Sequence[str]) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(list(lines)) if lines else "")
        os.replace(new, self._file)  # in one step, since the router may read it now


def load_of(page: str) -> Load:
    """What a server's page of metrics says of its load; versions of a model count together.

    Raises:
        ValueError: it is no page of metrics.
    """
    requests: dict[str, float] = {}
    queue_us: dict[str, float] = {}
    pending = 0.0
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            model = sample.labels.get("model", "")
            match sample.name.removesuffix("_total"):
                case "nv_inference_request_success":
                    requests[model] = requests.get(model, 0.0) + sample.value
                case "nv_inference_queue_duration_us":
                    queue_us[model] = queue_us.get(model, 0.0) + sample.value
                case "nv_inference_pending_request_count":
                    pending += sample.value
    return Load(requests, queue_us, pending)


def replicas_of(page: str) -> dict[str, bool]:
    """The replicas of which a router's page of metrics tells, and whether each gets requests.

    Raises:
        ValueError: it is no page of metrics.
    """
    return {
        sample.labels["replica"]: bool(sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "tritonpy_router_replica_up"
    }


def _page(host: str, port: int) -> str:
    """The page of metrics of a process on this node.

    Raises:
        OSError: it cannot be had.
    """
    address = f"[{host}]" if ":" in host else host
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}:{port}/metrics", timeout=_PAGE_S) as answer:
        text: bytes = answer.read()
        return text.decode()


def _environment(given: Mapping[str, str], *, owns_cores: bool) -> dict[str, str]:
    """The environment of a child: that of the actor, without what Ray sets for tasks in Python.

    Ray says with OMP_NUM_THREADS how many cores an actor has; where it was given none that is 1, which would
    hold frameworks to one thread.
    """
    left_out = {"PYTHONBREAKPOINT"} | (set() if owns_cores else {"OMP_NUM_THREADS"})
    return {name: value for name, value in given.items() if name not in left_out}
