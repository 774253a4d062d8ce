"""One model version among those that share resources: which of its instances may execute now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tritonpy.errors import Internal
from tritonpy.model.execution import Instance
from tritonpy.model.instance_set import StartInstance
from tritonpy.model.placement import Slot
from tritonpy.request import InferRequest
from tritonpy.scheduler.decision import BatchingPolicy, Dispatch, WaitUntil
from tritonpy.scheduler.rate_limiter import Claim, RateLimiter, WaitingCall

Submit = Callable[[Instance, Dispatch, Claim], None]
"""Gives an instance a batch; the claim is given back at its end."""


class Contender:
    """Feeds the instances of one model version as far as they get their resources; owned by the loop.

    An instance waits for resources only while there is a batch for it. Until it has them its requests stay in
    the queue, where they can be cancelled, can expire and are joined by others.

    Args:
        limiter: what all models share.
        on_turn: called when an instance that waits may go now; it is to call `feed`.
    """

    def __init__(self, limiter: RateLimiter, on_turn: Callable[[], None]) -> None:
        self._limiter = limiter
        self._on_turn = on_turn
        self._claims: dict[Instance, Claim] = {}
        self._waiting: list[Claim] = []

    def limited(self, start: StartInstance) -> StartInstance:
        """Start instances as `start` does, if there will be enough resources for them."""

        async def start_limited(slot: Slot) -> Instance:
            claim = self._limiter.join(slot, self._on_turn)
            claim.level = max(claim.level, min((other.level for other in self._claims.values()), default=0))
            try:
                instance = await start(slot)
            except BaseException:
                self._limiter.leave(claim)
                raise
            self._claims[instance] = claim
            return instance

        return start_limited

    def leave(self, instance: Instance) -> None:
        """An instance has been closed."""
        claim = self._claims.pop(instance, None)
        if claim is not None:
            self._limiter.leave(claim)

    def note_call(self, request: InferRequest) -> None:
        """A request was made by models that wait for its answer and hold resources meanwhile.

        A claim that has reserved those waits for them, so this model may not wait for that claim.

        Raises:
            Internal: every instance of this model needs what they hold, or others that wait as they do.
        """
        claims = tuple(self._claims.values())
        call = WaitingCall(request, claims)
        if not (claims and call.holders):
            return
        if holders := self._limiter.note_call(call):
            names = ", ".join(f"'{claim.name}'" for claim in holders)
            whose = "its callers" if len(holders) == len(call.holders) else "callers that wait like its own"
            raise Internal(
                f"model '{request.model_name}' cannot be called: it would wait for ever for resources that "
                f"{whose} hold ({names}). --rate-limit-resource says how much there is"
            )
        for claim in claims:
            claim.overtakes = True

    def feed(
        self,
        policy: BatchingPolicy,
        instances: Sequence[Instance],
        clock: Callable[[], int],
        submit: Submit,
        *,
        is_bound: bool = False,
    ) -> int:
        """Submit batches as long as an instance is free, gets its resources and has something to execute.

        Args:
            policy: has the requests that wait.
            instances: what may be fed.
            clock: monotonic nanoseconds.
            submit: takes what is to be executed.
            is_bound: a batch belongs to a certain instance, so each of them waits for its own.

        Returns:
            when to ask again, 0 for never.
        """
        if policy.waiting_count:
            self._catch_up()
        while True:
            deadline_ns = 0
            refused: list[Claim] = []
            for instance, claim in self._in_turn(instances):
                now_ns = clock()
                if policy.has_batch(now_ns, instance):
                    if not self._limiter.take(claim):
                        refused.append(claim)
                        continue
                    decision = policy.decide(now_ns, instance)
                    assert isinstance(decision, Dispatch)  # nothing has changed since it had a batch
                    submit(instance, decision, claim)
                    break
                decision = policy.decide(now_ns, instance)
                if isinstance(decision, WaitUntil):
                    deadline_ns = min(deadline_ns or decision.deadline_ns, decision.deadline_ns)
            else:
                self._wait_for(refused if is_bound else refused[:1])
                return deadline_ns

    def stop(self) -> None:
        """Nothing waits any more."""
        self._wait_for([])

    def _in_turn(self, instances: Sequence[Instance]) -> list[tuple[Instance, Claim]]:
        # One execution more than run side by side would hold resources without using them.
        free = [
            (instance, self._claims[instance])
            for instance in instances
            if instance.is_ready and instance.depth < instance.concurrency
        ]
        return sorted(free, key=lambda pair: pair[1].turn)

    def _wait_for(self, claims: list[Claim]) -> None:
        for claim in self._waiting:
            if claim not in claims:
                self._limiter.forget(claim)
        for claim in claims:
            self._limiter.wait(claim)
        self._waiting = claims

    def _catch_up(self) -> None:
        """Raise the level to that of the competition, unless this model takes part already."""
        if self._waiting or not self._claims or any(instance.depth for instance in self._claims):
            return
        claims = self._claims.values()
        first = min(claims, key=lambda claim: claim.turn)
        behind = self._limiter.floor(first) - first.level
        if behind > 0:
            for claim in claims:
                claim.level += behind
