"""Agents in C in running servers: what they stop and hand over, what they hear, what their end costs."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.testing import until

from ..stress.holdings import POOL_THREADS
from .agent_places import AgentPlace, Client, children, gone
from .conftest import Compiled

# As obedient.cc, in Python.
PYTHON_AGENT = """
import os
from tritonpy.plugin import hookimpl

@hookimpl
def repo_agent_model_action(agent, model, action):
    with open(os.environ["AGENTS_LOG"], "a") as log:
        print(agent.name, os.getpid(), action, model.parameters["tag"], file=log)
"""

DIGEST = "b1494b6ef08a411e"  # the 64-bit FNV-1a of b"weights"


class Servers:
    """Starts servers on one place."""

    def __init__(self, place: AgentPlace, serve: Callable[..., Any], corectl: Callable[..., Any]) -> None:
        self._place = place
        self._serve = serve
        self._corectl = corectl

    def here(self, *names: str) -> Client:
        """A server of this process that has loaded these models."""
        server = self._serve(
            self._place.models.path,
            repo_agent_directory=str(self._place.agents),
            model_control_mode="explicit",
            load_models=names,
        )
        return Client(server.http_port)

    def process(self, *flags: str) -> tuple[Any, Client]:
        """A server of its own."""
        server = self._corectl(*self._place.flags, *flags)
        return server, Client(server.ports["HTTPService"])


@pytest.fixture
def place(compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentPlace:
    monkeypatch.setenv("AGENTS_LOG", str(tmp_path / "agents.log"))
    return AgentPlace(tmp_path, compiled)


@pytest.fixture
def servers(place: AgentPlace, serve: Callable[..., Any], corectl: Callable[..., Any]) -> Servers:
    return Servers(place, serve, corectl)


def test_a_model_whose_files_have_changed_is_refused_and_what_served_goes_on(
    place: AgentPlace, servers: Servers
) -> None:
    place.agent("digest", "digest.c")
    weights = place.model("m", ("digest", {"FNV:1/weights": DIGEST})) / "1/weights"
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(b"weights")
    client = servers.here("m")

    weights.write_bytes(b"weight")
    status, error = client.load("m")

    assert status == 500
    assert error.startswith(
        "failed to load 'm', failed to poll from model repository: Invalid argument: 1/weights"
    )
    assert error.endswith(f"expected {DIGEST}")
    assert client.infer("m") == 100
    weights.write_bytes(b"weights")
    assert client.load("m")[0] == 200


@pytest.mark.stress
def test_a_model_that_lies_locked_is_unlocked_where_only_the_server_reads_it(
    place: AgentPlace, servers: Servers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place.agent("unlock", "unlock.c")
    source = place.python("m", ("unlock", {"key": "open sesame"})) / "1/model.py"
    text = source.read_bytes().replace(
        b"ADDED = 1", b"ADDED = 7 + (__import__('os').stat(__file__).st_mode & 0)"
    )
    key = b"open sesame"
    source.with_name("model.py.locked").write_bytes(
        bytes(byte ^ key[place % len(key)] for place, byte in enumerate(text))
    )
    source.unlink()
    room = tmp_path / "temporary"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    server, client = servers.process("--load-model=m")

    assert client.infer("m") == 107
    (copy,) = room.rglob("model.py")
    assert all(stat & 0o077 == 0 for stat in (parent.stat().st_mode for parent in list(copy.parents)[1:3]))
    assert client.unload("m")[0] == 200
    until(lambda: not copy.exists())
    assert server.stop() == 0
    assert list(room.iterdir()) == []


@pytest.mark.stress
def test_agents_in_c_and_in_python_make_one_chain(place: AgentPlace, servers: Servers) -> None:
    place.agent("first")
    place.agent("last")
    (place.agents / "middle").mkdir()
    (place.agents / "middle/agent.py").write_text(PYTHON_AGENT)
    names = ("first", "middle", "last")
    place.model("m", *((name, {"tag": "m"}) for name in names))
    refusing = {"tag": "refused", "in": "LOAD", "do": "refuse", "with": "no"}
    place.model("refused", ("first", {"tag": "refused"}), ("middle", {"tag": "refused"}), ("last", refusing))
    client = servers.here("m")

    assert client.load("refused")[1].endswith(": Already exists: no")
    client.unload("m")
    until(lambda: "last Finalize" in place.log)

    actions = [line for line in place.log if re.search(" (LOAD|UNLOAD)", line)]
    assert actions == [
        *(f"{name} LOAD m" for name in names),
        *(f"{name} LOAD_COMPLETE m" for name in reversed(names)),
        *(f"{name} LOAD refused" for name in names),
        *(f"{name} LOAD_FAIL refused" for name in reversed(names)),
        *(f"{name} UNLOAD m" for name in names),
        *(f"{name} UNLOAD_COMPLETE m" for name in reversed(names)),
    ]
    assert len({*place.pids("first"), *place.pids("last")}) == 2
    assert place.pids("middle") == [os.getpid()]


@pytest.mark.stress
def test_loads_of_several_models_overlap_in_one_process(
    place: AgentPlace, servers: Servers, tmp_path: Path
) -> None:
    place.agent("slow")
    gate = tmp_path / "gate"
    for name in ("one", "two"):
        place.model(name, ("slow", {"tag": name, "in": "LOAD", "do": "wait", "with": str(gate)}))
    client = servers.here()
    threads = [threading.Thread(target=client.load, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()

    until(lambda: {"slow LOAD one", "slow LOAD two"} <= set(place.log))
    gate.touch()
    for thread in threads:
        thread.join()

    assert client.infer("one") == client.infer("two") == 100
    assert len(place.pids("slow")) == 1


@pytest.mark.stress
def test_no_request_fails_while_a_model_with_an_agent_is_reloaded(
    place: AgentPlace, servers: Servers
) -> None:
    place.agent("seen")
    place.model("m", ("seen", {"tag": "m", "in": "LOAD", "do": "acquire"}))
    client = servers.here("m")
    answers = []
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            answers.append(client.infer("m"))

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(5):
        place.change("m")
        before = len(answers)
        assert client.load("m")[0] == 200
        until(lambda: len(answers) > before)  # noqa: B023 (called here)
    is_over.set()
    asking.join()

    assert set(answers) == {100}
    until(lambda: place.log.count("seen UNLOAD_COMPLETE m") == 5)
    assert place.log.count("seen LOAD_COMPLETE m") == 6
    assert len(place.pids("seen")) == 1


def test_a_crash_costs_the_load_that_caused_it_and_nothing_else(place: AgentPlace, servers: Servers) -> None:
    library = place.agent("frail")
    place.model("good", ("frail", {"tag": "good"}))
    place.model("bad", ("frail", {"tag": "bad", "in": "LOAD", "do": "crash"}))
    server, client = servers.process("--load-model=good")

    status, error = client.load("bad")

    assert status == 500
    assert error == (
        f"failed to load 'bad', failed to poll from model repository: Internal: the process of repository "
        f"agent library {library} was killed by signal 11 (SIGSEGV) in TRITONREPOAGENT_ModelAction with LOAD "
        f"for model 'bad'"
    )
    assert client.infer("good") == 100
    place.change("good")
    assert client.load("good")[0] == 200  # by a new process, while the old model's is gone
    assert client.infer("good") == 100
    assert client.unload("good")[0] == 200
    until(lambda: "frail Finalize" in place.log)
    assert place.log.count("frail Initialize") == 2
    assert place.log.count("frail UNLOAD_COMPLETE good") == 1
    assert server.stop() == 0
    assert server.log.count("it will not hear what becomes of models that it has let through: good") == 1
    assert server.log.count("SIGSEGV") == 2  # for those who are told nothing, and for who asked for the load


@pytest.mark.stress
def test_a_process_that_is_killed_while_it_has_nothing_to_do_is_replaced(
    place: AgentPlace, servers: Servers
) -> None:
    place.agent("idle")
    place.model("m", ("idle", {"tag": "m"}))
    client = servers.here("m")
    (pid,) = place.pids("idle")

    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))

    assert client.infer("m") == 100
    place.change("m")
    assert client.load("m")[0] == 200
    assert client.infer("m") == 100
    assert len(place.pids("idle")) == 2


def test_an_agent_has_nothing_of_the_server_and_ends_with_it_however_that_ends(
    place: AgentPlace, servers: Servers
) -> None:
    place.agent("bound")
    place.model("m", ("bound", {"tag": "m", "in": "LOAD", "do": "leave a program behind"}))
    server, _ = servers.process("--load-model=m")
    (pid,) = place.pids("bound")
    left = next(int(line.split()[2]) for line in place.log if " left " in line)

    until(lambda: kinds_of_descriptors(pid) == ["/dev/null", "pipe", "pipe", "socket"])  # it may write notes
    os.kill(pid, signal.SIGTERM)  # as a service manager does, to all processes: the server says when to go
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGSTOP)
    server.stop(signal.SIGKILL)

    until(lambda: gone(pid) and gone(left))


def kinds_of_descriptors(pid: int) -> list[str]:
    """What a process has open."""
    opened = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it has just closed that
            opened.append(os.readlink(link))
    return sorted(name.partition(":")[0] for name in opened)


def test_log_lines_of_an_agent_are_in_the_log_of_the_server(place: AgentPlace, servers: Servers) -> None:
    place.agent("talking")
    place.model("m", ("talking", {"tag": "m", "in": "LOAD", "do": "log", "with": "a word"}))
    place.model("n", ("talking", {"tag": "n", "in": "LOAD", "do": "print", "with": "a picture"}))
    server, _ = servers.process("--load-model=m", "--load-model=n")
    (pid,) = place.pids("talking")
    assert server.stop() == 0

    lines = [line.split(maxsplit=2) for line in server.lines]
    said = [f"{line[0][0]} {line[2].strip()}" for line in lines if len(line) == 3]
    for expected in (
        f'I {pid} where.cc:41] "a word"',
        f'W {pid} where.cc:42] "two\\nlines, \\"quoted\\" and \\\\xff"',
        f'E {pid} where.cc:43] "bad"',
        f'I {pid} libtritonrepoagent_talking.so:0] "printed: a picture"',
        f'W {pid} libtritonrepoagent_talking.so:0] "complained: a picture"',
    ):
        assert said.count(expected) == 1, said
    assert "chatter" not in server.log


@pytest.mark.stress
def test_nothing_is_lost_of_what_an_agent_prints_however_much_it_is(
    place: AgentPlace, servers: Servers
) -> None:
    place.agent("loud")
    place.model("m", ("loud", {"tag": "m", "in": "LOAD", "do": "print much"}))
    server, _ = servers.process("--load-model=m")
    assert server.stop() == 0

    said = re.findall(r'libtritonrepoagent_loud.so:0\] "line (\d+) of much"', server.log)
    assert list(map(int, said)) == list(range(40_000))


@pytest.mark.stress
@pytest.mark.timeout(120)
def test_fifty_loads_leave_no_process_no_descriptor_and_no_directory(
    place: AgentPlace, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "temporary"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    place.agent("busy")
    place.model("m", ("busy", {"tag": "m", "in": "LOAD", "do": "acquire"}))
    server, client = servers.process()

    def load_and_unload(count: int) -> None:
        for number in range(count):
            assert client.load("m") == (200, None)
            if number % 5 == 4:
                os.kill(place.pids("busy")[-1], signal.SIGKILL)
            client.unload("m")
        until(lambda: children(server.process.pid) == [])

    def held() -> tuple[int, int]:
        proc = Path(f"/proc/{server.process.pid}")
        return len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir()))

    load_and_unload(5)
    before = held()
    load_and_unload(50)

    most = before[0], before[1] + POOL_THREADS
    until(lambda: all(now <= then for now, then in zip(held(), most, strict=True)))
    # The last unload may not be over; and unlike `rglob` this lets directories go while it looks into them.
    until(lambda: not any("/agent-" in place for place, _, _ in os.walk(room)))
    assert server.stop() == 0
    assert all(gone(pid) for pid in place.pids("busy"))
    assert list(room.iterdir()) == []
