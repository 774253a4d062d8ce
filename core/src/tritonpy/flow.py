"""Flow control for responses that a client does not take as fast as its model sends them.

They wait where they are, in a `Backlog`: up to a limit they are held, then the sender of the request waits,
and a client that takes nothing for long is given up. A sender that cannot wait, such as one on a thread that
also answers others, may go on until four times the limit is held; then its client is given up at once. So
memory stays bounded, and other clients notice nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tritonpy.ipc import window
from tritonpy.options import ServerOptions


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of how far a client may fall behind.

    Attributes:
        max_response_count: responses that are held for one stream before their senders wait.
        max_byte_size: bytes of them. A response that finds nothing held is held at any size.
        timeout_s: how long a client may take nothing while senders wait for it; 0 for no limit.
    """

    max_response_count: int = 1024
    max_byte_size: int = 67_108_864
    timeout_s: float = 30.0


DEFAULT_LIMITS = FlowLimits()


def flow_limits(options: ServerOptions) -> FlowLimits:
    """Limits of clients, and of models with what they have called."""
    return FlowLimits(
        options.max_stream_response_count, options.max_stream_byte_size, options.slow_client_timeout_s
    )


_LOOKS = 4
"""How often a client is looked at within its time. Each look must find that it has taken nothing: one alone
may come late, from a loop that was kept from taking notice of its clients."""


