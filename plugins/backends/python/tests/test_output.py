"""What a model prints becomes lines of the server's log."""

from __future__ import annotations

import io
import os
import threading

import pytest
from tritonpy.ipc import frame
from tritonpy_backend_python.worker import output
from tritonpy_backend_python.worker.output import MAX_LINE_BYTES, LineSink, own_requests

INFO, WARNING = 0, 1


class Lines(list):
    """Takes what a sink sends."""

    def __call__(self, level, text, request_id, file, line, traceback):
        assert (level, file, line, traceback) == (INFO, "stdout", 0, "")
        self.append((text, request_id))

    @property
    def texts(self):
        return [text for text, _ in self]


@pytest.fixture
def lines():
    return Lines()


@pytest.fixture
def sink(lines):
    return LineSink("stdout", 1, INFO, lines)


@pytest.fixture
def stream(sink):
    return output._text_stream(sink)


def test_lines_leave_when_they_end(stream, lines):
    print("first", 1, file=stream)
    print("second ", end="", file=stream)
    assert lines.texts == ["first 1"]

    print("half\nthird\nfourth", end="", file=stream)
    assert lines.texts == ["first 1", "second half", "third"]


def test_a_line_without_end_leaves_when_it_is_asked_for(sink, stream, lines):
    stream.write("half")
    stream.flush()
    assert lines == []

    sink.end_line()
    sink.end_line()
    assert lines.texts == ["half"]


def test_a_long_line_without_end_does_not_wait(stream, lines):
    for _ in range(9):
        stream.write("x" * 1000)
    stream.write("\n")

    assert [len(text) for text in lines.texts] == [9000]


def test_a_very_long_line_is_cut_with_a_note(stream, lines):
    print("x" * (MAX_LINE_BYTES + 7), file=stream)

    assert lines.texts == ["x" * MAX_LINE_BYTES + " … [cut: 7 bytes more]"]


def test_empty_lines_are_left_out_and_progress_bars_end_in_one(stream, lines):
    print(file=stream)
    print("\r 10%", end="\r", file=stream)
    print("\r 90%", end="", file=stream)
    print("\r100%\r", file=stream)

    assert lines.texts == ["100%"]


def test_it_is_a_text_stream_like_any_other(stream, lines):
    assert isinstance(stream, io.TextIOWrapper)
    assert (stream.encoding, stream.errors, stream.name, stream.mode) == (
        "utf-8",
        "backslashreplace",
        "<stdout>",
        "w",
    )
    assert (stream.isatty(), stream.writable(), stream.readable(), stream.seekable()) == (
        False,
        True,
        False,
        False,
    )
    assert stream.fileno() == 1
    with pytest.raises(io.UnsupportedOperation):
        stream.read()

    stream.reconfigure(line_buffering=True)
    stream.writelines(["a\n", "b\n"])
    stream.buffer.write(memoryview(b"bytes \xff\n"))
    stream.write("ä \udc80\n")
    stream.close()
    print("after close", file=stream)

    assert not stream.closed
    assert lines.texts == ["a", "b", "bytes \\xff", "ä \\udc80", "after close"]


