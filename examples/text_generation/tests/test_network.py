"""The network in numpy, beside what Hugging Face's own code computes from the same weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from textgen.network import GPT2
from textgen.weights import read_safetensors


@pytest.fixture(scope="module")
def tokens() -> NDArray[np.int64]:
    with np.load(Path(__file__).parent / "reference.npz") as file:
        found: NDArray[np.int64] = file["tokens"]
    return found


def full(network: GPT2, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """The scores after every token, from one look at the whole text."""
    scores: NDArray[np.float32] = network.scores(network.read(tokens[np.newaxis], network.new_cache(1)))[0]
    return scores


def test_scores_are_those_that_hugging_face_computes(network: GPT2, tokens: NDArray[np.int64]) -> None:
    with np.load(Path(__file__).parent / "reference.npz") as file:
        expected = file["logits"]

    scores = full(network, tokens)[-len(expected) :]

    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-3)
    assert expected.max() - expected.min() > 10  # the tolerance is small beside what there is to see


@pytest.mark.parametrize("size", [1, 3])
def test_reading_piece_by_piece_gives_the_scores_of_reading_at_once(
    network: GPT2, tokens: NDArray[np.int64], size: int
) -> None:
    cache = network.new_cache(1)
    cache.add()

    pieces = [
        network.scores(network.read(tokens[np.newaxis, place : place + size], cache))[0]
        for place in range(0, len(tokens), size)
    ]

    np.testing.assert_allclose(np.concatenate(pieces), full(network, tokens), rtol=0, atol=1e-4)


def test_texts_of_different_lengths_are_read_together(network: GPT2, tokens: NDArray[np.int64]) -> None:
    cache = network.new_cache(4)
    texts = [tokens[:9], tokens[3:8], tokens[5:20]]
    for text in texts:
        network.read(text[np.newaxis, :-1], cache, cache.add())

    state = network.read(np.array([[text[-1]] for text in texts]), cache)

    alone = [full(network, text)[-1] for text in texts]
    np.testing.assert_allclose(network.scores(state[:, -1]), alone, rtol=0, atol=1e-4)


def test_a_text_goes_on_when_it_moves_to_the_row_of_one_that_left(
    network: GPT2, tokens: NDArray[np.int64]
) -> None:
    cache = network.new_cache(2)
    leaving, staying = tokens[:12], tokens[4:10]
    for text in (leaving, staying):
        network.read(text[np.newaxis, :-1], cache, cache.add())

    cache.drop(0)
    state = network.read(staying[np.newaxis, -1:], cache)

    assert cache.used == 1
    np.testing.assert_allclose(network.scores(state[0, -1]), full(network, staying)[-1], rtol=0, atol=1e-4)


def test_a_freed_row_remembers_nothing(network: GPT2, tokens: NDArray[np.int64]) -> None:
    cache = network.new_cache(1)
    network.read(tokens[np.newaxis], cache, cache.add())
    cache.drop(0)

    state = network.read(tokens[np.newaxis, :5], cache, cache.add())

    np.testing.assert_array_equal(network.scores(state)[0], full(network, tokens[:5]))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("model_type", "llama", "gpt2"),
        ("activation_function", "relu", "gelu_new"),
        ("tie_word_embeddings", False, True),
    ],
)
def test_another_kind_of_network_is_refused(
    tmp_path: Path, checkpoint: Path, key: str, value: object, expected: object
) -> None:
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    settings = json.loads((tmp_path / "config.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({**settings, key: value}))

    with pytest.raises(ValueError, match=f"got {key} {value}, expected {expected}"):
        GPT2.from_pretrained(tmp_path)


def safetensors(dtype: str, end: int, data: bytes) -> bytes:
    header = json.dumps(
        {"__metadata__": {}, "w": {"dtype": dtype, "shape": [2], "data_offsets": [0, end]}}
    ).encode()
    return len(header).to_bytes(8, "little") + header + data


@pytest.mark.parametrize(("dtype", "numpy"), [("F32", "<f4"), ("F16", "<f2")])
def test_weights_are_read_as_float32(tmp_path: Path, dtype: str, numpy: str) -> None:
    data = np.array([1.5, -2.0], numpy).tobytes()
    (tmp_path / "w").write_bytes(safetensors(dtype, len(data), data))

    array = read_safetensors(tmp_path / "w")["w"]

    assert array.dtype == np.float32
    assert array.tolist() == [1.5, -2.0]


def test_weights_of_another_type_or_cut_short_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(safetensors("BF16", 4, bytes(4)))
    (tmp_path / "short").write_bytes(safetensors("F32", 8, bytes(7)))

    with pytest.raises(ValueError, match="array w is BF16, expected F16 or F32"):
        read_safetensors(tmp_path / "other")
    with pytest.raises(ValueError, match=r"expected \d+ or more for w"):
        read_safetensors(tmp_path / "short")
