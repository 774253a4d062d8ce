"""Text to tokens and back: the byte-level byte-pair tokenizer of GPT-2, read from `tokenizer.json`."""

from __future__ import annotations

import heapq
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


class Tokenizer:
    """Turns any text into tokens, the numbers of a vocabulary, and back without loss.

    Texts are cut into words, words into bytes, and then the pairs of neighbours that were most frequent in
    the text the tokenizer was made from are joined, the most frequent first. Special tokens such as the end
    of a text are never made from text: what a client writes cannot end its answer.

    Args:
        vocabulary: token by its text, in which every byte is written as one visible character.
        merges: the pairs to join, the most frequent first.
    """

    def __init__(self, vocabulary: dict[str, int], merges: Iterable[Sequence[str]]) -> None:
        characters = _byte_characters()
        self._byte_tokens = [vocabulary[character] for character in characters]
        self._merges = {
            (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right])
            for rank, (left, right) in enumerate(merges)
        }
        values = {character: value for value, character in enumerate(characters)}
        self._bytes = {
            token: bytes(values[character] for character in text)
            for text, token in vocabulary.items()
            if values.keys() >= set(text)
        }
        self.longest = max(map(len, self._bytes.values()))

    @classmethod
    def from_pretrained(cls, folder: Path) -> Tokenizer:
        """Read `tokenizer.json` in `folder`.

        Raises:
            ValueError: the file describes another kind of tokenizer.
        """
        path = folder / "tokenizer.json"
        description = json.loads(path.read_bytes())
        model, splitter = description["model"], description.get("pre_tokenizer") or {}
        kinds = (model.get("type"), splitter.get("type"), description.get("normalizer"))
        if kinds != ("BPE", "ByteLevel", None) or splitter.get("add_prefix_space"):
            raise ValueError(
                f"{path}: got model {kinds[0]}, pre-tokenizer {kinds[1]}, normalizer {kinds[2]}, expected "
                f"BPE, ByteLevel without add_prefix_space and no normalizer, as GPT-2 has them"
            )
        added = {token["content"] for token in description.get("added_tokens", ())}
        vocabulary = {text: token for text, token in model["vocab"].items() if text not in added}
        # Older files write a pair as one text with a blank between its halves, which hold none themselves.
        merges = (pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"])
        return cls(vocabulary, merges)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of `text`.

        Raises:
            UnicodeEncodeError: `text` holds half of a surrogate pair, which is no character.
        """
        return [token for word in words(text) for token in self._join(word.encode())]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of `tokens`; special tokens have none, broken characters become U+FFFD."""
        return b"".join(map(self.token_bytes, tokens)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the UTF-8 that a token stands for, which may be a part of a character."""
        return self._bytes.get(token, b"")

    def _join(self, word: bytes) -> list[int]:
        """Join pairs until none is left that can be; the time grows with n log n, whatever the word."""
        merges = self._merges
        tokens = [self._byte_tokens[value] for value in word]
        following = [*range(1, len(tokens)), -1]
        previous = list(range(-1, len(tokens) - 1))
        heap: list[tuple[int, int, int, int, int]] = []  # rank, place, left token, right token, joined token

        def note(place: int) -> None:
            if place >= 0 and following[place] >= 0:
                left, right = tokens[place], tokens[following[place]]
                if found := merges.get((left, right)):
                    heapq.heappush(heap, (found[0], place, left, right, found[1]))

        for place in range(len(tokens)):
            note(place)
        while heap:
            _, place, left, right, joined = heapq.heappop(heap)
            second = following[place]
            if tokens[place] != left or second < 0 or tokens[second] != right:
                continue  # one of the two has been joined with its other neighbour meanwhile
            tokens[place], tokens[second] = joined, -1
            following[place] = following[second]
            if following[place] >= 0:
                previous[following[place]] = place
            note(previous[place])
            note(place)
        return [token for token in tokens if token >= 0]


def words(text: str) -> Iterator[str]:
    """Cut `text` as GPT-2 does: a word takes the blank before it along, an English 's stands alone."""
    for match in _WORD.finditer(text.translate(_CLASSES)):
        yield text[match.start() : match.end()]


# Python's `re` does not know Unicode's categories. So a text is cut where a copy of it would be in which
# every letter is an L, every digit an N, white space but the blank a line feed, and anything else an O.
# The apostrophe and the letters that English contracts with it stay as they are.
_CONTRACTED = "delmrstv"
_WORD = re.compile(
    rf"'(?:[dmst]|ll|re|ve)| ?[L{_CONTRACTED}]+| ?N+| ?[O']+|[ \n]+(?![^ \n])|[ \n]+",
)
_SPACES = "\t\n\x0b\x0c\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


class _Classes(dict[int, str]):
    """Classes of characters by code point, found when first asked for; for `str.translate`."""

    def __missing__(self, code: int) -> str:
        self[code] = found = {"L": "L", "N": "N"}.get(unicodedata.category(chr(code))[0], "O")
        return found


_CLASSES = _Classes()
_CLASSES.update({ord(character): character for character in f" '{_CONTRACTED}"})
_CLASSES.update({ord(character): "\n" for character in _SPACES})


def _byte_characters() -> list[str]:
    """The character that stands for each byte in the file: itself, or for want of a look one from 256 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    substitutes = iter(range(0x100, 0x200))
    return [chr(value if value in visible else next(substitutes)) for value in range(0x100)]
