"""Instances come and go while the model serves: what is kept, what is closed, and that no request notices."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from onnx import parser
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from .journal import Client, Journal, config, count_of, model, warmup

EXPLICIT = {"model_control_mode": "explicit", "load_models": ("m",)}
HELD = "while os.path.exists('{gate}'): time.sleep(0.01)"


@contextmanager
def asking(server: Any) -> Iterator[Client]:
    client = Client(server.http_port)
    try:
        yield client
    finally:
        client.close()


class Traffic:
    """Clients that ask without a pause until they are told to stop.

    Attributes:
        answers: what came, and what each of them expected.
    """

    def __init__(self, port: int, count: int) -> None:
        self.answers: list[tuple[float | str, float]] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(port,)) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def failures(self) -> list[tuple[float | str, float]]:
        return [(got, expected) for got, expected in self.answers if got != expected]

    def _ask(self, port: int) -> None:
        client, value = Client(port), 0.0
        while not self._stop.is_set():
            value += 1.0
            try:
                self.answers.append((client.infer(value), value))
            except OSError as error:
                self.answers.append((f"lost: {error!r}", value))
        client.close()


def change_under_traffic(
    serve: Callable[..., Any], models: ModelRepository, configure: Callable[[int], Any], counts: Sequence[int]
) -> int:
    """Give the model so many instances, one number after the other, while it is asked; how many answers."""
    with asking(serve(models.path, **EXPLICIT)) as client:
        traffic = Traffic(client._connection.port, 3)
        for count in counts:
            assert client.load(configure(count)) == ""
            assert [group[2] for group in client.groups()] == [count]
            seen = len(traffic.answers)
            until(lambda seen=seen: len(traffic.answers) >= seen + 3)  # type: ignore[misc]
        traffic.stop()
        assert traffic.failures() == []
        # One model all the time: its statistics have every request since its start.
        assert client.counts()[0] == len(traffic.answers)
        return len(traffic.answers)


@pytest.mark.parametrize(
    "rounds", [2, pytest.param(20, marks=[pytest.mark.stress, pytest.mark.timeout(300)])]
)
def test_processes_come_and_go_and_no_request_fails(
    serve: Callable[..., Any], tmp_path: Path, rounds: int
) -> None:
    models = ModelRepository(tmp_path / "models")
    configure = lambda count: config(tmp_path / "journal", {"count": count})  # noqa: E731
    models.python("m", model(execute="time.sleep(0.002)"), configure(1))

    assert change_under_traffic(serve, models, configure, [4, 2, 1] * rounds)
    journal = Journal(tmp_path / "journal")
    lines = journal.lines()
    # One is kept all the time; in each round three come and three go.
    while count_of(lines, "finalize") < 3 * rounds:
        lines += journal.wait(1)
    assert count_of(lines, "initialize") == 1 + 3 * rounds
    assert count_of(lines, "finalize") == 3 * rounds


@pytest.mark.parametrize(
    "rounds", [4, pytest.param(20, marks=[pytest.mark.stress, pytest.mark.timeout(300)])]
)
@pytest.mark.parametrize("shared", ["1", "0"])
def test_threads_come_and_go_and_no_request_fails(
    serve: Callable[..., Any], tmp_path: Path, rounds: int, shared: str
) -> None:
    net = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\nnet (float[N,1] X) => (float[N,1] Y) { Y = Identity(X) }'
    )
    models = ModelRepository(tmp_path)
    configure = lambda count: {  # noqa: E731
        "max_batch_size": 8,
        "backend": "onnxruntime",
        "dynamic_batching": {},
        "parameters": {"share_session_between_instances": {"string_value": shared}},
        "instance_group": [{"kind": "KIND_CPU", "count": count}],
    }
    models.onnx("m", net.SerializeToString(), configure(1))

    assert change_under_traffic(serve, models, configure, [4, 2, 1] * rounds)


def test_what_an_instance_that_goes_has_been_given_is_answered_first(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    """The instances compute to the end, then they are finalised, and only then the load is answered."""
    models, gate, path = ModelRepository(tmp_path / "models"), tmp_path / "gate", tmp_path / "journal"
    models.python("m", model(execute=HELD.format(gate=gate)), config(path, {"count": 3}))
    server = serve(models.path, **EXPLICIT)
    journal = Journal(path)
    journal.wait(3)
    with asking(server) as client:
        gate.touch()
        traffic = Traffic(server.http_port, 3)
        journal.wait(3)  # each of the three has one

        with ThreadPoolExecutor(1) as pool, asking(server) as other:
            load = pool.submit(client.load, config(path, {"count": 1}))
            until(lambda: other.groups() == [("m_0", "KIND_CPU", 1)])
            assert journal.lines() == []
            assert not load.done()
            gate.unlink()
            assert load.result(60) == ""
        assert count_of(journal.lines(), "finalize") == 2
        traffic.stop()
        assert traffic.failures() == []
        assert len(traffic.answers) >= 3


def test_the_own_configuration_of_a_model_with_one_more_instance_starts_one_instance(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    models.python("m", model(), config(path, {"count": 1}))
    journal = Journal(path)
    with asking(serve(models.path, **EXPLICIT)) as client:
        journal.wait(1)
        _, settled = client.ask("GET", "/v2/models/m/config")
        settled["instance_group"][0]["count"] = 2

        assert client.load(settled) == ""
        assert journal.lines() == ["m_0_1 initialize CPU [2]"]
        assert client.load(config(path, {"count": 1})) == ""
        assert journal.lines() == ["m_0_1 finalize"]
        assert client.load(settled | {"max_batch_size": 4}) == ""
        assert count_of(journal.lines(), "initialize") == 2


def test_open_requests_of_a_decoupled_model_keep_their_instance_until_they_end(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    gate, taken = tmp_path / "gate", tmp_path / "taken"
    later = (
        "import threading\n"
        "        def answer(request):\n"
        "            sender = request.get_response_sender()\n"
        f"            while os.path.exists('{gate}'): time.sleep(0.01)\n"
        "            x = pb_utils.get_input_tensor_by_name(request, 'X').as_numpy()\n"
        "            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor('Y', x)]), flags=1)\n"
        "        for request in requests: threading.Thread(target=answer, args=(request,)).start()\n"
        f"        {HELD.format(gate=taken)}\n"
        "        return None"
    )
    given = {"model_transaction_policy": {"decoupled": True}}
    models.python("m", model(execute=later), config(path, {"count": 2}, **given))
    journal = Journal(path)
    server = serve(models.path, **EXPLICIT)
    journal.wait(2)
    gate.touch()
    taken.touch()
    answers: list[tuple[int, Any]] = []

    def generate() -> None:
        with asking(server) as client:
            answers.append(client.ask("POST", "/v2/models/m/generate", {"X": [7.0]}))

    threads = [threading.Thread(target=generate) for _ in range(6)]
    for thread in threads:
        thread.start()
    # None takes a second one before both have one: each keeps its first until the file is gone.
    assert journal.wait(2) == ["m_0_0 execute 1", "m_0_1 execute 1"]
    taken.unlink()
    journal.wait(4)
    with ThreadPoolExecutor(1) as pool, asking(server) as client, asking(server) as other:
        load = pool.submit(client.load, config(path, {"count": 1}, **given))
        try:
            until(lambda: other.groups() == [("m_0", "KIND_CPU", 1)])
            assert journal.lines() == []  # it has answered none of them
        finally:
            gate.unlink()
            for thread in threads:
                thread.join(60)
        assert load.result(60) == ""
    assert [(status, answer["Y"]) for status, answer in answers] == [(200, 7.0)] * 6
    assert count_of(journal.wait(1), "finalize") == 1


def test_instances_that_cannot_be_added_leave_all_as_it_was(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    models, poison, path = ModelRepository(tmp_path / "models"), tmp_path / "poison", tmp_path / "journal"
    models.python(
        "m",
        model(f"if os.path.exists('{poison}') and self.name.endswith('2'): raise ValueError('boom')"),
        config(path, {"count": 1}, model_warmup=[warmup()]),
    )
    with asking(serve(models.path, **EXPLICIT)) as client:
        journal = Journal(path)
        journal.wait(2)
        poison.touch()

        error = client.load(config(path, {"count": 3}, model_warmup=[warmup()]))

        assert error.startswith("load failed for model 'm': version 1 is at READY state: Internal: ")
        assert "ValueError: boom" in error
        assert client.groups() == [("m_0", "KIND_CPU", 1)]
        assert journal.wait(4) == [
            "m_0_1 execute 1",
            "m_0_1 finalize",
            "m_0_1 initialize CPU [3]",
            "m_0_2 initialize CPU [3]",
        ]
        assert client.infer(5) == 5
        poison.unlink()
        assert client.load(config(path, {"count": 3}, model_warmup=[warmup()])) == ""
        # Two of its four warmups were for nothing, and are counted all the same; one request.
        assert client.counts()[0] == 1 + 1 + 2 + 1


def test_all_versions_change_or_none(serve: Callable[..., Any], tmp_path: Path) -> None:
    models, poison = ModelRepository(tmp_path / "models"), tmp_path / "poison"
    paths = {version: tmp_path / f"journal{version}" for version in (1, 2, 3)}
    both, every = {"version_policy": {"latest": {"num_versions": 2}}}, {"version_policy": {"all": {}}}
    newest = {"latest": {"num_versions": 1}}
    given = config(tmp_path / "journal", **both)
    for version, path in paths.items():
        source = model(
            f"if os.path.exists('{poison}') and args['model_version'] == '2': raise ValueError('boom')"
        )
        source = source.replace('config["parameters"]["journal"]["string_value"]', repr(str(path)))
        models.python("m", source, given, version=version)
    journals = {version: Journal(path) for version, path in paths.items()}
    with asking(serve(models.path, **EXPLICIT)) as client:
        for version in (2, 3):
            journals[version].wait(1)
        poison.touch()
        error = client.load(config(tmp_path / "journal", {"count": 2}, **both))
        assert "version 2 is at READY state: Internal: ValueError: boom" in error
        assert count_of(journals[3].wait(2), "finalize") == 1  # what was started for nothing
        poison.unlink()
        assert client.load(config(tmp_path / "journal", {"count": 2}, **both)) == ""
        for version in (2, 3):
            assert count_of(journals[version].lines(), "finalize") == 0

        # Another choice of versions loads and unloads those that it is about.
        assert client.load(config(tmp_path / "journal", {"count": 2}, **every)) == ""
        assert count_of(journals[1].lines(), "initialize") == 2
        assert client.infer(3, "1") == 3
        assert client.load(config(tmp_path / "journal", {"count": 2}, version_policy=newest)) == ""
        assert count_of(journals[1].wait(3), "finalize") == count_of(journals[2].wait(2), "finalize") == 2
        assert client.infer(4, "3") == 4
        assert journals[3].lines() == ["m_0_0 execute 1"]


def test_a_configuration_file_counts_like_one_that_comes_with_the_request(
    serve: Callable[..., Any], tmp_path: Path
) -> None:
    models, path = ModelRepository(tmp_path / "models"), tmp_path / "journal"
    models.python("m", model(), config(path))
    journal = Journal(path)
    with asking(serve(models.path, **EXPLICIT)) as client:
        assert journal.wait(1) == ["m_0_0 initialize CPU [1]"]
        models.python("m", model(), config(path, {"count": 2}))
        os.utime(models.path / "m" / "1" / "model.py", ns=(1, 1))
        assert client.load() == ""
        # The code was written anew, too: that is another model.
        assert count_of(journal.wait(3), "initialize") == 2

        config_file = models.path / "m" / "config.pbtxt"
        text = config_file.read_text()
        config_file.write_text(text.replace("count: 2", "count: 3") + "# another one\n")
        assert client.load() == ""
        assert journal.lines() == ["m_0_2 initialize CPU [3]"]
        config_file.write_text(text.replace("count: 2", "count: 3") + "# nothing but this line\n")
        assert client.load() == ""
        assert journal.lines() == []

        status, _ = client.ask("POST", "/v2/repository/models/m/load", {"parameters": {"force": True}})
        assert status == 200
        assert count_of(journal.wait(6), "initialize") == 3  # all of them, because it was asked for


def test_a_model_whose_instances_are_dead_is_loaded_anew(serve: Callable[..., Any], tmp_path: Path) -> None:
    models, poison, path = ModelRepository(tmp_path / "models"), tmp_path / "poison", tmp_path / "journal"
    dies = f"counts == [1] and os.path.exists('{poison}') and os.kill(os.getpid(), 9)"
    models.python("m", model(f"self.tell(f'pid {{os.getpid()}}'); {dies}"), config(path))
    with asking(serve(models.path, **EXPLICIT)) as client:
        (pid,) = [int(line.rpartition(" ")[2]) for line in Journal(path).wait(2) if " pid " in line]
        client.infer()
        poison.touch()
        os.kill(pid, signal.SIGKILL)
        until(lambda: "no live instance" in str(client.infer()))
        assert client.load(config(path, {"count": 2})) == ""  # the poison is still there for the old one
        assert client.infer(2) == 2
        assert client.counts()[0] == 1  # another model
