"""Exceptions in `execute`: said in the log, and made into what clients read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import triton_python_backend_utils as pb_utils

from .channel import Channel, frame
from .failure import Failure, as_execution_failure, full_traceback
from .output import current_request_id

TRACEBACK_SETTING = "traceback-to-client"

_PAUSE_S = 1.0
_ERROR = 2


class FailureLog:
    """Logs what a model raises, with its traceback, and at most once in a second.

    A model that fails a thousand times in a second would otherwise be slow as well.

    Args:
        channel: where log lines go.
        instance: the name of the instance.
        path: of the model's file.
        settings: of the backend; `traceback-to-client` shows clients what the log shows.
        clock: the time in seconds.
    """

    def __init__(
        self,
        channel: Channel,
        instance: str,
        path: str,
        settings: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._instance = instance
        self._path = path
        self._shows_clients = settings.get(TRACEBACK_SETTING, "").lower() in ("true", "1")
        self._clock = clock
        self._silent_until_s = 0.0
        self._unsaid_count = 0
        self._said: Failure | None = None
        self._unsaid: Failure | None = None

    def failure(self, exc: BaseException) -> Failure:
        """The code and text of an exception for the client, which the log has by then."""
        code, text = as_execution_failure(exc, self._instance)
        if isinstance(exc, pb_utils.TritonError):  # an answer that the model means to give
            return code, text
        said = text.partition("\n")[0]
        is_silent = self._clock() < self._silent_until_s
        trace = "" if is_silent and not self._shows_clients else full_traceback(exc)
        if self._shows_clients and trace:
            text += f"\n{trace}"
        failure = code, text
        if is_silent:
            self._unsaid_count += 1
            self._unsaid = failure
        else:
            self._say(said, trace)
            self._said = failure
        return failure

    def insist(self, failure: Failure) -> None:
        """No client waits for this failure: log it, however soon after another."""
        if failure is self._unsaid:
            self._unsaid_count -= 1
        if failure is not self._said:
            self._say(failure[1].partition("\n")[0], "")

    def _say(self, text: str, trace: str) -> None:
        if self._unsaid_count:
            text += f" ({self._unsaid_count} failures before this one were not logged)"
        self._channel.send(frame.LOG, _ERROR, text, current_request_id(), self._path, 0, trace)
        self._unsaid_count = 0
        self._silent_until_s = self._clock() + _PAUSE_S
