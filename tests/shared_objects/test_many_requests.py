"""A strategy in C under many requests of all sizes and levels, of which some expire and some are given up."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Compiled
from .noting import Asked, Place, built, configuration

LIMIT = 256
CLIENTS = 24
DURATION_S = 4
ENOUGH = 500  # answers; a busy machine takes longer for them
LEVELS = {
    "priority_levels": 3,
    "default_priority_level": 2,
    "default_queue_policy": {"default_timeout_microseconds": 5_000_000, "allow_timeout_override": True},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "levels": LEVELS,
    "levels_and_delay": {**LEVELS, "max_queue_delay_microseconds": 2000, "preferred_batch_size": [4, 16]},
    "in_order": {"preserve_ordering": True, "max_queue_delay_microseconds": 500},
}


class Client(threading.Thread):
    """Sends one request after the other, each by chance, until told to stop.

    Attributes:
        sent: how many were answered well, and how many with an error; those that it gave up do not count.
        errors: what those said.
    """

    def __init__(self, server: Asked, model: str, seed: int, stop: threading.Event) -> None:
        super().__init__()
        self._server, self._model, self._chance, self._stop_event = server, model, random.Random(seed), stop
        self.sent: dict[bool, int] = {True: 0, False: 0}
        self.errors: set[str] = set()

    def run(self) -> None:
        while not self._stop_event.is_set():
            self._send()

    def _send(self) -> None:
        chance = self._chance
        columns = chance.choice((1, 4, 4, 8, 16, 32, 64, 65, 200))
        parameters: dict[str, int] = {}
        if self._model != "in_order":
            parameters = {"priority": chance.randint(0, 3), "timeout": chance.choice((0, 0, 300, 20_000))}
        tensor = {"name": "X", "datatype": "FP32", "shape": [1, columns], "data": [1.0] * columns}
        connection = http.client.HTTPConnection("127.0.0.1", self._server.ports["http"], timeout=30)
        body = json.dumps({"inputs": [tensor], "parameters": parameters})
        connection.request("POST", f"/v2/models/{self._model}/infer", body)
        if chance.random() < 0.15:
            time.sleep(chance.random() / 200)
            connection.close()  # given up
            return
        answer = connection.getresponse()
        document = json.loads(answer.read())
        connection.close()
        self.sent[answer.status == 200] += 1
        if answer.status != 200:
            self.errors.add(document["error"])


@pytest.mark.stress
@pytest.mark.parametrize("on_threads", [True, False], ids=["threads", "workers"])
@pytest.mark.parametrize("name", VARIANTS)
def test_no_batch_breaks_the_limit_and_every_request_is_answered(
    tmp_path: Path, compiled: Compiled, name: str, on_threads: bool
) -> None:
    place = Place(tmp_path)
    config = configuration(VARIANTS[name], instance_group=[{"kind": "KIND_CPU", "count": 2}])
    strategy = built(compiled, "volume", "needs_the_server")
    place.add(name, config, strategy, on_threads=on_threads, MAX_BATCH_VOLUME_BYTES=str(LIMIT))

    with place.served() as server:
        stop = threading.Event()
        clients = [Client(server, name, seed, stop) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(DURATION_S)
        server.until(lambda: sum(client.sent[True] for client in clients) > ENOUGH)
        server.until(lambda: max(map(len, server.batches(name))) > 4)  # few are, and by chance
        stop.set()
        for client in clients:
            client.join()
        server.until(lambda: server.pending(name) == 0)
        batches = server.batches(name)

    assert set().union(*(client.errors for client in clients)) <= {"Request timeout expired"}
    answered = sum(client.sent[True] for client in clients)
    assert sum(map(len, batches)) >= answered
    assert [batch for batch in batches if len(batch) > 1 and sum(batch) > LIMIT] == []
    assert [batch for batch in batches if len(batch) == 1 and sum(batch) > LIMIT] != []  # those run alone
    assert max(map(len, batches)) > 4
