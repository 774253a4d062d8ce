"""Attributes of a backend in C, which it is asked for in a process of its own before it has instances."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tritonpy.plugin import Backend, BackendAttributes, PreferredGroup

from tritonpy_abi.model_facts import backend_config
from tritonpy_abi.probe import ask_backend

_log = logging.getLogger("tritonpy.abi")

_FUNCTION = "TRITONBACKEND_GetBackendAttribute"
_KINDS: Sequence[Literal["KIND_AUTO", "KIND_CPU", "KIND_GPU", "KIND_MODEL"]] = (
    "KIND_AUTO",
    "KIND_CPU",
    "KIND_GPU",
    "KIND_MODEL",
)
"""By the numbers of `TRITONSERVER_InstanceGroupKind`."""


def mentions(path: str | Path, *functions: str) -> bool:
    """True if a library may define one of these functions: their names are in it. It is not opened."""
    try:
        content = Path(path).read_bytes()
    except OSError:  # whoever opens it says why
        return False
    return any(b"%s\0" % function.encode() in content for function in functions)


def read_attributes(path: str | Path, backend: Backend) -> BackendAttributes:
    """The attributes that a library gives, or those of one that gives none. Blocking.

    Args:
        path: of the library.
        backend: as it is configured for the server.

    Raises:
        TritonError: an error of `TRITONBACKEND_Initialize` or `TRITONBACKEND_GetBackendAttribute`; or how
            the library ended the process, or where it did not return.
    """
    if not mentions(path, _FUNCTION):
        return BackendAttributes(execution="process")
    report = ask_backend(path, backend, backend_config(backend))
    found = [record.split() for record in report]
    groups = [_group(record[1:]) for record in found if record and record[0] == "group"]
    is_parallel = ["parallel", "1"] in found
    for group in groups:
        _log.info("backend '%s' prefers instances of %s, %d of them", backend.name, group.kind, group.count)
    return BackendAttributes("process", preferred_groups=groups, parallel_instance_loading=is_parallel)


def _group(fields: Sequence[str]) -> PreferredGroup:
    kind, count, *gpus = map(int, fields)
    return PreferredGroup(_KINDS[kind], count, gpus)
