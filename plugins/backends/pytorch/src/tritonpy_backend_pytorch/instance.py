"""One instance of a model: from requests to one call and back."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import torch
from torch.utils import _pytree as pytree
from tritonpy.plugin import (
    Array,
    InferRequest,
    InferResponse,
    Internal,
    ModelInstance,
    TritonError,
    Unavailable,
    usable_core_count,
)

from tritonpy_backend_pytorch.feeding import Call, Feeds
from tritonpy_backend_pytorch.gpu import (
    DeviceLost,
    Transfers,
    describe_feeds,
    is_lost,
    is_out_of_memory,
)
from tritonpy_backend_pytorch.model import TorchModel, device_of
from tritonpy_backend_pytorch.program import Program
from tritonpy_backend_pytorch.results import Fetch, Picker
from tritonpy_backend_pytorch.settings import Settings, fair_thread_count

_log = logging.getLogger("tritonpy.backend.pytorch")

LOST_EXIT_CODE = 71
"""With which a worker ends that has lost its GPU: `EX_OSERR` of BSD's sysexits."""


class TorchInstance:
    """Executes batches; made, used and closed on one thread, whose modes of PyTorch it sets.

    Args:
        model: the loaded model, bound to its configuration.
        instance: what the server knows of it.

    Attributes:
        lost: the error of all requests once a call has cost the process its GPU.
    """

    def __init__(self, model: TorchModel, instance: ModelInstance) -> None:
        self._modes = ExitStack()
        self._instance = instance
        settings = model.settings
        _set_threads(model, instance)
        _set_executor(settings)
        # Entered once: to enter it for each call takes as long as a small model.
        self._modes.enter_context(torch.inference_mode() if settings.uses_inference_mode else torch.no_grad())
        if not settings.uses_optimized_execution:
            self._modes.enter_context(torch.jit.optimized_execution(False))
        is_on_gpu = instance.kind != "KIND_CPU" and torch.cuda.is_available()
        self._cleans_cache = settings.cleans_cache and is_on_gpu
        device = device_of(instance.kind, instance.device_id)
        self.lost: TritonError | None = None
        self._wait = partial(torch.cuda.synchronize, device) if is_on_gpu else None
        if is_on_gpu and device is not None:  # a stream of its own, on which all calls of this thread run
            stream = torch.cuda.Stream(device)
            self._modes.enter_context(torch.cuda.stream(stream))
            self._wait = stream.synchronize
        program = model.program_for(instance)
        self._plan = model.plan
        self._rules = model.rules
        self._call = program.call if settings.uses_cudnn or not is_on_gpu else _without_cudnn(program.call)
        self._failure = program.failure.replace("{instance}", instance.name)
        feed: Callable[[Feeds], Call] = program.feeder(instance.model.config, model.datatypes).call
        fetch: Fetch | None = None
        if device not in (None, "cpu"):
            transfers = Transfers(device)
            feed, fetch = transfers.feeding(feed), transfers.to_host
        self._feed = feed
        if settings.warms_up and not instance.model.config.get("model_warmup"):
            self._warm_up(program, device)
        # A worker copies responses into memory that is shared with the server, before its next call.
        copies = program.keeps_results and not _is_worker()
        self._pick = Picker(model.plan.outputs, program.known_outputs, program.owned, copies, fetch).pick

    def close(self) -> None:
        """Leave the thread as it was."""
        self._modes.close()

    def execute(self, requests: Sequence[InferRequest]) -> list[InferResponse]:
        """Answer every request, in as few calls as they allow; see `BatchPlan`."""
        if self.lost is not None:
            return [InferResponse(error=self.lost) for _ in requests]
        try:
            return self._plan.execute(requests, self._run)
        except DeviceLost as exc:
            return self._give_up(requests, str(exc))

    def _warm_up(self, program: Program, device: str | None) -> None:
        """Run the sample in the model's file before any request; a model that fails with it is served."""
        instance = self._instance
        start = instance.now_ns()
        try:
            call = program.sample()
            if call is None:
                return
            for _ in range(program.sample_runs):
                args, kwargs = pytree.tree_map_only(torch.Tensor, partial(_copied, device=device), call)
                self._call(*args, **kwargs)
            if self._wait is not None:
                self._wait()
        except Exception as exc:  # models raise anything
            _log.warning(
                "model '%s': the sample in its file fails, so that %s is not warmed up: %s",
                instance.model.name,
                instance.name,
                exc,
            )
            return
        _log.debug(
            "%s has run the sample in the file of model '%s' in %d ms",
            instance.name,
            instance.model.name,
            (instance.now_ns() - start) // 1_000_000,
        )

    def _run(self, feeds: dict[str, Array], names: list[str]) -> list[Array]:
        instance = self._instance
        self._rules.check(feeds)
        try:
            args, kwargs = self._feed(feeds)
            start = instance.now_ns()
            result = self._call(*args, **kwargs)
            if self._wait is not None:  # a GPU has only been told what to do
                self._wait()
            instance.report_compute(instance.compute_start_ns or start, instance.now_ns())
            arrays = self._pick(result, names)
        except TritonError:
            raise
        except Exception as exc:  # models raise anything
            raise self._error_of(exc, feeds) from exc
        if self._cleans_cache:
            torch.cuda.empty_cache()
        return arrays

    def _error_of(self, exc: Exception, feeds: Feeds) -> Exception:
        """What the failure of a call is for its requests, or for the instance."""
        # PyTorch's own errors are sentences; those of Python, such as a `KeyError`, need their name.
        text = f"{self._failure}{exc if isinstance(exc, _SPEAKING) else _described(exc)}"
        if is_out_of_memory(exc):
            if self._wait is not None:
                torch.cuda.empty_cache()  # what is kept for later calls may be what the next one needs
            return Internal(f"{text}\nThe inputs of the call: {describe_feeds(feeds)}")
        if self._wait is not None and is_lost(exc, self._wait):
            return DeviceLost(text)
        return Internal(text)

    def _give_up(self, requests: Sequence[InferRequest], text: str) -> list[InferResponse]:
        """Answer requests whose call has cost the process its GPU; a worker ends, and is started anew."""
        instance = self._instance
        _log.error("%s of model '%s' has lost its GPU: %s", instance.name, instance.model.name, text)
        self.lost = Unavailable(
            f"{text}\n{instance.name} can use its GPU no more; a server whose models run in processes starts "
            "them anew, one in which they run on threads has to be started again"
        )
        responses = [InferResponse(error=self.lost) for _ in requests]
        if not _is_worker():
            return responses
        for request, response in zip(requests, responses, strict=True):
            request.respond(response)
        os._exit(LOST_EXIT_CODE)


