"""What one replica does for one model: what is under way, and how quick it is, by the answers that came."""

from __future__ import annotations

from dataclasses import dataclass

_WEIGHT = 1 / 32
"""Of the newest answer in a mean over all."""
_MOST_AT_ONCE = 4.0
"""By which an answer counts at most, in means: one that took very long says little of the next."""
_ALIKE = 1.25
"""Times that differ less say that nothing has waited."""


@dataclass(slots=True, eq=False)
class ModelLoad:
    """One model on one replica, as this router sees it; on the loop only.

    How long a request takes is known from answers, of which a busy replica gives no clear ones: those that
    found as many under way as there are instances have waited, or have been executed in one batch. So an
    answer gives a least and a most, between which what is known is left alone.

    Attributes:
        instance_count: that execute it there; 0 where that is not known.
        inflight: requests that this router has under way there.
        most_inflight: of these, at one time since the replica told of itself last.
        others: requests under way there that are not of this router, when it told last.
        service_s: what an execution takes that waits for nothing; 0 while that is not known.
        parallel: requests that are executed at a time, by all instances and in batches.
        is_tried: a request of this router was over, or goes on for as long as a client wants.
        passed_count: how often another replica was preferred since the last request, for being quicker.
    """

    instance_count: int = 0
    inflight: int = 0
    most_inflight: int = 0
    others: int = 0
    service_s: float = 0.0
    parallel: float = 1.0
    is_tried: bool = False
    passed_count: int = 0
    _answer_count: int = 0

    @property
    def under_way(self) -> int:
        """Requests for it: this router's, and those of others as far as is known."""
        return self.inflight + self.others

    def begin(self) -> int:
        """Note that this router sends a request; how many are before it."""
        ahead = self.inflight + self.others
        self.inflight += 1
        if self.inflight > self.most_inflight:
            self.most_inflight = self.inflight
        self.passed_count = 0
        return ahead

    def over(self) -> None:
        """A request is over."""
        self.inflight -= 1
        self.is_tried = True

    def heard(self, inflight_count: int) -> None:
        """Take what the replica tells: it may count requests that have been answered since."""
        self.others = max(0, inflight_count - self.most_inflight)
        self.most_inflight = self.inflight

    def answered(self, took_s: float, ahead: int) -> None:
        """Note an answer.

        Args:
            took_s: from the request.
            ahead: as `begin` has said.
        """
        depth, least = ahead + 1, max(1, self.instance_count)
        known_s = self.service_s
        seen_s = min(max(known_s, took_s / max(1.0, depth / least)), took_s)
        if self._answer_count:
            seen_s = min(seen_s, _MOST_AT_ONCE * known_s)
        self._answer_count += 1
        weight = max(1 / self._answer_count, _WEIGHT)
        self.service_s = known_s = known_s + weight * (seen_s - known_s)
        if depth > least:
            parallel = depth * known_s / took_s
            if took_s > _ALIKE * known_s or depth > self.parallel:
                self.parallel += _WEIGHT * (min(parallel, depth) - self.parallel)
        self.parallel = max(self.parallel, least)

    def forget(self) -> None:
        """Let the next answer alone count: it has not been asked for long."""
        self._answer_count = 0
