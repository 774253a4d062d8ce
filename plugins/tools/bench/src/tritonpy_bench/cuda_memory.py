"""Tensors in the memory of a GPU, by the functions that Triton's own clients have for it."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import numpy as np

from tritonpy_bench.errors import BenchError
from tritonpy_bench.target import Target

_WANTED = (
    "--shared-memory=cuda needs the distributions tritonclient and cuda-python: "
    "pip install 'tritonclient[cuda]'"
)


class CudaMemory:
    """Memory of a GPU that other processes may open; satisfies `Memory`.

    Args:
        target: the server.
        device: number of the GPU.

    Raises:
        BenchError: something is missing that has functions for it; says what.
    """

    def __init__(self, target: Target, device: int) -> None:
        self._functions = _functions()
        self._target = target
        self._device = device
        self._regions: dict[str, Any] = {}  # Any: handles, which tritonclient gives no types for

    def register(self, name: str, byte_size: int, stack: ExitStack) -> None:
        functions = self._functions
        try:
            region = functions.create_shared_memory_region(name, byte_size, self._device)
            stack.callback(functions.destroy_shared_memory_region, region)
            handle = base64.b64decode(functions.get_raw_handle(region))
        except Exception as error:  # what it raises depends on its version, and on that of CUDA
            raise BenchError(
                f"shared memory of {byte_size} bytes on GPU {self._device}: {_words(error)}"
            ) from None
        self._target.register_cuda(name, handle, self._device, byte_size)
        stack.callback(self._target.unregister_cuda, name)
        self._regions[name] = region

    def write(self, name: str, content: bytes | bytearray) -> None:
        try:
            self._functions.set_shared_memory_region(self._regions[name], [np.frombuffer(content, np.uint8)])
        except Exception as error:  # as above
            raise BenchError(f"inputs could not be written to GPU {self._device}: {_words(error)}") from None


def _functions() -> ModuleType:
    try:
        import tritonclient.utils.cuda_shared_memory as functions
    except ModuleNotFoundError as error:
        raise BenchError(f"{_WANTED} (there is no module '{error.name}')") from None
    except RuntimeError as error:  # tritonclient without cuda-python
        raise BenchError(f"{_WANTED} ({_words(error.__cause__ or error)})") from None
    except (ImportError, OSError) as error:  # cuda-python without the libraries of CUDA
        raise BenchError(f"{_WANTED}, and a driver of CUDA ({_words(error)})") from None
    module: ModuleType = functions
    return module


def _words(error: BaseException) -> str:
    reasons = [str(error)]
    if error.__cause__ is not None:
        reasons.append(str(error.__cause__))
    return ": ".join(reason for reason in reasons if reason) or type(error).__name__
