"""Mode poll on an object store: what an owner does in a directory, done to objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tritonpy.server import Server

from ..lifecycle.poll_scenario import Client, PollsByHand, begin, polls_by_hand, run
from .conftest import S3Emulator


class StoredTree:
    """A repository in a bucket; see `Tree`."""

    def __init__(self, s3: S3Emulator, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket

    def write(self, path: str, content: str) -> None:
        """See `Tree`."""
        self._s3.put(self._bucket, f"models/{path}", content.encode())

    def delete(self, path: str) -> None:
        """See `Tree`."""
        self._s3.delete(self._bucket, f"models/{path}")


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> Iterator[PollsByHand]:
    yield from polls_by_hand(monkeypatch)


@pytest.mark.timeout(180)  # fifteen loads, each with a process of its own
def test_each_change_is_seen_within_two_polls_and_none_disturbs_another_model(
    serve: Callable[..., Server], polls: PollsByHand, s3: S3Emulator
) -> None:
    bucket = s3.bucket()
    owner = begin(StoredTree(s3, bucket))
    server = serve(s3.root(bucket), model_control_mode="poll")

    run(owner, Client(server.http_port), lambda: polls.poll(2), is_ours=True)
