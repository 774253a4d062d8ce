"""Configurations and files that come with functions: what a program may say of its model."""

from __future__ import annotations

from typing import Any

from tritonpy.plugin import InvalidArg, JsonObject
from tritonpy_sdk.remote.wire import BadFrame

from tritonpy_frontend_bind.bindings import BACKEND, Binding

_ALLOWED = frozenset(
    {
        "backend",
        "dynamic_batching",
        "input",
        "instance_group",
        "max_batch_size",
        "model_transaction_policy",
        "model_warmup",
        "name",
        "optimization",
        "output",
        "parameters",
        "response_cache",
        "sequence_batching",
        "version_policy",
    }
)
"""What the function itself or the batching of its requests depends on; the rest is the server's affair."""

_REFUSED_PARAMETERS = frozenset({"TRITON_BATCH_STRATEGY_PATH", "TRITONPY_ISOLATION"})
"""They would have the server open a file, or the model leave the server's process."""

_FOLDERS = ("warmup", "initial_state")
_MOST_FILES = 1000


def checked_config(binding: Binding, max_instances: int) -> JsonObject:
    """The configuration of a model that executes a program's function.

    Args:
        binding: with the configuration that came.
        max_instances: that it may have; each is a thread of the server.

    Raises:
        InvalidArg: it says something that is not a program's affair.
    """
    config, name = binding.config, binding.name
    if unknown := sorted(config.keys() - _ALLOWED):
        raise InvalidArg(
            f"model '{name}': a program that binds a function cannot configure '{unknown[0][:64]}', but "
            f"{', '.join(sorted(_ALLOWED))}"
        )
    parameters = config.get("parameters", {})
    if not isinstance(parameters, dict) or (refused := sorted(parameters.keys() & _REFUSED_PARAMETERS)):
        what = refused[0] if isinstance(parameters, dict) else "parameters"
        raise InvalidArg(f"model '{name}': a program that binds a function cannot configure '{what}'")
    group: JsonObject = {"kind": "KIND_CPU", "count": _instances(config, name, max_instances)}
    if "rate_limiter" in config["instance_group"][0]:
        group["rate_limiter"] = config["instance_group"][0]["rate_limiter"]
    return {
        **config,
        "name": name,
        "backend": BACKEND,
        "instance_group": [group],
        "version_policy": {"specific": {"versions": [binding.version]}},
    }


def _instances(config: JsonObject, name: str, most: int) -> int:
    match config.get("instance_group"):
        case [{"count": int() as count}] if 1 <= count <= most:
            return count
        case [{"count": int() as count}]:
            raise InvalidArg(
                f"model '{name}': got {count} instances, expected 1 to {most} "
                f"(--frontend-config={BACKEND},max-instances)"
            )
    raise InvalidArg(f"model '{name}': expected one group of instances with a count")


def read_files(entries: Any, data: memoryview) -> dict[str, bytes]:  # Any: from a stranger
    """The files that a function's warm-up and states need, by path in the model's directory.

    Raises:
        BadFrame: they are none.
        InvalidArg: one lies elsewhere.
    """
    if not isinstance(entries, list) or len(entries) > _MOST_FILES:
        raise BadFrame("the files of a function are no list, or too many")
    files: dict[str, bytes] = {}
    start = 0
    for entry in entries:
        match entry:
            case [str() as path, int() as size] if 0 <= size <= len(data) - start:
                pass
            case _:
                raise BadFrame("a file of a function is no path and byte size")
        folder, _, name = path.partition("/")
        if folder not in _FOLDERS or not name or "/" in name or name.startswith("."):
            raise InvalidArg(
                f"got file '{path[:256]}', expected {' or '.join(f'{each}/NAME' for each in _FOLDERS)}"
            )
        files[path] = bytes(data[start : start + size])
        start += size
    if start != len(data):
        raise BadFrame(f"{len(data) - start} bytes of a frame belong to no file")
    return files
