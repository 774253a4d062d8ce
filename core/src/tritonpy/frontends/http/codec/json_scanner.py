"""JSON text that the quick parser refuses: what is wrong with it, or how to read it all the same.

Triton's parser is laxer than the standard. It takes `NaN`, `Inf` and `Infinity` with and without a minus for
numbers, bytes that are not UTF-8 in strings, half of a surrogate pair when it is the second half, and ends at
a NUL. Where it refuses, clients know its words and the offset at which it stopped; both are made here, by a
walk over the text that keeps its own stack, so that no nesting costs more than an entry in it.

All of it runs only for a text that `orjson` has refused.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from tritonpy.errors import InvalidArg

MOST_LEVELS = 1024
"""The largest depth of a document, which is that of `orjson`. A tensor's data is held to less."""


def too_deep(limit: int) -> str:
    """The error text for JSON that is nested deeper than that."""
    return f"JSON nesting depth exceeds maximum allowed limit ({limit})"


_SPACE = re.compile(rb"[ \n\r\t]*+")
_DIGITS = re.compile(rb"[0-9]*+")
# Text with the escapes that stand for themselves; of others, such as halves of pairs, each is looked at.
_PLAIN = rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u(?![dD][89abAB])[0-9a-fA-F]{4}))*+'
_PLAIN_TEXT = re.compile(_PLAIN)
# Scalars about which nothing can be wrong: numbers that are surely finite, strings of such text.
_SCALAR = (
    rb"(?:-?+(?:0|[1-9][0-9]{0,99}+)(?![0-9])(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]{1,2}+(?![0-9]))?+"
    rb"|NaN|-?+Infinity|true|false|null" + rb'|"' + _PLAIN + rb'")(?![.eE0-9])'
)
_SIMPLE = re.compile(_SCALAR)
_RUN = re.compile(rb"(?:[ \n\r\t]*+" + _SCALAR + rb"[ \n\r\t]*+,)*+")

_INVALID = "Invalid value."
_NO_QUOTE = "Missing a closing quotation mark in string."
_BAD_ESCAPE = "Invalid escape character in string."
_BAD_HEX = "Incorrect hex digit after \\u escape in string."
_BAD_PAIR = "The surrogate pair in string is invalid."
_HEX = re.compile(rb"[0-9a-fA-F]{4}")
_ARRAY, _OBJECT = 0, 1


