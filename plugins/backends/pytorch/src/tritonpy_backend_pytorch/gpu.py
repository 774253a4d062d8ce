"""Tensors on their way to a GPU and back, and what its errors mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.utils import _pytree as pytree
from tritonpy.plugin import Array

from tritonpy_backend_pytorch.feeding import Call, Feeds

_MIB = 1 << 20


class DeviceLost(Exception):
    """The process can do nothing more on its GPU, and has to be started anew."""


class Transfers:
    """Copies tensors between the host and one GPU, in the order of the current stream.

    They pass through pinned memory, which the GPU reads and writes by itself: one copy by the processor less,
    and several are under way at once. PyTorch gives out that memory and takes it back when the copy is done.

    Args:
        device: of the GPU, such as `cuda:0`.
        pins: False where there is no pinned memory: on devices that stand for a GPU in tests.
    """

    def __init__(self, device: str, pins: bool = True) -> None:
        self._device = torch.device(device)
        self._pins = pins

    def feeding(self, feed: Callable[[Feeds], Call]) -> Callable[[Feeds], Call]:
        """Make arguments whose tensors are all on the GPU of what makes them on the host."""

        def moved(feeds: Feeds) -> Call:
            args, kwargs = pytree.tree_map_only(torch.Tensor, self.to_device, feed(feeds))
            return args, kwargs

        return moved

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Begin to copy a tensor of the host."""
        staged = tensor.pin_memory() if self._pins and tensor.numel() else tensor
        return staged.to(self._device, non_blocking=True)

    def to_host(self, values: Sequence[object]) -> list[object]:
        """Copy those of the values that are tensors on the GPU, and wait for all of them together."""
        fetched: list[object] = []
        is_under_way = False
        for value in values:
            if isinstance(value, torch.Tensor) and value.device.type == self._device.type:
                target = torch.empty(value.shape, dtype=value.dtype, pin_memory=self._pins)
                fetched.append(target.copy_(value, non_blocking=True))
                is_under_way = True
            else:
                fetched.append(value)
        if is_under_way and self._pins:
            torch.cuda.current_stream(self._device).synchronize()
        return fetched


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether a call failed because a device, or the host, had no memory for it."""
    return isinstance(exc, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(exc)


def is_lost(exc: BaseException, probe: Callable[[], object]) -> bool:
    """Whether an error of a call means that the process can use its GPU no more.

    After some errors of a kernel (an assertion, an illegal address) every later call fails with the same
    one, so another call is asked.

    Args:
        exc: of a call.
        probe: does anything on the GPU, such as waiting for it.
    """
    if isinstance(exc, torch.OutOfMemoryError) or not (
        isinstance(exc, torch.AcceleratorError) or "CUDA error" in str(exc)
    ):
        return False
    try:
        probe()
    except RuntimeError:
        return True
    return False


def describe_feeds(feeds: Mapping[str, Array]) -> str:
    """Names, shapes and sizes of a call's inputs, for an error that is about memory."""
    described = [
        f"{name} [{','.join(map(str, array.shape))}] ({array.nbytes / _MIB:.1f} MiB)"
        for name, array in feeds.items()
    ]
    return ", ".join(described)