def _is_worker() -> bool:
    """Only a worker runs its instance on the main thread, and it has nothing else to do."""
    return threading.current_thread() is threading.main_thread()


_SPEAKING = (RuntimeError, torch.jit.Error)


def _described(exc: Exception) -> str:
    name, text = type(exc).__name__, str(exc)
    return f"{name}: {text}" if text else name


def _copied(tensor: torch.Tensor, device: str | None) -> torch.Tensor:
    """A copy of a tensor, which a call may write to; on a device, if there is one."""
    return tensor.to(device, copy=True) if device is not None else tensor.clone()


def _without_cudnn(call: Callable[..., object]) -> Callable[..., object]:
    """The call without cuDNN; the switch is that of the process, so it is thrown for the call only."""

    def without(*args: object, **kwargs: object) -> object:
        with torch.backends.cudnn.flags(enabled=False):
            return call(*args, **kwargs)

    return without


def _set_executor(settings: Settings) -> None:
    """Throw the switches of TorchScript that the model names; they are those of the process."""
    for value, throw in (
        (settings.jit_executor, torch._C._jit_set_profiling_executor),
        (settings.jit_profiling, torch._C._jit_set_profiling_mode),
        (settings.tensor_fuser, torch._C._jit_set_texpr_fuser_enabled),
    ):
        if value is not None:
            throw(value)


def _set_threads(model: TorchModel, instance: ModelInstance) -> None:
    """Set the threads that calls from this thread may use; each instance has its own number."""
    settings = model.settings
    # A thread takes the number that was set last, by whatever thread, when it first asks for it.
    torch.get_num_threads()
    torch.set_num_threads(
        settings.thread_count or fair_thread_count(instance.model.config, usable_core_count())
    )
    if settings.interop_thread_count is not None:
        if torch.get_num_interop_threads() == settings.interop_thread_count:
            return
        try:
            torch.set_num_interop_threads(settings.interop_thread_count)
        except RuntimeError:  # it is one number for the whole process, and models have run with it
            _log.warning(
                "model '%s': INTER_OP_THREAD_COUNT %d is not taken, another model of this process "
                "has begun with %d; "
                "parameter TRITONPY_ISOLATION: process gives the model a process of its own",
                instance.model.name,
                settings.interop_thread_count,
                torch.get_num_interop_threads(),
            )