class WrongText(Exception):
    """The text is no JSON, also by the laxer rules; says what is wrong and at which byte."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset


def parse_laxly(body: bytes) -> Any:  # Any: JSON
    """Parse what the standard forbids and Triton takes.

    Bytes of strings that are not UTF-8 become lone surrogates (`surrogateescape`).

    Raises:
        WrongText: Triton does not take it either.
        InvalidArg: it is nested too deeply.
    """
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    end = body.find(b"\0")
    text = body if end < 0 else body[:end]
    scan = _Scan(text, start)
    scan.run()
    if scan.patches:
        pieces: list[bytes] = []
        kept = start
        for begin, stop, literal in scan.patches:
            pieces += (text[kept:begin], literal)
            kept = stop
        text = b"".join([*pieces, text[kept:]])
    elif start:
        text = text[start:]
    return json.loads(text.decode("utf-8", "surrogateescape"))


class _Scan:
    """One walk over a text.

    Attributes:
        patches: begin, end and replacement of literals that only Triton knows.
    """

    def __init__(self, text: bytes, start: int) -> None:
        self._text = text
        self._start = start
        self.patches: list[tuple[int, int, bytes]] = []

    def run(self) -> None:
        """Walk to the end.

        Raises:
            WrongText, InvalidArg: see `parse_laxly`.
        """
        text = self._text
        position = self._skip_space(self._start)
        if position == len(text):
            raise WrongText("The document is empty.", position)
        stack = bytearray()
        while True:
            head = text[position : position + 1]
            if head == b"[" or head == b"{":
                if len(stack) == MOST_LEVELS:
                    raise InvalidArg(f"{too_deep(MOST_LEVELS)} at {position}")
                position = self._skip_space(position + 1)
                if text[position : position + 1] == (b"]" if head == b"[" else b"}"):
                    position += 1
                else:
                    stack.append(_ARRAY if head == b"[" else _OBJECT)
                    position = self._next_value(stack[-1], position)
                    continue
            else:
                position = self._scalar(position)
            after = self._after_value(stack, position)
            if after is None:
                return
            position = after

    def _skip_space(self, position: int) -> int:
        return _SPACE.match(self._text, position).end()  # type: ignore[union-attr]  # it matches nothing, too

    def _next_value(self, kind: int, position: int) -> int:
        """The position where the next value of an array or object begins."""
        if kind == _OBJECT:
            return self._name(position)
        run = _RUN.match(self._text, position)
        assert run is not None  # it matches nothing, too
        return self._skip_space(run.end())

    def _name(self, position: int) -> int:
        if self._text[position : position + 1] != b'"':
            raise WrongText("Missing a name for object member.", position)
        position = self._skip_space(self._string(position))
        if self._text[position : position + 1] != b":":
            raise WrongText("Missing a colon after a name of object member.", position)
        return self._skip_space(position + 1)

    def _after_value(self, stack: bytearray, position: int) -> int | None:
        """The position of the value after a complete one; None at the end of the document."""
        text = self._text
        while True:
            position = self._skip_space(position)
            if not stack:
                if position < len(text):
                    raise WrongText("The document root must not be followed by other values.", position)
                return None
            kind = stack[-1]
            mark = text[position : position + 1]
            position += 1
            if mark == b",":
                return self._next_value(kind, self._skip_space(position))
            if mark != (b"]" if kind == _ARRAY else b"}"):
                what = "']' after an array element." if kind == _ARRAY else "'}' after an object member."
                raise WrongText(f"Missing a comma or {what}", position - 1)
            stack.pop()

    def _scalar(self, position: int) -> int:
        simple = _SIMPLE.match(self._text, position)
        if simple is not None:
            return simple.end()
        head = self._text[position : position + 1]
        if head == b'"':
            return self._string(position)
        for literal in (b"true", b"false", b"null"):
            if head == literal[:1]:
                return self._literal(position, literal)
        return self._number(position)

    def _literal(self, position: int, literal: bytes) -> int:
        """Behind a literal, or where it goes wrong."""
        for index in range(len(literal)):
            if self._text[position + index : position + index + 1] != literal[index : index + 1]:
                raise WrongText(_INVALID, position + index)
        return position + len(literal)

    def _string(self, begin: int) -> int:
        text = self._text
        position = begin + 1
        while True:
            position = _PLAIN_TEXT.match(text, position).end()  # type: ignore[union-attr]  # as for spaces
            mark = text[position : position + 1]
            if mark == b'"':
                return position + 1
            if not mark:
                raise WrongText(_NO_QUOTE, position)
            if mark != b"\\":  # a control character
                raise WrongText(_BAD_ESCAPE, position)
            position = self._escape(position)

    def _escape(self, position: int) -> int:
        text = self._text
        letter = text[position + 1 : position + 2]
        if letter and letter in b'"\\/bfnrt':
            return position + 2
        if letter != b"u":
            raise WrongText(_BAD_ESCAPE, position)
        if _HEX.match(text, position + 2) is None:
            raise WrongText(_BAD_HEX, position)
        if not 0xD800 <= int(text[position + 2 : position + 6], 16) <= 0xDBFF:
            return position + 6
        if text[position + 6 : position + 8] != b"\\u":
            raise WrongText(_BAD_PAIR, position)
        if _HEX.match(text, position + 8) is None:
            raise WrongText(_BAD_HEX, position)
        if not 0xDC00 <= int(text[position + 8 : position + 12], 16) <= 0xDFFF:
            raise WrongText(_BAD_PAIR, position)
        return position + 12

    def _number(self, begin: int) -> int:
        text = self._text
        position = begin + text.startswith(b"-", begin)
        head = text[position : position + 1]
        if head == b"N":
            stop = self._literal(position, b"NaN")
            self.patches.append((begin, stop, b"NaN"))
            return stop
        if head == b"I":
            stop = self._literal(position, b"Inf")
            if text.startswith(b"i", stop):
                return self._literal(position, b"Infinity")
            self.patches.append((stop, stop, b"inity"))
            return stop
        position = self._digits(position, _INVALID, leads=True)
        is_integer = True
        if text.startswith(b".", position):
            position = self._digits(position + 1, "Miss fraction part in number.")
            is_integer = False
        if text[position : position + 1] in (b"e", b"E"):
            position += 1
            if text[position : position + 1] in (b"+", b"-"):
                position += 1
            position = self._digits(position, "Miss exponent in number.")
            is_integer = False
        is_too_long = is_integer and position - begin > 310  # no number is made of that many digits
        if is_too_long or math.isinf(float(text[begin:position])):
            raise WrongText("Number too big to be stored in double.", begin)
        return position

    def _digits(self, position: int, reason: str, *, leads: bool = False) -> int:
        """Behind one or more digits; of a number's first ones, a zero stands alone."""
        if leads and self._text.startswith(b"0", position):
            return position + 1
        end = _DIGITS.match(self._text, position).end()  # type: ignore[union-attr]  # as for spaces
        if end == position:
            raise WrongText(reason, position)
        return end
