"""The names of a fleet's actors in Ray."""

from __future__ import annotations

NAMESPACE = "tritonpy"
CONTROLLER = "controller"


def actor_name(fleet: str, name: str) -> str:
    """The name of an actor in `NAMESPACE`."""
    return f"{fleet}/{name}"
