"""Continues many texts at once, one token each per step.

Texts join and leave between steps ("continuous batching"): nobody waits for a batch to fill or for the
longest text in it. A step for many texts takes much less time than a step for each of them would.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from .network import GPT2
from .sampling import Sampler, Sampling
from .weights import Floats


class Listener(Protocol):
    """Who waits for a text; called by the generator's thread, `on_end` or `on_error` last."""

    def is_cancelled(self) -> bool:
        """Whether nobody wants the rest; asked before each token."""

    def on_token(self, token: int) -> None:
        """The text goes on."""

    def on_end(self, is_cancelled: bool) -> None:
        """The text is complete, or nobody wants the rest."""

    def on_error(self, error: Exception) -> None:
        """There will be no more, because of this."""


@dataclass
class _Text:
    prompt: Sequence[int]
    left: int  # tokens it may still get
    sampler: Sampler
    listener: Listener
    token: int = -1  # the newest, which the network has not read yet


class Generator:
    """A network at work on the texts it was given.

    Give it texts by `submit`, from any thread. One thread makes the steps: in `run`, or by `generate`.

    Args:
        network: the network.
        end_tokens: each of them ends a text and is no part of it.
        begin_token: stands for an empty prompt.
        rows: how many texts to work on at once; further ones wait, the oldest goes first.
    """

    def __init__(self, network: GPT2, end_tokens: frozenset[int], begin_token: int, rows: int) -> None:
        self._network = network
        self._end_tokens = end_tokens
        self._begin_token = begin_token
        self._rows = rows
        self._cache = network.new_cache(rows)
        self._texts: list[
            _Text
        ] = []  # by row of the cache; only the thread that makes the steps touches both
        self._waiting: deque[_Text] = deque()
        self._changed = threading.Condition()  # guards _waiting and _is_closed
        self._is_closed = False

    def submit(self, prompt: Sequence[int], sampling: Sampling, listener: Listener) -> None:
        """Have `prompt` continued.

        Raises:
            ValueError: the network cannot hold so many tokens.
        """
        prompt = prompt or [self._begin_token]
        context = self._network.context
        if len(prompt) + sampling.max_new_tokens > context:
            raise ValueError(
                f"the prompt has {len(prompt)} tokens and max_new_tokens is {sampling.max_new_tokens}, "
                f"expected at most {context} together; shorten the prompt or lower max_new_tokens"
            )
        text = _Text(prompt, sampling.max_new_tokens, Sampler(sampling), listener)
        with self._changed:
            self._waiting.append(text)
            self._changed.notify()

    def generate(self, prompt: Sequence[int], sampling: Sampling) -> list[int]:
        """Return the tokens that continue `prompt`; for programs that have no thread in `run`."""
        collected = _Collected()
        self.submit(prompt, sampling, collected)
        while self._waiting or self._texts:
            self.step()
        if collected.error is not None:
            raise collected.error
        return collected.tokens

    def run(self) -> None:
        """Make steps until `close`; for a thread of its own."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._texts or self._is_closed)
                if self._is_closed:
                    return
            self.step()

    def close(self) -> None:
        """Have `run` return; texts that are not complete stay so."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def step(self) -> None:
        """Continue every text by one token."""
        for row in self._rows_from_behind():
            if self._texts[row].listener.is_cancelled():
                self._end(row, is_cancelled=True)
        scores = self._read_on() + self._admit()
        for row in self._rows_from_behind():
            self._continue(row, scores[row])

    def _read_on(self) -> list[Floats]:
        """Let the network read the newest token of each text; returns what it expects next, by row."""
        if not self._texts:
            return []
        tokens = np.array([[text.token] for text in self._texts])
        try:
            state = self._network.read(tokens, self._cache)
            return list(self._network.scores(state[:, -1]))
        except Exception as error:  # the network's: whatever it is, everybody is told and new texts go on
            for row in self._rows_from_behind():
                self._fail(row, error)
            return []

    def _admit(self) -> list[Floats]:
        """Let waiting texts in while rows are free; returns what the network expects after each prompt."""
        scores = []
        while len(self._texts) < self._rows:
            with self._changed:
                if not self._waiting:
                    break
                text = self._waiting.popleft()
            row = self._cache.add()
            self._texts.append(text)
            if text.listener.is_cancelled():
                self._end(row, is_cancelled=True)
                continue
            try:
                state = self._network.read(np.array([text.prompt]), self._cache, row)
                scores.append(self._network.scores(state[0, -1]))
            except Exception as error:  # as above
                self._fail(row, error)
        return scores

    def _continue(self, row: int, scores: Floats) -> None:
        text = self._texts[row]
        text.token = text.sampler.choose(scores)
        if text.token in self._end_tokens:
            self._end(row)
            return
        text.left -= 1
        try:
            text.listener.on_token(text.token)
        except Exception as error:  # the listener's: it costs this text only
            self._fail(row, error)
            return
        if text.left == 0:
            self._end(row)

    def _end(self, row: int, *, is_cancelled: bool = False) -> None:
        listener = self._drop(row).listener
        try:
            listener.on_end(is_cancelled)
        except Exception as error:
            with suppress(Exception):
                listener.on_error(error)

    def _fail(self, row: int, error: Exception) -> None:
        listener = self._drop(row).listener
        with suppress(Exception):  # who cannot even take an error is beyond help; the others go on
            listener.on_error(error)

    def _drop(self, row: int) -> _Text:
        """Take a text out; the last one moves to its row, here as in the cache."""
        self._cache.drop(row)
        text, last = self._texts[row], self._texts.pop()
        if last is not text:
            self._texts[row] = last
        return text

    def _rows_from_behind(self) -> range:
        """The rows in use, the last first: so a text that moves into the row of another has had its turn."""
        return range(len(self._texts) - 1, -1, -1)


@dataclass
class _Collected:
    """The listener of `generate`."""

    tokens: list[int] = field(default_factory=list)
    error: Exception | None = None

    def is_cancelled(self) -> bool:
        return False

    def on_token(self, token: int) -> None:
        self.tokens.append(token)

    def on_end(self, is_cancelled: bool) -> None:
        pass

    def on_error(self, error: Exception) -> None:
        self.error = error
