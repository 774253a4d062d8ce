"""Threads that answer requests of decoupled backends, one per request, and the hooks that keep them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tritonpy.plugin import InferRequest, InferResponse, Internal, ModelInstance, TritonError, hookimpl

Answer = Callable[[InferRequest], None]


class AnswerThreads:
    """The threads of one instance; started and joined on the instance's thread.

    Args:
        name: the threads' name, for debuggers.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: list[threading.Thread] = []

    def start(self, answer: Answer, request: InferRequest) -> None:
        """Run `answer(request)` on a new thread; what it raises becomes the request's final response."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # A daemon: a server that has to leave does not wait for a client's delays.
        thread = threading.Thread(target=_guarded, args=(answer, request), name=self._name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        """Wait until every request has been answered."""
        for thread in self._threads:
            thread.join()


def _guarded(answer: Answer, request: InferRequest) -> None:
    try:
        answer(request)
    except TritonError as error:
        request.respond(InferResponse(error=error))
    except Exception as exc:
        request.respond(InferResponse(error=Internal(f"{type(exc).__name__}: {exc}")))


@hookimpl
def model_instance_initialize(instance: ModelInstance) -> None:
    """Prepare for threads that answer while the next requests come."""
    instance.state = AnswerThreads(f"{instance.name}-answer")


@hookimpl
def model_instance_finalize(instance: ModelInstance) -> None:
    """Wait until every request is answered."""
    instance.state.join()
