"""Warmup and changing instances, beside a real server: what is counted, said, begun and ended is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..differential.servers import Server
from .journal import Client, Journal, config, count_of, model, warmup

pytestmark = [pytest.mark.parity, pytest.mark.timeout(180)]

OPTIONS = ("--model-control-mode=explicit", "--exit-timeout-secs=5")
ONE = {"data_type": "TYPE_FP32", "dims": [1], "zero_data": True}
TWO_INPUTS = [
    {"name": "X", "data_type": "TYPE_FP32", "dims": [1]},
    {"name": "S", "data_type": "TYPE_STRING", "dims": [1], "optional": True},
]


def with_input(**changes: Any) -> dict[str, Any]:
    """A sample whose only input is not as it should be."""
    return warmup(inputs={"X": {"data_type": "TYPE_FP32", "dims": [1], **changes}})


WARMUPS: dict[str, dict[str, Any]] = {
    "a batch, often, on three instances": {
        "model_warmup": [warmup(batch_size=3, count=2), warmup(), warmup(batch_size=0)],
        "instance_group": [{"kind": "KIND_CPU", "count": 3}],
    },
    "no batch dimension": {"max_batch_size": 0, "model_warmup": [warmup(count=3)]},
    "one of two inputs, the other one optional": {"input": TWO_INPUTS, "model_warmup": [warmup()]},
    "an input that the model does not have": {
        "model_warmup": [warmup(inputs={"X": ONE, "START": {**ONE, "data_type": "TYPE_INT32"}})]
    },
    "no input": {"model_warmup": [warmup(inputs={})]},
    "another datatype": {"model_warmup": [with_input(data_type="TYPE_INT32", zero_data=True)]},
    "no datatype": {"model_warmup": [with_input(data_type="TYPE_INVALID", zero_data=True)]},
    "other dimensions": {"model_warmup": [with_input(dims=[2], zero_data=True)]},
    "open dimensions": {"model_warmup": [with_input(dims=[-1], zero_data=True)]},
    "no data": {"model_warmup": [with_input()]},
    "data that is said not to be zero": {"model_warmup": [with_input(zero_data=False)]},
    "a file": {"model_warmup": [with_input(input_data_file="four")]},
    "a file below": {"model_warmup": [with_input(input_data_file="below/four")]},
    "a file that is too short": {"model_warmup": [with_input(input_data_file="two")]},
    "a file that is not there": {"model_warmup": [with_input(input_data_file="none")]},
    "strings": {
        "input": TWO_INPUTS,
        "model_warmup": [
            warmup(
                inputs={
                    "X": ONE,
                    "S": {"data_type": "TYPE_STRING", "dims": [1], "input_data_file": "string"},
                }
            )
        ],
    },
    "too few strings": {
        "input": TWO_INPUTS,
        "model_warmup": [
            warmup(
                inputs={"X": ONE, "S": {"data_type": "TYPE_STRING", "dims": [1], "input_data_file": "two"}}
            )
        ],
    },
}

TOLD_OTHERWISE = {
    # Triton leaves out a blank.
    "a file that is too short",
}

# Over a sample whose requests fail when they are run, the real server ends about every fifth time, and
# otherwise says this for each of the requests.
_REFUSED = "load failed for model 'm': version 1 is at UNAVAILABLE state: "
FATAL: dict[str, tuple[dict[str, Any], str]] = {
    "two requests, but no batch dimension": (
        {"max_batch_size": 0, "model_warmup": [warmup(batch_size=2)]},
        f"{_REFUSED}Invalid argument: failed to run warmup sample 'sample': batch size 2 for 'm_0_0', max",
    ),
    "more than the model takes": (
        {"model_warmup": [warmup(batch_size=9)]},
        f"{_REFUSED}Invalid argument: failed to run warmup sample 'sample': batch size 9 for 'm_0_0', max",
    ),
    "fails": (
        {"parameters": {"journal": {"string_value": "/dev/null"}, "fail": {"string_value": "1"}}}
        | {"model_warmup": [warmup(batch_size=2)]},
        f"{_REFUSED}Invalid argument: failed to run warmup sample 'sample': Failed to process the request",
    ),
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Path, str], Server]]:
    """Start a server, `ours` or `real`, on a repository."""
    with ExitStack() as stack:

        def begin(repository: Path, kind: str) -> Server:
            log = tmp_path / f"{kind}.log"
            return stack.enter_context(
                closing(Server(repository, log, is_real=kind == "real", options=OPTIONS))
            )

        yield begin


def loaded_models(root: Path) -> ModelRepository:
    models = ModelRepository(root)
    failing = "if 'fail' in self.parameters: raise ValueError('boom')"
    models.python("m", model("self.parameters = config['parameters']", failing), "backend: 'python'")
    files = root / "m" / "warmup"
    (files / "below").mkdir(parents=True)
    for name, content in (("four", b"\0" * 4), ("two", b"\0\0"), ("below/four", b"\0" * 4)):
        (files / name).write_bytes(content)
    (files / "string").write_bytes(b"\x02\0\0\0hi")
    return models


def warm_up(server: Server, given: dict[str, Any]) -> tuple[str, Any]:
    """What the load of a configuration says, and what the statistics say after it."""
    with Client(server.ports["http"]) as client:
        client.ask("POST", "/v2/repository/models/m/unload")
        until(lambda: client.ask("GET", "/v2/models/m/ready")[0] != 200)
        error = client.load(given)
        return error, None if error else client.counts()


def warm_up_all(server: Server, journal: Path) -> dict[str, tuple[str, Any]]:
    """What is said of each configuration."""
    return {
        what: server.try_twice(what, partial(warm_up, server, config(journal, **given)))
        for what, given in WARMUPS.items()
    }


def test_warmups_are_counted_and_refused_as_by_a_real_server(
    start: Callable[[Path, str], Server], tmp_path: Path
) -> None:
    models = loaded_models(tmp_path / "models")
    got, wanted = (warm_up_all(start(models.path, kind), tmp_path / "journal") for kind in ("ours", "real"))

    differing = {what for what in WARMUPS if got[what] != wanted[what]}
    assert differing == TOLD_OTHERWISE, {what: (got[what], wanted[what]) for what in differing}
    for what in differing:  # refused alike, and the first words are the same
        assert got[what][1] is wanted[what][1] is None
        assert got[what][0][:100] == wanted[what][0][:100]


def test_warmups_that_the_real_server_may_not_survive_are_refused(
    start: Callable[[Path, str], Server], tmp_path: Path
) -> None:
    server = start(loaded_models(tmp_path / "models").path, "ours")

    told = {
        what: warm_up(server, config(tmp_path / "journal", **given))[0] for what, (given, _) in FATAL.items()
    }

    assert {what: told[what][: len(words)] for what, (_, words) in FATAL.items()} == {
        what: words for what, (_, words) in FATAL.items()
    }


STEPS: dict[str, list[dict[str, Any]]] = {
    "three": [{"count": 3}],
    "two": [{"count": 2}],
    "again": [{"count": 2}],
    "renamed": [{"count": 2, "name": "other"}],
    "two groups": [{"name": "a"}, {"name": "b"}],
    "the other way round": [{"name": "b"}, {"name": "a"}],
    "another kind": [{"count": 2, "kind": "KIND_MODEL"}],
    "one of each kind": [{"kind": "KIND_MODEL"}, {"kind": "KIND_CPU"}],
    "a rate limiter": [{"count": 2, "rate_limiter": {"priority": 2}}],
    "another rate limiter": [{"count": 3, "rate_limiter": {"priority": 3}}],
    "one more": [{"count": 4, "rate_limiter": {"priority": 3}}],
    "a policy": [{"host_policy": "own"}],
    "no group": [],
    "a device that is not there": [{"kind": "KIND_GPU"}],
}


def infer_until_counted(client: Client) -> Any:
    """What a request is answered; a real server answers it first, and counts it then."""
    before = client.counts()[0]
    answer = client.infer(2)
    until(lambda: client.counts()[0] > before)
    return answer


def change_groups(client: Client, path: Path) -> dict[str, tuple[Any, ...]]:
    """For each step what is said and shown, how many instances began and ended, and how many were asked."""
    journal = Journal(path)
    given = config(path, model_warmup=[warmup()])
    assert client.load(given) == ""
    client.ask("POST", "/v2/repository/models/m/load", {})  # its compiled code is new to a real server
    assert client.load(given) == ""
    lines = journal.lines()
    until(
        lambda: (
            count_of(lines, "finalize") == count_of(lines, "initialize") - 1
            or bool(lines.extend(journal.lines()))
        )
    )
    before = client.counts()[0]
    told: dict[str, tuple[Any, ...]] = {}
    running = 1
    for what, groups in STEPS.items():
        error = client.load(
            {
                **config(path, model_warmup=[warmup()]),
                "instance_group": [{"kind": "KIND_CPU", **group} for group in groups],
            }
        )
        wanted = sum(count for _, _, count in client.groups())
        lines = journal.lines()
        while running + count_of(lines, "initialize") - count_of(lines, "finalize") != wanted:
            lines += journal.wait(1)
        running = wanted
        began, ended = count_of(lines, "initialize"), count_of(lines, "finalize")
        answer = infer_until_counted(client)
        told[what] = (error, client.groups(), began, ended, answer, client.counts()[0] - before)
    return told


def change_all(server: Server, path: Path) -> dict[str, tuple[Any, ...]]:
    """The same on a server that has not loaded the model yet."""
    path.unlink(missing_ok=True)
    with Client(server.ports["http"]) as client:
        return change_groups(client, path)


def test_instances_are_kept_and_exchanged_as_by_a_real_server(
    start: Callable[[Path, str], Server], tmp_path: Path
) -> None:
    told = []
    for kind in ("ours", "real"):
        models = ModelRepository(tmp_path / kind)
        path = tmp_path / f"{kind}.txt"
        models.python("m", model(), config(path))
        server = start(models.path, kind)
        told.append(server.try_twice("changes", partial(change_all, server, path)))

    ours, real = told
    assert ours == real
