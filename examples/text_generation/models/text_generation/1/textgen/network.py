"""GPT-2 in numpy: scores for the next token, from weights as Hugging Face saves them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .weights import Floats, read_safetensors

Tokens = NDArray[np.int64]

# What `config.json` must say, or leave to its default.
_KIND = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
}


class Cache:
    """What the network has read: keys and values of every layer for up to `rows` texts.

    Rows in use lie at the front without gaps, so that a step works on slices of the arrays, not on copies.

    Attributes:
        used: how many rows are in use.
        lengths: tokens read so far, by row.
    """

    def __init__(self, rows: int, layers: int, heads: int, context: int, width: int) -> None:
        self.used = 0
        self.lengths = np.zeros(rows, np.int64)
        self.keys = np.zeros((layers, rows, heads, context, width), np.float32)
        self.values = np.zeros_like(self.keys)

    def add(self) -> int:
        """Take the next free row for a new text and return its number."""
        row = self.used
        self.used += 1
        self.lengths[row] = 0
        return row

    def drop(self, row: int) -> None:
        """Free `row`; the last row in use moves to its place."""
        self.used -= 1
        last, length = self.used, self.lengths[self.used]
        if row != last:
            self.keys[:, row, :, :length] = self.keys[:, last, :, :length]
            self.values[:, row, :, :length] = self.values[:, last, :, :length]
            self.lengths[row] = length


class GPT2:
    """The network of Radford et al. 2019, for inference.

    Args:
        weights: float32 arrays under Hugging Face's names, without the prefix `transformer.`.
        settings: what `config.json` says.

    Attributes:
        context: how many tokens a text may have, prompt and continuation together.
    """

    def __init__(self, weights: dict[str, Floats], settings: dict[str, Any]) -> None:  # Any: JSON
        self.context: int = settings["n_positions"]
        self._heads: int = settings["n_head"]
        self._width: int = settings["n_embd"]
        self._epsilon = np.float32(settings.get("layer_norm_epsilon", 1e-5))
        self._embedding = weights["wte.weight"]
        self._positions = weights["wpe.weight"]
        self._layers = [_below(weights, f"h.{layer}.") for layer in range(settings["n_layer"])]
        self._last = _below(weights, "ln_f.")

    @classmethod
    def from_pretrained(cls, folder: Path) -> GPT2:
        """Read `config.json` and `model.safetensors` in `folder`.

        Raises:
            ValueError: they hold another kind of network.
        """
        settings = json.loads((folder / "config.json").read_bytes())
        for key, expected in _KIND.items():
            if settings.get(key, expected) != expected:
                path = folder / "config.json"
                raise ValueError(f"{path}: got {key} {settings[key]}, expected {expected}")
        weights = read_safetensors(folder / "model.safetensors")
        return cls({name.removeprefix("transformer."): array for name, array in weights.items()}, settings)

    def new_cache(self, rows: int) -> Cache:
        """Return an empty cache for up to `rows` texts."""
        return Cache(rows, len(self._layers), self._heads, self.context, self._width // self._heads)

    def read(self, tokens: Tokens, cache: Cache, first: int = 0) -> Floats:
        """Read on in one or more texts at once.

        Args:
            tokens: the same number of new tokens for each text, int64 [texts,new].
            cache: what was read of these texts before; the new tokens are added.
            first: the texts are those of the rows of `cache` from this one on.

        Returns:
            The network's state after each of the new tokens, [texts,new,width]; `scores` makes use of it.
        """
        texts, new = tokens.shape
        rows = slice(first, first + texts)
        begin = cache.lengths[rows]
        places = begin[:, np.newaxis] + np.arange(new)  # [texts,new]
        longest = int(begin.max()) + new
        # A token sees itself and what is before it; what stands behind it belongs to nobody or to the past.
        hidden = np.arange(longest) > places[:, :, np.newaxis]
        mask = np.where(hidden, np.float32(-np.inf), np.float32(0))[:, np.newaxis]  # [texts,1,new,longest]
        state: Floats = self._embedding[tokens] + self._positions[places]
        for number, layer in enumerate(self._layers):
            keys, values = cache.keys[number, rows], cache.values[number, rows]
            state += self._attend(layer, self._normalize(layer, "ln_1.", state), keys, values, begin, mask)
            inner = _gelu(_linear(layer, "mlp.c_fc.", self._normalize(layer, "ln_2.", state)))
            state += _linear(layer, "mlp.c_proj.", inner)
        cache.lengths[rows] += new
        return state

    def scores(self, state: Floats) -> Floats:
        """Return the score (logit) of every token to be the next, [...,vocabulary], from `read`'s state."""
        scores: Floats = self._normalize(self._last, "", state) @ self._embedding.T
        return scores

    def _attend(
        self,
        layer: dict[str, Floats],
        state: Floats,
        keys: Floats,
        values: Floats,
        begin: Tokens,
        mask: Floats,
    ) -> Floats:
        texts, new, width = state.shape
        mixed = _linear(layer, "attn.c_attn.", state).reshape(texts, new, 3, self._heads, -1)
        query, key, value = mixed.transpose(2, 0, 3, 1, 4)  # each [texts,heads,new,width of a head]
        for text, place in enumerate(begin):
            keys[text, :, place : place + new] = key[text]
            values[text, :, place : place + new] = value[text]
        longest = mask.shape[-1]
        weights = query @ keys[:, :, :longest].swapaxes(2, 3)
        weights *= np.float32(1 / math.sqrt(query.shape[-1]))
        weights += mask
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
        seen = (weights @ values[:, :, :longest]).swapaxes(1, 2).reshape(texts, new, width)
        return _linear(layer, "attn.c_proj.", seen)

    def _normalize(self, layer: dict[str, Floats], name: str, state: Floats) -> Floats:
        centred: Floats = state - state.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        centred /= np.sqrt(variance + self._epsilon)
        centred *= layer[name + "weight"]
        centred += layer[name + "bias"]
        return centred


def _below(weights: dict[str, Floats], prefix: str) -> dict[str, Floats]:
    return {name[len(prefix) :]: array for name, array in weights.items() if name.startswith(prefix)}


def _linear(layer: dict[str, Floats], name: str, state: Floats) -> Floats:
    # One product of two matrices: numpy would multiply [texts,1,width] text by text.
    result: Floats = state.reshape(-1, state.shape[-1]) @ layer[name + "weight"]
    result += layer[name + "bias"]
    return result.reshape(*state.shape[:-1], -1)


def _gelu(state: Floats) -> Floats:
    """GPT-2's approximation of the Gaussian error linear unit."""
    inner: Floats = np.square(state)
    inner *= np.float32(0.044715)
    inner += 1
    inner *= state
    inner *= np.float32(math.sqrt(2 / math.pi))
    np.tanh(inner, out=inner)
    inner += 1
    inner *= state
    inner *= np.float32(0.5)
    return inner
