"""The process that reads and writes large JSON: its work, its deaths, and what happens without it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from tritonpy.errors import ErrorCode, Internal, TritonError, Unavailable
from tritonpy.frontends.http.codec import json_codec
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.codec.large_json import Parts
from tritonpy.ipc import child_channel
from tritonpy.tensor import Tensor
from tritonpy_sdk.testing import until, until_async

COUNT = 300_000


def request(count: int = COUNT) -> bytes:
    elements = ",".join(map(str, range(count)))
    item = f'{{"name":"A","datatype":"FP32","shape":[{count}],"data":[{elements}]}}'
    return f'{{"id":"7","inputs":[{item}]}}'.encode()


@pytest.fixture
async def codec() -> AsyncIterator[JsonCodec]:
    codec = JsonCodec()
    yield codec
    await codec.close()


def is_busy(codec: JsonCodec) -> bool:
    """Whether the process has been given something to do."""
    return codec._process is not None and bool(codec._process._replies)


async def until_busy(codec: JsonCodec) -> None:
    await until_async(lambda: is_busy(codec))


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_no_process_exists_until_there_is_something_to_do_and_then_it_stays(codec: JsonCodec) -> None:
    assert codec.pid is None

    await codec.read(b'{"inputs":[]}')
    first = codec.pid
    await codec.read(b'{"inputs":[]}')

    assert first is not None
    assert codec.pid == first


async def test_a_large_request_is_read(codec: JsonCodec) -> None:
    document = await codec.read(memoryview(request()))

    tensor = document["inputs"][0]["data"].tensor()
    assert document["id"] == "7"
    np.testing.assert_array_equal(tensor.numpy(), np.arange(COUNT, dtype=np.float32))


async def test_a_large_answer_is_written(codec: JsonCodec) -> None:
    tensors = [
        Tensor.from_numpy("A", np.arange(COUNT, dtype=np.int32)),
        Tensor.from_numpy("B", np.array([b"x" * 100_000, b"\xff"], object)),
    ]

    numbers, strings = await codec.write(tensors)

    assert bytes(numbers) == b"[" + b",".join(b"%d" % number for number in range(COUNT)) + b"]"
    assert bytes(strings) == b'["' + b"x" * 100_000 + b'","\xff"]'


async def test_what_was_read_can_be_written_without_being_copied_between(codec: JsonCodec) -> None:
    document = await codec.read(request())
    tensor = document["inputs"][0]["data"].tensor()

    (text,) = await codec.write([tensor])

    assert bytes(text).startswith(b"[0.0,1.0,2.0,")


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (
            lambda: request()[:-3],
            ErrorCode.INTERNAL,
            "failed to parse the request JSON buffer: Missing a comma",
        ),
        (
            lambda: b"[" * 2_000_000,
            ErrorCode.INVALID_ARG,
            r"JSON nesting depth exceeds maximum allowed limit \(1024\)",
        ),
    ],
)
async def test_errors_are_those_that_a_small_request_gets(
    codec: JsonCodec, make: Callable[[], bytes], code: ErrorCode, words: str
) -> None:
    with pytest.raises(TritonError, match=words) as caught:
        await codec.read(make())

    assert caught.value.code is code


async def test_an_error_in_data_waits_for_its_turn(codec: JsonCodec) -> None:
    document = await codec.read(request().replace(b"299999]", b'"x"]'))

    with pytest.raises(TritonError, match="attempt to access JSON non-number as double"):
        document["inputs"][0]["data"].tensor()


async def test_memory_is_given_back_when_nobody_reads_it_any_more(codec: JsonCodec) -> None:
    for _ in range(5):
        document = await codec.read(request())
        document["inputs"][0]["data"].tensor()
    process = codec._process
    assert process is not None
    del document
    gc.collect()
    await codec.read(b"{}")

    assert process._channel.endpoint.arena.leased_count == 0
    assert process._channel.endpoint.arena.byte_size <= 16 * 1024 * 1024


async def test_a_process_that_is_killed_is_started_again_and_its_work_done_once_more(
    codec: JsonCodec, caplog: pytest.LogCaptureFixture
) -> None:
    await codec.read(b"{}")
    first = codec.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    reading = asyncio.create_task(codec.read(request()))
    waiting = asyncio.create_task(codec.read(request(10)))
    await until_busy(codec)

    os.kill(first, signal.SIGKILL)

    assert (await reading)["inputs"][0]["data"].tensor().shape == (COUNT,)
    assert (await waiting)["inputs"][0]["data"].tensor().shape == (10,)
    assert codec.pid not in (None, first)
    assert "was killed by signal 9 (SIGKILL); it is started again" in caplog.text


async def test_work_that_kills_the_process_twice_is_refused_and_the_next_is_done(
    codec: JsonCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_apart = json_codec.CodecProcess.take_apart

    async def hang(own: json_codec.CodecProcess, text: bytes | memoryview) -> Parts:
        os.kill(own.pid, signal.SIGSTOP)  # before it has the work, or it might be quicker than this test
        return await take_apart(own, text)

    killed: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(json_codec.CodecProcess, "take_apart", hang)
        reading = asyncio.create_task(codec.read(request()))
        for _ in range(2):
            await until_async(lambda: is_busy(codec) and codec.pid not in (None, *killed))
            assert codec.pid is not None
            killed.append(codec.pid)
            os.kill(codec.pid, signal.SIGKILL)
        with pytest.raises(Internal, match=r"cannot be read: the process that does it .*, twice"):
            await reading

    assert (await codec.read(request(10)))["id"] == "7"


async def test_work_that_nobody_waits_for_any_more_is_dropped(codec: JsonCodec) -> None:
    await codec.read(b"{}")
    assert codec.pid is not None
    os.kill(codec.pid, signal.SIGSTOP)
    running_one = asyncio.create_task(codec.read(request()))
    queued = asyncio.create_task(codec.read(request()))
    last = asyncio.create_task(codec.read(request(10)))
    await until_busy(codec)

    running_one.cancel()
    queued.cancel()
    await asyncio.wait((running_one, queued))
    assert codec._held == len(request()) + len(request(10))
    os.kill(codec.pid, signal.SIGCONT)

    assert (await last)["id"] == "7"
    assert codec._held == 0


async def test_more_than_may_wait_is_refused(codec: JsonCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_codec, "MOST_WAITING_BYTE_SIZE", 1000)
    first = asyncio.create_task(codec.read(request()))  # alone it is let in, whatever its size
    await asyncio.sleep(0)

    with pytest.raises(Unavailable, match="bytes of JSON cannot be read now"):
        await codec.read(request(10))
    assert (await first)["id"] == "7"
    assert (await codec.read(request(10)))["id"] == "7"


@pytest.mark.parametrize("failure", [OSError("no"), ValueError("pass_fds not supported on Windows")])
async def test_where_there_can_be_no_process_a_thread_does_it_and_the_log_says_so(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def no_process(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(json_codec, "launch_process", no_process)
    codec = JsonCodec()

    document = await codec.read(request())
    (text,) = await codec.write([document["inputs"][0]["data"].tensor()])

    assert bytes(text).startswith(b"[0.0,1.0,")
    assert codec.pid is None
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "is read and written on a thread" in warnings[0].getMessage()
    await codec.close()


async def test_a_program_that_ends_at_once_is_as_good_as_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(json_codec, "_COMMAND", [sys.executable, "-c", "raise SystemExit(3)"])
    codec = JsonCodec()

    assert (await codec.read(request(10)))["id"] == "7"

    assert "exited with code 3" in caplog.text
    await codec.close()


async def test_closing_ends_the_process_and_what_comes_later_is_refused(codec: JsonCodec) -> None:
    await codec.read(b"{}")
    pid = codec.pid
    assert pid is not None

    await codec.close()

    assert not running(pid)
    with pytest.raises(Unavailable, match="the server is stopping"):
        await codec.read(b"{}")


async def test_closing_does_not_wait_for_a_process_that_hangs(
    codec: JsonCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_channel, "_EXIT_TIMEOUT_S", 0.1)
    await codec.read(b"{}")
    pid = codec.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    reading = asyncio.create_task(codec.read(request()))
    await until_busy(codec)

    await codec.close()

    assert not running(pid)
    with pytest.raises(Unavailable):
        await reading


PARENT = """
import asyncio, sys, time
from tritonpy.frontends.http.codec.json_codec import JsonCodec

async def main():
    codec = JsonCodec()
    await codec.read(b"{}")
    print(codec.pid, flush=True)
    await codec.read(b'{"id": "' + b"x" * 50_000_000 + b'"}')
    time.sleep(60)

asyncio.run(main())
"""


def test_a_killed_server_leaves_no_process_and_no_shared_memory(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=tmp_path)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()

    until(lambda: not running(pid))
    assert not [name for name in set(os.listdir("/dev/shm")) - before if name.startswith("tritonpy-")]
