"""Mode poll: a server follows what happens to its repository, and each change within two polls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tritonpy.server import Server

from ..differential.servers import kill
from .poll_scenario import Client, LocalTree, PollsByHand, begin, polls_by_hand, run

POLL = {"model_control_mode": "poll"}


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Iterator[PollsByHand]:
    yield from polls_by_hand(monkeypatch)


@pytest.mark.timeout(180)  # fifteen loads, each with a process of its own
def test_each_change_is_seen_within_two_polls_and_none_disturbs_another_model(
    serve: Callable[..., Server], polls: PollsByHand, tmp_path: Path
) -> None:
    owner = begin(LocalTree(tmp_path / "models"))
    server = serve(tmp_path / "models", **POLL)

    run(owner, Client(server.http_port), lambda: polls.poll(2), is_ours=True)


@pytest.mark.parity
@pytest.mark.timeout(240)
def test_a_real_server_does_the_same(real_triton: Callable[..., dict[str, int]], tmp_path: Path) -> None:
    owner = begin(LocalTree(tmp_path / "models"))
    ports = real_triton(tmp_path / "models", "--model-control-mode=poll", "--repository-poll-secs=1")
    client = Client(ports["http"])

    def poll_twice() -> None:
        time.sleep(2)  # nothing tells when it looks

    try:
        run(owner, client, poll_twice, is_ours=False)
    finally:
        kill(ports["pid"])  # after a failed load it does not end by itself
