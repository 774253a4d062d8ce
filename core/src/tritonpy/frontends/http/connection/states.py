"""The states of an HTTP connection, which has a side that reads and a side that answers.

What comes from the client, `Reading`:

    OPEN       a request is complete, but its turn has not come      PAUSED
    OPEN       there is no room for the request that arrives         FULL
    PAUSED     likewise, for a request that came with the others     FULL
    FULL       there is room                                         PAUSED
    PAUSED     no complete request waits for its turn                OPEN
    OPEN       the client ends its side and waits for an answer      ENDED
    OPEN …     what came is refused, or there is no room for long,
               - while an answer before it is due                    REFUSED
               - otherwise                                           LINGERING
    REFUSED    the answers before it have been given                 LINGERING
    any        the connection is over                                LOST

What goes to the client, `Answering`:

    IDLE       a request is given to its handler                     STARTING
    STARTING   the handler returns, and answers later                RUNNING
    STARTING   the request is answered: its starter goes on          IDLE
    RUNNING    the request is answered: the next one's turn          IDLE
    STARTING, RUNNING   it was the last one: its client or the
               server says so, or the client's side is ENDED         CLOSING
    IDLE       the server stops, or the client asks nothing          CLOSING

Beside them a client may read slowly, which pauses the answering in any state: no request is started then.
"""

from __future__ import annotations

from enum import Enum, auto


class Reading(Enum):
    """The side that reads: the fate of the bytes that a client sends."""

    OPEN = auto()
    """They become requests."""
    PAUSED = auto()
    """They stay in the system: a complete request waits for its turn."""
    FULL = auto()
    """They stay in the system until there is room for the request."""
    REFUSED = auto()
    """They stay in the system: what came last is refused when its turn has come."""
    LINGERING = auto()
    """They are read and forgotten until the client has had time to read why."""
    ENDED = auto()
    """There are none any more."""
    LOST = auto()
    """The connection is over."""


class Answering(Enum):
    """The side that answers: the progress with the current request."""

    IDLE = auto()
    """There is none."""
    STARTING = auto()
    """It is being given to its handler, which may answer it before it returns."""
    RUNNING = auto()
    """It waits for its answer, or for the rest of it."""
    CLOSING = auto()
    """There will be none: the connection ends when all answers have been taken."""


# Those that each request passes: Python 3.11 looks up the member of an enumeration with a call.
OPEN, ENDED = Reading.OPEN, Reading.ENDED
IDLE, STARTING, RUNNING = Answering.IDLE, Answering.STARTING, Answering.RUNNING
