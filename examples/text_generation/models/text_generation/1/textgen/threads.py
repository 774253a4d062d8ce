"""How many cores numpy computes on."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

# The function to call in the OpenBLAS that numpy's wheels bring along, by its names in newer and older ones.
_SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")


def use_one_thread() -> bool:
    """Have numpy's matrix products run on one core in this process.

    A small network's products are over before a second core has taken part, and while cores are shared, the
    threads wait for one another longer than they compute.
    `OPENBLAS_NUM_THREADS=1` says the same, but is read when numpy is imported, which is before a model.

    Returns:
        Whether an OpenBLAS was found; a numpy that was built otherwise goes on as it was.
    """
    libraries = (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*")
    found = False
    for path in libraries:
        library = ctypes.CDLL(str(path))  # loaded already: this finds it again
        for name in _SETTERS:
            if hasattr(library, name):
                getattr(library, name)(1)
                found = True
                break
    return found
