"""A real server that ends over a question is started again, a few times; ours is not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from .comparison import Case, Pair
from .servers import MAX_RESTARTS, Http, HttpAnswer, RealServerEnded, Server, ServerEnded

pytestmark = [pytest.mark.parity, pytest.mark.timeout(180)]  # servers start again and again


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    models = tmp_path / "models"
    models.mkdir()
    with ExitStack() as stack:

        def begin(*, is_real: bool) -> Server:
            server = Server(models, tmp_path / "log", is_real=is_real, options=["--exit-timeout-secs=3"])
            return stack.enter_context(closing(server))

        yield begin


class Question:
    """Whether a server is ready, after it was killed some times."""

    def __init__(self, server: Server, kill_count: int) -> None:
        self._server = server
        self.kills_left = kill_count

    def ask(self) -> int:
        if self.kills_left:
            self.kills_left -= 1
            process = self._server._process.pid
            os.kill(self._server.ports.get("pid", process), signal.SIGKILL)
            self._server._process.wait(60)
        with urlopen(f"http://127.0.0.1:{self._server.ports['http']}/v2/health/ready", timeout=60) as answer:
            status: int = answer.status
            return status


def test_a_real_server_that_ends_is_asked_once_more_and_not_for_ever(start: Callable[..., Server]) -> None:
    server = start(is_real=True)

    with pytest.raises(ServerEnded, match=r"the real server ended with .* over 'twice', the second time"):
        server.try_twice("twice", Question(server, 2).ask)
    server.restart()
    for _ in range(MAX_RESTARTS - 1):
        assert server.try_twice("once", Question(server, 1).ask) == 200
    assert server.try_twice("unharmed", Question(server, 0).ask) == 200
    with pytest.raises(ServerEnded, match=r"the real server ended with .* over 'too often'$"):
        server.try_twice("too often", Question(server, 1).ask)


def test_our_server_is_asked_once(start: Callable[..., Server]) -> None:
    server = start(is_real=False)

    with pytest.raises(ServerEnded, match="our server ended with -9 over 'once'") as ended:
        server.try_twice("once", Question(server, 1).ask)

    assert isinstance(ended.value.__cause__, URLError)
    assert server.has_ended


@dataclass(frozen=True)
class Fatal(Http):
    """A request over which a real server ends, as often as there are kills."""

    kills: list[int] = field(default_factory=list)

    def send(self, server: Server) -> HttpAnswer:
        if self.kills and "pid" in server.ports:
            os.kill(server.ports["pid"], self.kills.pop())
        return super().send(server)


def test_a_case_over_which_the_real_server_ends_is_asked_once_more(start: Callable[..., Server]) -> None:
    def fatal(count: int) -> Fatal:
        return Fatal("GET", "/v2/health/ready", kills=[signal.SIGKILL] * count)

    pair = Pair(start(is_real=True), start(is_real=False))
    ours = pair.ours.ports

    assert pair.divergences(Case("once", (fatal(1),))) == []
    assert pair.ours.ports != ours  # both begin anew, so that they have seen the same
    with pytest.raises(RealServerEnded):
        pair.divergences(Case("always", (fatal(2),)))
