"""Proof of a token that both sides know, without sending it.

Each side gives a random number, and proves by an HMAC of both numbers that it has the token: the server that
it is the one the program wants to work for, and the program that it may bind. The two proofs differ in a
word, so neither is worth anything in the other direction, and a proof that was overheard fits no other
numbers.
"""

from __future__ import annotations

import hmac
import secrets

PROTOCOL_VERSION = 1
"""The version of the protocol that this module and its siblings speak."""

PROGRAM, SERVER = "program", "server"


def new_nonce() -> str:
    """A random number, as text."""
    return secrets.token_hex(32)


def prove(token: str, side: str, server_nonce: str, program_nonce: str) -> str:
    """The proof of one side.

    Args:
        token: what both know; "" where none is asked for.
        side: `PROGRAM` or `SERVER`.
        server_nonce: of this connection.
        program_nonce: of this connection.
    """
    text = f"tritonpy-bind/{PROTOCOL_VERSION}\n{side}\n{server_nonce}\n{program_nonce}"
    return hmac.new(token.encode(), text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def is_proof(given: object, token: str, side: str, server_nonce: str, program_nonce: str) -> bool:
    """True if what the other side has given proves that it knows the token; takes the same time for each."""
    if not isinstance(given, str) or not given.isascii():
        return False
    return hmac.compare_digest(given, prove(token, side, server_nonce, program_nonce))


def is_nonce(given: object) -> bool:
    """True if what the other side has given is long enough to be random."""
    return isinstance(given, str) and 32 <= len(given) <= 256 and given.isascii()