def test_threads_do_not_mix_their_lines(sink, stream, lines):
    barrier = threading.Barrier(4)

    def speak(name):
        for _ in range(50):
            stream.write(name)
            barrier.wait(20)
            stream.write(name + "\n")
        stream.write(f"end of {name}")

    threads = [threading.Thread(target=speak, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(lines.texts) == sorted(["aa", "bb", "cc", "dd"] * 50)

    sink.end_all_lines()
    assert sorted(lines.texts[200:]) == [f"end of {name}" for name in "abcd"]


def test_a_line_that_prints_while_it_is_printed_waits_for_nobody(sink):
    said = []

    def send(level, text, *_):
        said.append(text)
        if text == "outer":  # as a finalizer may, at any point
            sink.write(b"inner\n")

    sink._send = send
    sink.write(b"outer\nnext\n")

    assert said == ["outer", "inner", "next"]


def test_lines_carry_the_ids_of_the_requests(stream, lines):
    for ids in (["a"], ["", "b", ""], list("abcd"), list("abcdef"), [""]):
        token = own_requests.set([(slot, id) for slot, id in enumerate(ids)])
        print("x", file=stream)
        own_requests.reset(token)
    print("x", file=stream)

    assert [request_id for _, request_id in lines] == ["a", "b", "a,b,c,d", "a,b,c,d,…", "", ""]


def test_a_server_that_is_gone_does_not_hurt(sink, stream):
    def send(*_):
        raise BrokenPipeError

    sink._send = send
    print("x", file=stream)


def test_a_forked_child_writes_to_the_descriptor(lines):
    read, write = os.pipe()
    sink = LineSink("stdout", write, INFO, lines)
    sink.write(b"half of the parent's ")

    sink.use_descriptor()
    sink.write(b"child\n")

    os.close(write)
    with open(read, "rb") as pipe:
        assert pipe.read() == b"child\n"
    assert lines == []


# In a worker.


def test_a_model_prints_with_the_id_of_its_request(load_execute):
    worker = load_execute(
        """
        import sys
        print("out")
        print("err", file=sys.stderr)
        pb_utils.Logger.log_info("logged")
        print("half", end="")
        return [answer() for _ in requests]
        """,
        config={"max_batch_size": 4},
    )

    worker.execute(worker.request(id="r1", slot=0), worker.request(id="r2", slot=1))

    assert worker.logs == [
        (INFO, "out", "r1,r2"),
        (WARNING, "err", "r1,r2"),
        (INFO, "logged", "r1,r2"),
        (INFO, "half", "r1,r2"),
    ]
    assert worker.log_places[0] == ("stdout", 0)
    assert worker.log_places[1] == ("stderr", 0)
    file, line = worker.log_places[2]
    assert file == str(worker.model_file)
    assert (
        worker.model_file.read_text().splitlines()[line - 1].strip() == 'pb_utils.Logger.log_info("logged")'
    )


def test_threads_and_later_times_have_no_request_id(load):
    worker = load(
        """
        import threading
        import numpy as np
        import triton_python_backend_utils as pb_utils

        print("import")

        class TritonPythonModel:
            def initialize(self, args):
                print("initialize", end="")

            def execute(self, requests):
                thread = threading.Thread(target=print, args=("thread",))
                thread.start()
                thread.join()
                print("execute")
                return [pb_utils.InferenceResponse() for _ in requests]

            def finalize(self):
                print("finalize", end="")
        """
    )
    worker.execute(worker.request(id="r1"))
    worker.ask(frame.FINALIZE)

    assert worker.logs == [
        (INFO, "import", ""),
        (INFO, "initialize", ""),
        (INFO, "thread", ""),
        (INFO, "execute", "r1"),
        (INFO, "finalize", ""),
    ]


def test_coroutines_keep_their_request_id(load_execute):
    worker = load_execute(
        """
        async def later(request, gate):
            await (gate.wait() if request.request_id() == "r1" else asyncio.sleep(0.01))
            print("later")
            request.get_response_sender().send(answer(), FINAL)
            gate.set()
        self.gate = getattr(self, "gate", None) or asyncio.Event()
        asyncio.create_task(later(requests[0], self.gate))
        print("now")
        """,
        is_async=True,
        decoupled=True,
    )

    worker.start(worker.request(id="r1", slot=0))
    worker.start(worker.request(id="r2", slot=1))
    kinds = [worker.receive()[0] for _ in range(4)]  # the batches are taken while their coroutines run

    assert sorted(kinds) == sorted([frame.EXECUTED, frame.RESPONSE] * 2)
    assert worker.logs == [
        (INFO, "now", "r1"),
        (INFO, "now", "r2"),
        (INFO, "later", "r2"),
        (INFO, "later", "r1"),
    ]


def test_finalizers_that_print_and_count_do_no_harm(load):
    worker = load(
        """
        import gc
        import triton_python_backend_utils as pb_utils

        class Noisy:
            def __init__(self):
                self.self = self
            def __del__(self):
                print("gone")

        class TritonPythonModel:
            def execute(self, requests):
                gc.set_threshold(2)
                for _ in range(300):
                    Noisy()
                    print("here", [[]])
                gc.set_threshold(700)
                gc.collect()
                return [pb_utils.InferenceResponse() for _ in requests]
        """
    )
    worker.execute(worker.request())

    texts = [text for _, text, _ in worker.logs]
    assert texts.count("gone") == 300
    assert texts.count("here [[]]") == 300


def test_native_code_children_and_forks_write_to_the_pipes(load_execute):
    worker = load_execute(
        """
        import ctypes, os, subprocess, sys
        ctypes.CDLL(None).puts(b"native")
        subprocess.run([sys.executable, "-c", "print('child')"], stdout=sys.stdout, check=True)
        child = os.fork()
        if child == 0:
            print("fork")
            os._exit(0)
        os.waitpid(child, 0)
        os.write(2, b"descriptor 2\\n")
        return [answer()]
        """
    )
    worker.execute(worker.request())
    printed = os.read(worker.process.stdout.fileno(), 1000)

    assert printed.splitlines() == [b"native", b"child", b"fork"]
    assert os.read(worker.process.stderr.fileno(), 1000).endswith(b"descriptor 2\n")
    assert worker.logs == []
