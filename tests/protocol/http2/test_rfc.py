"""RFC 9113 and RFC 7541, rule by rule: frames that a client may or may not send, and the answer to each."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from hyperframe.frame import GoAwayFrame, PingFrame, RstStreamFrame

from .raw import Answer, Closed, Http2Client, error_name, ping
from .rfc_cases import ALIVE, CASES, Case

PROBES = (b"probe 01", b"probe 02")


def outcome(client: Http2Client, case: Case) -> str:
    """The end of a case in the words of `Case.allowed`, once the connection was seen to live or end."""
    if not case.greets and client.socket.recv(5, socket.MSG_PEEK) == b"HTTP/":
        return "HTTP/1"
    answer, result, pongs = Answer(), "", 0
    while pongs < len(PROBES) or not (result or case.allowed & ALIVE):
        try:
            found = client.frame()
        except Closed:
            return f"{result}, closed" if result else "closed"
        answer.take(found, case.stream, client.decoder)
        match found:
            case GoAwayFrame() if found.error_code:
                client.end()  # an error of the connection ends it
                return f"GOAWAY {error_name(found.error_code)}"
            case RstStreamFrame() if case.stream in (0, found.stream_id):
                result = result or f"RST_STREAM {error_name(found.error_code)}"
            case PingFrame() if found.opaque_data == PROBES[pongs]:
                pongs += 1  # one may overtake what was to be sent before it, the next does not
                if pongs < len(PROBES):
                    client.send(ping(PROBES[pongs]))
        if answer.is_ended and not result:
            result = "answered" if answer.status == 0 else "refused call"
    return result or "alive"


def test_cases_have_names_of_their_own() -> None:
    assert len({(case.section, case.name) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.section} {case.name}")
def test_what_a_client_sends_is_answered_as_the_rfc_says(
    port: int, dial: Callable[..., Http2Client], case: Case
) -> None:
    client = dial(port)
    if case.greets:
        client.greet()
    client.send(case.sent if isinstance(case.sent, bytes) else case.sent(client.peer_settings))
    client.send(ping(PROBES[0]))

    assert outcome(client, case) in case.allowed