class ResponseFlow:
    """The flow of one request's responses: its sender may go on, or is paused; on the loop only.

    For the server only:
        upstream: the flow of another request whose client takes what this one's model sends, such as that of
            an ensemble; the sender waits for that client as well.
        is_given_up: the server has cancelled the request, because its client does not take its responses.
    """

    __slots__ = ("_is_ended", "_pause_count", "_waiting", "is_given_up", "upstream")

    def __init__(self) -> None:
        self._pause_count = 0
        self._waiting: list[Callable[[], None]] = []
        self._is_ended = False
        self.upstream: ResponseFlow | None = None
        self.is_given_up = False

    @property
    def is_paused(self) -> bool:
        """True while the sender has to wait."""
        return self._pause_count > 0

    def pause(self) -> None:
        """Have the sender wait, until `resume` was called as often."""
        self._pause_count += 1

    def resume(self) -> None:
        """Let the sender go on."""
        self._pause_count -= 1
        if not self._pause_count:
            self._let_go()

    def when_open(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` as soon as the sender need not wait: now, or later."""
        if self._is_ended:
            go_on()
        elif self._pause_count:
            self._waiting.append(go_on)
        elif self.upstream is not None:
            self.upstream.when_open(go_on)
        else:
            go_on()

    def end(self) -> None:
        """The request was cancelled, or is answered: its client is no longer waited for."""
        self._is_ended = True
        self._let_go()

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            self.when_open(go_on)


class Backlog:
    """The responses that one client has not taken yet: their number and bytes; on the loop only.

    Args:
        limits: how many there may be.
        on_stalled: called with the reason when the client is to be given up; it calls `close`, or is called
            again for the next response that is too much.
        expansion: how many times larger responses may be here than where they were sent.

    Attributes:
        count: responses held.
        byte_size: their bytes.
    """

    __slots__ = (
        "_expansion",
        "_idle_looks",
        "_is_closed",
        "_limits",
        "_on_stalled",
        "_paused",
        "_taken",
        "_timer",
        "byte_size",
        "count",
    )

    def __init__(self, limits: FlowLimits, on_stalled: Callable[[str], None], expansion: int = 1) -> None:
        self._expansion = expansion
        self.count = 0
        self.byte_size = 0
        self._limits = limits
        self._on_stalled = on_stalled
        self._paused: list[ResponseFlow] = []
        self._taken = 0
        self._idle_looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def add(self, byte_size: int, flow: Callable[[], ResponseFlow] | None = None) -> bool:
        """Hold a response.

        Args:
            byte_size: its bytes.
            flow: gives the flow of its request; None when its model sends no more than one, which cannot be
                told to wait.

        Returns:
            False when so much is held that the client was given up.
        """
        limits = self._limits
        if self._is_closed:
            return False
        if self._is_far_beyond(is_stream=flow is not None):
            self._stalled(
                f"{self.count} responses of {self.byte_size} bytes wait for the client, which reads too "
                f"slowly to be sent more: at most {limits.max_response_count} responses or "
                f"{limits.max_byte_size} bytes are held, four times as much where the model cannot wait"
            )
            return False
        self.count += 1
        self.byte_size += byte_size
        if self.byte_size >= limits.max_byte_size or (
            flow is not None and self.count >= limits.max_response_count
        ):
            if flow is not None:
                paused = flow()
                if paused not in self._paused:
                    paused.pause()
                    self._paused.append(paused)
            if self._timer is None and limits.timeout_s:
                self._taken = self._idle_looks = 0
                self._start_timer()
        return True

    def take(self, byte_size: int) -> None:
        """The client has taken a response."""
        self.count -= 1
        self.byte_size -= byte_size
        self._taken += 1
        if (self._paused or self._timer is not None) and self._has_room():
            self._resume()

    def close(self) -> None:
        """Forget everything that is held; its client is no longer waited for."""
        self._is_closed = True
        self.count = self.byte_size = 0
        self._resume()

    def _has_room(self) -> bool:
        limits = self._limits
        return self.byte_size * 2 <= limits.max_byte_size and self.count * 2 <= limits.max_response_count

    def _is_far_beyond(self, *, is_stream: bool) -> bool:
        """True if so much is held that some sender cannot be one that waits."""
        limits = self._limits
        ahead = len(self._paused) + 1  # each of them may have so much under way
        own_byte_size = ahead * window.MOST_BYTE_SIZE * self._expansion
        if self.byte_size >= max(limits.max_byte_size * 4, limits.max_byte_size + own_byte_size):
            return True
        own_count = ahead * window.MOST_RESPONSES
        return is_stream and self.count >= max(
            limits.max_response_count * 4, limits.max_response_count + own_count
        )

    def _resume(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        paused, self._paused = self._paused, []
        for flow in paused:
            flow.resume()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._limits.timeout_s / _LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        self._idle_looks = 0 if self._taken else self._idle_looks + 1
        self._taken = 0
        if self._idle_looks < _LOOKS:
            self._start_timer()
            return
        self._stalled(
            f"the client has taken nothing for {self._limits.timeout_s:g} seconds (--slow-client-timeout), "
            f"while {self.count} responses of {self.byte_size} bytes wait for it"
        )

    def _stalled(self, reason: str) -> None:
        if not self._is_closed:
            self._on_stalled(reason)


class Pausing(Protocol):
    """A step of an ensemble that can pause its model."""

    def pace(self) -> None:
        """Apply the current state: pause the model, or let it go on."""


class Pauses:
    """The steps of ensembles that pause one decoupled model; on the loop only.

    A step pauses its model until the responses it has are worked on. That work may wait for an answer of this
    same model, or for an instance that a model calling it occupies. So a model with callers is not paused.
    """

    __slots__ = ("_caller_count", "_steps")

    def __init__(self) -> None:
        self._caller_count = 0
        self._steps: set[Pausing] = set()

    @property
    def are_allowed(self) -> bool:
        """True if the model may be made to wait."""
        return not self._caller_count

    def add(self, step: Pausing) -> None:
        """The step pauses the model from now on."""
        self._steps.add(step)

    def remove(self, step: Pausing) -> None:
        """The step no longer pauses the model."""
        self._steps.discard(step)

    def caller_came(self) -> None:
        """Another model waits for an answer: end all pauses."""
        self._caller_count += 1
        for step in tuple(self._steps):
            step.pace()

    def caller_left(self) -> None:
        """One caller no longer waits."""
        self._caller_count -= 1
