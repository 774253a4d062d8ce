"""Many texts continued at once, each as if it were alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from textgen.generator import Generator
from textgen.network import GPT2, Cache
from textgen.sampling import Sampling
from textgen.tokenizer import Tokenizer

END = 0
ROWS = 4
GREEDY = Sampling(max_new_tokens=24, temperature=0)


@dataclass
class Recorder:
    """Listens, and may hang up, or fail, after some tokens."""

    gone_after: int = 10_000
    fails_after: int = 10_000
    tokens: list[int] = field(default_factory=list)
    is_cancelled_at_end: bool | None = None
    error: Exception | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def is_cancelled(self) -> bool:
        return len(self.tokens) >= self.gone_after

    def on_token(self, token: int) -> None:
        if len(self.tokens) == self.fails_after:
            raise OSError("broken pipe")
        self.tokens.append(token)

    def on_end(self, is_cancelled: bool) -> None:
        self.is_cancelled_at_end = is_cancelled
        self.done.set()

    def on_error(self, error: Exception) -> None:
        self.error = error
        self.done.set()


Make = Callable[..., Generator]


@pytest.fixture
def make(network: GPT2) -> Make:
    def make(ends: frozenset[int] = frozenset([END]), rows: int = ROWS, network: Any = network) -> Generator:
        return Generator(network, ends, END, rows)

    return make


def steps(generator: Generator, *recorders: Recorder) -> int:
    """Make steps until all are done; returns how many it took."""
    for count in range(1, 1000):
        generator.step()
        if all(recorder.done.is_set() for recorder in recorders):
            return count
    raise AssertionError("the generator does not come to an end")


def test_without_chance_texts_go_on_as_hugging_face_continues_them(
    make: Make, tokenizer: Tokenizer, reference: dict[str, Any]
) -> None:
    generator = make(ends=frozenset())

    continued = {
        prompt: generator.generate(tokenizer.encode(prompt), GREEDY) for prompt in reference["greedy"]
    }

    assert continued == reference["greedy"]


def test_a_seed_gives_the_same_text_alone_and_in_company(make: Make, tokenizer: Tokenizer) -> None:
    prompts = [tokenizer.encode(text) for text in ("How can you be", "Return", "If the", "x", "def f(", "")]
    settings = [
        Sampling(max_new_tokens=10 + 7 * number, temperature=0.9, seed=number)
        for number in range(len(prompts))
    ]
    alone = [make().generate(prompt, setting) for prompt, setting in zip(prompts, settings, strict=True)]
    company, recorders = make(), [Recorder() for _ in prompts]

    for prompt, setting, recorder in zip(prompts, settings, recorders, strict=True):
        company.submit(prompt, setting, recorder)
        company.step()
    steps(company, *recorders)

    assert [recorder.tokens for recorder in recorders] == alone
    assert len({tuple(tokens) for tokens in alone}) == len(prompts)


def test_texts_share_the_steps_and_those_beyond_the_rows_wait(make: Make, tokenizer: Tokenizer) -> None:
    generator, recorders = make(ends=frozenset()), [Recorder() for _ in range(2 * ROWS)]
    for recorder in recorders:
        generator.submit(tokenizer.encode("Return"), Sampling(max_new_tokens=5, seed=1), recorder)

    generator.step()
    begun = [len(recorder.tokens) for recorder in recorders]
    count = 1 + steps(generator, *recorders)

    assert begun == [1] * ROWS + [0] * ROWS
    assert [len(recorder.tokens) for recorder in recorders] == [5] * 2 * ROWS
    assert count == 10


def test_an_end_token_ends_a_text_and_is_no_part_of_it(make: Make, tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("How can you be")
    endless = make(ends=frozenset()).generate(prompt, GREEDY)
    end = endless[6]

    ended = make(ends=frozenset([end])).generate(prompt, GREEDY)

    assert ended == endless[: endless.index(end)]


def test_an_empty_prompt_begins_a_text(make: Make) -> None:
    generator = make(ends=frozenset())

    assert generator.generate([], GREEDY) == generator.generate([END], GREEDY)


def test_a_text_may_fill_the_context_and_not_more(make: Make, network: GPT2, tokenizer: Tokenizer) -> None:
    generator = make(ends=frozenset())
    prompt = tokenizer.encode(" a" * 20)
    most = network.context - len(prompt)

    tokens = generator.generate(prompt, Sampling(max_new_tokens=most, temperature=0))

    assert len(tokens) == most
    with pytest.raises(
        ValueError, match=f"has 20 tokens and max_new_tokens is {most + 1}, expected at most 256 together"
    ):
        generator.submit(prompt, Sampling(max_new_tokens=most + 1), Recorder())


def test_a_text_nobody_waits_for_any_more_is_given_up_between_two_tokens(
    make: Make, tokenizer: Tokenizer
) -> None:
    generator = make(ends=frozenset())
    gone, patient = Recorder(gone_after=3), Recorder()
    for recorder in (gone, patient):
        generator.submit(tokenizer.encode("Return"), GREEDY, recorder)

    steps(generator, gone, patient)

    assert (len(gone.tokens), gone.is_cancelled_at_end) == (3, True)
    assert patient.tokens == make(ends=frozenset()).generate(tokenizer.encode("Return"), GREEDY)
    assert patient.is_cancelled_at_end is False


def test_a_text_that_nobody_waits_for_is_not_begun(make: Make, tokenizer: Tokenizer) -> None:
    generator, gone = make(), Recorder(gone_after=0)
    generator.submit(tokenizer.encode("Return"), GREEDY, gone)

    assert steps(generator, gone) == 1
    assert (gone.tokens, gone.is_cancelled_at_end) == ([], True)


def test_a_listener_that_fails_costs_its_own_text_only(make: Make, tokenizer: Tokenizer) -> None:
    generator = make(ends=frozenset())
    failing, fine = Recorder(fails_after=2), Recorder()
    for recorder in (failing, fine):
        generator.submit(tokenizer.encode("Return"), GREEDY, recorder)

    steps(generator, failing, fine)

    assert str(failing.error) == "broken pipe"
    assert fine.tokens == make(ends=frozenset()).generate(tokenizer.encode("Return"), GREEDY)


class BreakingNetwork:
    """The network, which fails at one of its calls."""

    def __init__(self, network: GPT2, fails_at: int) -> None:
        self._network = network
        self._left = fails_at
        self.context = network.context
        self.new_cache = network.new_cache
        self.scores = network.scores

    def read(self, tokens: np.ndarray, cache: Cache, first: int = 0) -> np.ndarray:
        self._left -= 1
        if self._left == 0:
            raise MemoryError("no room")
        return self._network.read(tokens, cache, first)


@pytest.mark.parametrize(("fails_at", "failed"), [(1, [0]), (2, [1]), (3, [0, 1])])
def test_a_failing_network_is_told_to_whom_it_concerns_and_the_next_text_succeeds(
    make: Make, network: GPT2, tokenizer: Tokenizer, fails_at: int, failed: list[int]
) -> None:
    generator = make(network=BreakingNetwork(network, fails_at))  # calls 1 and 2 read prompts, 3 goes on
    recorders = [Recorder(), Recorder()]
    for recorder in recorders:
        generator.submit(tokenizer.encode("Return"), GREEDY, recorder)

    steps(generator, *recorders)

    assert [number for number, recorder in enumerate(recorders) if recorder.error] == failed
    assert all(str(recorders[number].error) == "no room" for number in failed)
    assert generator.generate(tokenizer.encode("x"), GREEDY) == make().generate(tokenizer.encode("x"), GREEDY)


def test_generate_raises_what_the_network_raised(make: Make, network: GPT2) -> None:
    with pytest.raises(MemoryError, match="no room"):
        make(network=BreakingNetwork(network, 2)).generate([5], GREEDY)


def test_a_thread_takes_texts_as_they_come_until_it_is_closed(make: Make, tokenizer: Tokenizer) -> None:
    generator = make()
    thread = threading.Thread(target=generator.run)
    thread.start()
    try:
        for text in ("Return", "If the"):
            recorder = Recorder()
            generator.submit(tokenizer.encode(text), GREEDY, recorder)

            assert recorder.done.wait(30)
            assert recorder.tokens == make().generate(tokenizer.encode(text), GREEDY)
    finally:
        generator.close()
        thread.join(30)
    assert not thread.is_alive()
