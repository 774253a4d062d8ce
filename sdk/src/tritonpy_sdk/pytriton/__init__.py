"""PyTriton's modules over `tritonpy_sdk.Server`: a program moves by changing its imports.

`from pytriton.triton import Triton` becomes `from tritonpy_sdk.pytriton.triton import Triton`, and likewise
for `decorators`, `model_config`, `client`, `exceptions` and `proxy.types`. Or nothing is changed: after
`install()`, and in programs run by `python -m tritonpy_sdk.pytriton PROGRAM`, these modules go by PyTriton's
own names. Needs `tritonpy-sdk[client]`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

_NAME = "pytriton"
_MODULES = (
    "",
    ".check",
    ".client",
    ".client.client",
    ".client.exceptions",
    ".client.warnings",
    ".constants",
    ".decorators",
    ".exceptions",
    ".model_config",
    ".model_config.common",
    ".model_config.model_config",
    ".model_config.tensor",
    ".proxy",
    ".proxy.types",
    ".triton",
)


def install() -> None:
    """Have `import pytriton` give these modules in this process.

    Raises:
        ImportError: PyTriton itself is installed.
    """
    here = sys.modules[__name__]
    if sys.modules.get(_NAME, here) is not here or (
        _NAME not in sys.modules and find_spec(_NAME) is not None
    ):
        raise ImportError(
            "nvidia-pytriton is installed: uninstall it, or import tritonpy_sdk.pytriton by its name"
        )
    for module in _MODULES:
        sys.modules[f"{_NAME}{module}"] = import_module(f"{__name__}{module}")
