"""Text to tokens and back, beside what Hugging Face's own tokenizer makes of the same file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textgen.tokenizer import Tokenizer, words

END = "<|endoftext|>"


@given(text=st.text())
def test_every_text_survives_encoding_and_decoding(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text(alphabet=" '\t\n\x85\u2003abdelmrstvLNO19²Ⅷ_-é中🙂"))
def test_words_put_together_are_the_text_and_none_is_empty(text: str) -> None:
    found = list(words(text))

    assert "".join(found) == text
    assert all(found)


def test_texts_become_the_tokens_that_hugging_face_makes(
    tokenizer: Tokenizer, reference: dict[str, Any]
) -> None:
    encoded = {text: tokenizer.encode(text) for text in reference["encoded"]}

    assert encoded == reference["encoded"]


def test_a_common_word_is_one_token_and_takes_its_blank_along(tokenizer: Tokenizer) -> None:
    [token] = tokenizer.encode(" return")

    assert tokenizer.token_bytes(token) == b" return"


def test_the_end_of_a_text_cannot_be_written(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(END)

    assert 0 not in tokens
    assert tokenizer.decode(tokens) == END
    assert tokenizer.decode([0]) == ""


def test_a_broken_character_is_replaced(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("🙂")

    assert tokenizer.decode(tokens[:-1]).startswith("\ufffd")


def test_half_of_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("\ud83d")


@given(text=st.text(alphabet="ab", max_size=60))
def test_pairs_are_joined_by_rank_and_from_the_left(text: str) -> None:
    small = Tokenizer(_vocabulary("aa", "ab", "aab"), [("a", "b"), ("a", "a"), ("a", "ab")])

    tokens = small.encode(text)

    assert [small.token_bytes(token).decode() for token in tokens] == _joined_by_hand(text)


def test_a_file_with_pairs_in_the_older_form_is_read(tmp_path: Path, checkpoint: Path) -> None:
    description = json.loads((checkpoint / "tokenizer.json").read_bytes())
    description["model"]["merges"] = [" ".join(pair) for pair in description["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))

    older, newer = Tokenizer.from_pretrained(tmp_path), Tokenizer.from_pretrained(checkpoint)

    text = "Return the absolute value of the argument."
    assert older.encode(text) == newer.encode(text)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("model", "type"), "WordPiece", "model WordPiece"),
        (("pre_tokenizer",), {"type": "Whitespace"}, "pre-tokenizer Whitespace"),
        (("pre_tokenizer", "add_prefix_space"), True, "without add_prefix_space"),
        (("normalizer",), {"type": "Lowercase"}, "expected BPE, ByteLevel"),
    ],
)
def test_another_kind_of_tokenizer_is_refused(
    tmp_path: Path, checkpoint: Path, path: tuple[str, ...], value: object, said: str
) -> None:
    description = json.loads((checkpoint / "tokenizer.json").read_bytes())
    *folders, last = path
    place = description
    for folder in folders:
        place = place[folder]
    place[last] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))

    with pytest.raises(ValueError, match=said):
        Tokenizer.from_pretrained(tmp_path)


def _vocabulary(*joined: str) -> dict[str, int]:
    """The 256 bytes as the file writes them, and `joined`."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(0x100) if value not in visible]
    characters = [*map(chr, visible), *(chr(0x100 + number) for number in range(len(hidden)))]
    return {text: token for token, text in enumerate([*characters, *joined])}


def _joined_by_hand(text: str) -> list[str]:
    """Apply one pair after the other to the whole text, as byte-pair encoding is defined."""
    parts = list(text)
    for left, right in (("a", "b"), ("a", "a"), ("a", "ab")):
        place = 0
        while place < len(parts) - 1:
            if (parts[place], parts[place + 1]) == (left, right):
                parts[place : place + 2] = [left + right]
            place += 1
    return parts
