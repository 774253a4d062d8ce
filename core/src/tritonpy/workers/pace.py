"""How far ahead a worker is fed, and whether to stay awake for its answer: decided from times only."""

from __future__ import annotations

import os

# What waits in a worker's socket can be neither cancelled in the queue nor given to another instance, so no
# more than about a millisecond of work is sent ahead; a model that needs up to ten gets one batch ahead,
# which hides the way there and back.
_MOST_AHEAD = 15
_AHEAD_NS = 1_000_000
_ONE_AHEAD_BELOW_NS = 10_000_000

# Putting a core to sleep and waking it costs more than a quick model computes (ADR 0007).
_LINGER_BELOW_NS = 50_000
LINGER_NS = 100_000
_HAS_CORES = (os.cpu_count() or 1) > 1


class Pace:
    """What is known of a model's executions: a running mean of their durations.

    Attributes:
        is_quick: the loop may stay awake for `LINGER_NS` while it waits for an answer.
    """

    def __init__(self) -> None:
        self._usual_ns = _AHEAD_NS
        self.is_quick = False

    def learn(self, duration_ns: int) -> int:
        """Take one more duration into account.

        Returns:
            how many batches the worker may have, the running one included.
        """
        self._usual_ns += (duration_ns - self._usual_ns) // 8
        usual_ns = max(self._usual_ns, 1)
        self.is_quick = usual_ns < _LINGER_BELOW_NS and _HAS_CORES
        ahead = min(_MOST_AHEAD, _AHEAD_NS // usual_ns)
        return 1 + (ahead or int(usual_ns < _ONE_AHEAD_BELOW_NS))
