"""The engine `ray` of `corectl cluster`: finds the controller of a fleet in a Ray cluster, and asks it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tritonpy.errors import AlreadyExists, InvalidArg, NotFound, Unavailable
from tritonpy_router.engines import FleetChange, FleetPlan, Row

from tritonpy_ray.names import CONTROLLER, NAMESPACE, actor_name

if TYPE_CHECKING:
    import ray

_STATUS_S = 30.0
_CALLS = 1000  # at a time: one of each router waits for changes
_HEAD = "node:__internal_head__"
"""The resource by which Ray tells the head."""


def connect(address: str) -> RayEngine:
    """Connect to a Ray cluster, as a program that starts actors there.

    Args:
        address: as `ray.init` takes it: `auto` for that of this machine, `HOST:PORT` of its head, or `ray://…`.

    Raises:
        Unavailable: Ray is not installed, or no cluster answers.
    """
    try:
        import ray
    except ImportError:
        raise Unavailable(
            "Ray is not installed here: pip install 'tritonpy-ray[ray]', in the release that the cluster has"
        ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as exc:
        raise Unavailable(
            f"no Ray cluster answers at --address '{address}' ({str(exc).partition(chr(10))[0]}); "
            f"expected auto after `ray start --head` on this machine, HOST:PORT or ray://HOST:PORT"
        ) from None
    return RayEngine()


class RayEngine:
    """Satisfies `engines.Engine`, in a program that is connected to a cluster."""

    def up(self, name: str, plan: FleetPlan) -> None:
        """See `Engine`."""
        import ray

        from tritonpy_ray.controller_actor import ControllerActor
        from tritonpy_ray.launcher import actor_options, names_of, save

        if "/" in name:
            raise InvalidArg(f"got --name '{name}', expected a name without /")
        if _find(name) is not None:
            raise AlreadyExists(
                f"a fleet '{name}' runs in this cluster: give another --name, or end it with "
                f"corectl cluster down"
            )
        save(name, None)  # this, and actors, a fleet has left that did not end with `down`
        for left in names_of(name):
            with contextlib.suppress(ValueError):  # it has ended meanwhile
                ray.kill(ray.get_actor(actor_name(name, left), NAMESPACE), no_restart=True)
        options = actor_options(actor_name(name, CONTROLLER), {})
        actor = ray.remote(**options, max_concurrency=_CALLS, scheduling_strategy=_near_head())(
            ControllerActor
        )
        controller = actor.remote(name, plan.as_text())
        try:
            _raise(_get(name, controller.settle.remote()))
        except BaseException:
            with contextlib.suppress(Unavailable):
                self.down(name)
            raise

    def status(self, name: str) -> Sequence[Row]:
        """See `Engine`."""
        rows: list[Row] = _get(name, _controller(name).status.remote(), _STATUS_S)
        return rows

    def scale(self, name: str, count: int) -> None:
        """See `Engine`."""
        _raise(_get(name, _controller(name).scale.remote(count)))

    def update(self, name: str, change: FleetChange) -> None:
        """See `Engine`."""
        _raise(_get(name, _controller(name).update.remote(change)))

    def down(self, name: str) -> None:
        """See `Engine`."""
        import ray

        from tritonpy_ray.launcher import save

        controller = _controller(name)
        _get(name, controller.down.remote())
        ray.kill(controller, no_restart=True)
        save(name, None)


def _near_head() -> Any:  # Any: a strategy of Ray's, or its name
    """Where the controller runs: on the head, with which the cluster is gone anyway, if that takes it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    for row in ray.nodes():
        if row["Alive"] and _HEAD in row["Resources"]:
            return NodeAffinitySchedulingStrategy(row["NodeID"], soft=True)
    return "DEFAULT"


def _find(name: str) -> Any:  # Any: a handle of Ray's has the methods of its actor
    import ray

    try:
        return ray.get_actor(actor_name(name, CONTROLLER), NAMESPACE)
    except ValueError:
        return None


def _controller(name: str) -> Any:  # Any: see `_find`
    """The controller of a fleet.

    Raises:
        NotFound: there is none.
    """
    controller = _find(name)
    if controller is None:
        raise NotFound(f"no fleet '{name}' runs in this Ray cluster: start one with corectl cluster up")
    return controller


def _get(name: str, answer: ray.ObjectRef[Any], timeout_s: float | None = None) -> Any:  # Any: by its method
    """Wait for an answer of a controller.

    Raises:
        Unavailable: it does not give one.
    """
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(answer, timeout=timeout_s)
    except RayError as exc:
        raise Unavailable(
            f"the controller of fleet '{name}' does not answer: {str(exc).partition(chr(10))[0]}"
        ) from None


def _raise(failure: str) -> None:
    if failure:
        raise Unavailable(failure)
