"""Which token is taken, and what a request may say about it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from textgen.sampling import Sampler, Sampling

SCORES = np.log(np.array([0.1, 0.5, 0.15, 0.25], np.float32))


def chosen(sampling: Sampling, count: int = 2000) -> np.ndarray:
    """How often each of four tokens is taken."""
    sampler = Sampler(sampling)
    return np.bincount([sampler.choose(SCORES) for _ in range(count)], minlength=4) / count


def test_temperature_0_takes_the_likeliest() -> None:
    assert chosen(Sampling(temperature=0), 10).tolist() == [0, 1, 0, 0]


def test_temperature_1_takes_each_as_often_as_its_chance() -> None:
    np.testing.assert_allclose(chosen(Sampling(temperature=1, seed=1)), np.exp(SCORES), atol=0.03)


def test_a_low_temperature_favours_the_likely_and_a_high_one_levels() -> None:
    low, high = chosen(Sampling(temperature=0.5, seed=1)), chosen(Sampling(temperature=50, seed=1))

    squares = np.exp(SCORES) ** 2
    np.testing.assert_allclose(low, squares / squares.sum(), atol=0.03)
    np.testing.assert_allclose(high, 0.25, atol=0.04)


def test_a_temperature_next_to_0_takes_the_likeliest() -> None:
    assert chosen(Sampling(temperature=5e-324), 10).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(("top_k", "possible"), [(1, {1}), (2, {1, 3}), (3, {1, 2, 3}), (9, {0, 1, 2, 3})])
def test_only_the_k_likeliest_are_taken(top_k: int, possible: set[int]) -> None:
    found = chosen(Sampling(temperature=5, top_k=top_k, seed=1))

    assert set(np.flatnonzero(found)) == possible


def test_top_k_0_means_all() -> None:
    assert (chosen(Sampling(temperature=5, top_k=0, seed=1)) > 0).all()


def test_a_seed_repeats_itself_and_none_does_not() -> None:
    def tokens(seed: int | None) -> list[int]:
        sampler = Sampler(Sampling(seed=seed))
        return [sampler.choose(SCORES) for _ in range(100)]

    assert tokens(5) == tokens(5)
    assert tokens(5) != tokens(6)
    assert tokens(None) != tokens(None)


def test_the_checkpoint_says_what_holds_without_parameters(checkpoint: Path) -> None:
    defaults = Sampling.from_pretrained(checkpoint)

    assert defaults == Sampling(max_new_tokens=40, temperature=0.6, top_k=40, seed=None)


def test_a_checkpoint_that_does_not_sample_takes_the_likeliest(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"do_sample": False, "temperature": 0.7}))

    assert Sampling.from_pretrained(tmp_path).temperature == 0


def test_a_request_changes_what_it_names_and_keys_of_others_are_left_alone() -> None:
    changed = Sampling(top_k=7).changed({"temperature": 1.5, "seed": 3, "headers": "x", "max_tokens": None})

    assert changed == Sampling(top_k=7, temperature=1.5, seed=3)


def test_numbers_may_come_as_text() -> None:
    given = {
        "temperature": "0.5",
        "top_k": "3",
        "max_new_tokens": "9",
        "seed": "1",
        "return_full_text": "false",
    }

    assert Sampling().changed(given) == Sampling(9, 0.5, 3, 1, return_full_text=False)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_new_tokens", 0, "a whole number from 1 on"),
        ("max_new_tokens", 2.5, "a whole number from 1 on"),
        ("max_new_tokens", True, "a whole number from 1 on"),
        ("temperature", -0.1, "a number from 0 on"),
        ("temperature", "warm", "a number from 0 on"),
        ("temperature", "nan", "a number from 0 on"),
        ("temperature", "inf", "a number from 0 on"),
        ("temperature", False, "a number from 0 on"),
        ("top_k", -1, "a whole number from 0 on"),
        ("seed", -1, "a whole number from 0 on"),
        ("seed", "", "a whole number from 0 on"),
        ("return_full_text", "yes", "true or false"),
        ("return_full_text", 1, "true or false"),
    ],
)
def test_a_bad_parameter_is_named(name: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError) as failure:
        Sampling().changed({name: value})

    assert str(failure.value) == f"parameter '{name}': got {value!r}, expected {expected}"
