"""Which token comes next, and what a request may say about it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sampling:
    """How a text is continued.

    Attributes:
        max_new_tokens: end here at the latest.
        temperature: above 1 more daring, below 1 more cautious; 0 always takes the most likely token.
        top_k: choose among this many of the most likely tokens; 0 means all.
        seed: the same seed gives the same text; None gives another one each time.
        return_full_text: whether the answer begins with the prompt; has no meaning for a stream.
    """

    max_new_tokens: int = 40
    temperature: float = 1.0
    top_k: int = 50
    seed: int | None = None
    return_full_text: bool = True

    @classmethod
    def from_pretrained(cls, folder: Path) -> Sampling:
        """Return the defaults that `generation_config.json` in `folder` sets."""
        given = json.loads((folder / "generation_config.json").read_bytes())
        if not given.get("do_sample", False):
            given["temperature"] = 0
        return cls().changed(given)

    def changed(self, parameters: Mapping[str, object]) -> Sampling:
        """Return these settings with those of a request; keys that are not ours are left alone.

        Numbers may come as text, for clients that send no floats.

        Raises:
            ValueError: a value is of the wrong type or out of range; the text names the parameter.
        """
        changes: dict[str, Any] = {}  # Any: each has its own type
        for field in fields(self):
            value = parameters.get(field.name)
            if value is not None:
                convert, is_valid, expected = _ACCEPTED[field.name]
                try:
                    changes[field.name] = found = convert(value)
                    valid = is_valid(found)
                except (ValueError, TypeError, OverflowError):
                    valid = False
                if not valid:
                    raise ValueError(f"parameter '{field.name}': got {value!r}, expected {expected}")
        return replace(self, **changes)


def _integer(value: object) -> int:
    if isinstance(value, (bool, float)):
        raise TypeError
    return int(value)  # type: ignore[call-overload,no-any-return]  # what it does not take it refuses


def _number(value: object) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)  # type: ignore[arg-type]  # likewise


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise ValueError
    return value == "true"


_ACCEPTED: dict[str, tuple[Callable[[object], int | float], Callable[[float], bool], str]] = {
    "max_new_tokens": (_integer, lambda value: value >= 1, "a whole number from 1 on"),
    "temperature": (_number, lambda value: 0 <= value < math.inf, "a number from 0 on"),
    "top_k": (_integer, lambda value: value >= 0, "a whole number from 0 on"),
    "seed": (_integer, lambda value: value >= 0, "a whole number from 0 on"),
    "return_full_text": (_truth, lambda _: True, "true or false"),
}


class Sampler:
    """Chooses the tokens of one text."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def choose(self, scores: NDArray[np.float32]) -> int:
        """Return the next token, given the score of each [vocabulary]."""
        sampling = self._sampling
        if sampling.temperature == 0:
            return int(scores.argmax())
        count = len(scores) if sampling.top_k == 0 else min(sampling.top_k, len(scores))
        # In order, the likeliest first: then a rounding error in a score can hardly change what is chosen.
        best = np.argpartition(scores, -count)[-count:]
        best = best[np.argsort(-scores[best], kind="stable")]
        chances = scores[best].astype(np.float64)
        # The highest becomes 0 before it is divided: a temperature near 0 must not make infinities.
        with np.errstate(over="ignore"):
            chances = np.exp((chances - chances[0]) / sampling.temperature)
        sums = chances.cumsum()
        place = np.searchsorted(sums, self._random.random() * sums[-1], side="right")
        return int(best[min(place, count - 1)])
