"""Models that share the process of a test keep out of each other's way, and leave nothing behind."""

from __future__ import annotations

import sys
import threading
from textwrap import dedent

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from tritonpy_sdk.testing import load_python_model
from tritonpy_sdk.testing.python_model import instance

TEXT_CONFIG = """
backend: "python"
input { name: "TEXT" data_type: TYPE_STRING dims: -1 }
output { name: "LOUD" data_type: TYPE_STRING dims: -1 }
"""
DECOUPLED = """
backend: "python"
model_transaction_policy { decoupled: true }
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "Y" data_type: TYPE_INT32 dims: 1 }
"""
DOUBLE = """
def execute(self, requests):
    return [answer(Y=array(request) * 2) for request in requests]
"""


def code(*bodies):
    return "".join(map(dedent, bodies))


def x(*rows):
    return {"X": np.array(rows, np.float32).reshape(len(rows), -1)}


def test_models_with_files_of_the_same_names_keep_their_own(load):
    body = """
        from .settings import NAME as RELATIVE
        import settings

        def execute(self, requests):
            import late
            from .late import NAME as relative
            names = [self.RELATIVE, self.settings.NAME, late.NAME, relative, pb_utils.get_model_dir()[-6:]]
            return [answer(LOUD=np.array(names, object)) for _ in requests]
    """
    models = [
        load(
            body,
            TEXT_CONFIG,
            name=name,
            settings=f"NAME = '{name} settings'",
            late=f"NAME = '{name} late'",
        )
        for name in ("one", "two")
    ]

    for model in (*models, *models[::-1]):
        name = model.name
        expected = [f"{name} settings"] * 2 + [f"{name} late"] * 2 + [f"/{name}/1"[-6:]]
        assert [text.decode() for text in model.infer({"TEXT": ["?"]})["LOUD"]] == expected


def test_a_model_that_is_called_meanwhile_finds_its_own_files(load):
    body = """
        def execute(self, requests):
            import late
            called = []
            for name in self.calls:
                call = pb_utils.InferenceRequest(
                    model_name=name, requested_output_names=["LOUD"], inputs=requests[0].inputs()
                )
                called = call.exec().output_tensors()[0].as_numpy().tolist()
            return [answer(LOUD=np.array([late.NAME, *called], object)) for _ in requests]
    """
    callee = load(body, TEXT_CONFIG, name="callee", late="NAME = 'callee'")
    caller = load(body, TEXT_CONFIG, name="caller", late="NAME = 'caller'", models={"callee": callee})
    caller.python_object.calls, callee.python_object.calls = ["callee"], []

    for _ in range(2):
        assert caller.infer({"TEXT": ["?"]})["LOUD"].tolist() == [b"caller", b"callee"]


def test_one_model_may_be_loaded_twice(write):
    path = write(
        """
        import settings

        def execute(self, requests):
            return [answer(Y=array(request) + self.settings.OFFSET) for request in requests]
        """,
        settings="OFFSET = 1",
    )

    with load_python_model(path) as one, load_python_model(path) as two:
        sys.modules["settings"].OFFSET = 5  # that of the one that came last

        assert one.infer(x([1, 2]))["Y"].tolist() == [[2, 3]]
        assert two.infer(x([1, 2]))["Y"].tolist() == [[6, 7]]


def test_nothing_is_left_of_a_finalized_model(write):
    body = """
        import settings, sys
        sys.path.insert(0, "/nowhere/vendor")

        def finalize(self):
            print("finalized")
    """
    path = write(code(body, DOUBLE), settings="")
    with load_python_model(path) as first:  # what our own code and Python's import for the first one stays
        first.infer(x([1, 2]))
    before = list(sys.path), set(sys.modules), list(sys.path_hooks)
    threads = set(threading.enumerate())

    for _ in range(2):
        with load_python_model(path) as model:
            model.infer(x([1, 2]))
            assert "settings" in sys.modules
            assert "/nowhere/vendor" in sys.path

    assert (list(sys.path), set(sys.modules), list(sys.path_hooks)) == before
    assert set(threading.enumerate()) <= threads
    with pytest.raises(pb_utils.TritonModelException, match="only in a process that a server started"):
        pb_utils.get_model_dir()
    with pytest.raises(pb_utils.TritonModelException, match="no server has started this process"):
        pb_utils.is_model_ready("net")


def test_a_directory_that_the_test_has_put_on_the_path_stays(write, monkeypatch):
    path = write(DOUBLE)
    monkeypatch.syspath_prepend(path / "1")
    before = list(sys.path)

    load_python_model(path).finalize()

    assert list(sys.path) == before


def test_finalize_is_called_once(write, capsys):
    model = load_python_model(write("def finalize(self): print('finalized')" + DOUBLE))

    model.finalize()
    model.finalize()

    assert capsys.readouterr().out == "finalized\n"
    with pytest.raises(RuntimeError, match="model 'net' has been finalized"):
        model.infer(x([1, 2]))


def test_what_finalize_raises_is_raised(write):
    model = load_python_model(write("def finalize(self): raise OSError('disk full')" + DOUBLE))

    with pytest.raises(OSError, match="disk full"):
        model.finalize()
    assert not any("net_v1" in name for name in sys.modules)


def test_finalizing_cancels_what_is_open(write):
    path = write(
        """
        async def execute(self, requests):
            sender = requests[0].get_response_sender()
            while not sender.is_cancelled():
                await asyncio.sleep(0.001)
            sender.send(flags=FINAL)
    """,
        DECOUPLED,
    )

    with load_python_model(path) as model:
        stream = model.stream({"X": [1]})

    assert list(stream) == []


def test_finalizing_does_not_wait_for_ever_for_answers(write):
    path = write(
        """
        def execute(self, requests):
            self.kept = requests[0].get_response_sender()
    """,
        DECOUPLED,
    )
    model = load_python_model(path, answer_timeout_s=0.05)
    stream = model.stream({"X": [1]})

    with pytest.raises(
        TimeoutError, match=r"model 'net' has not answered 1 of its requests 0.05 s after they"
    ):
        model.finalize()
    with pytest.raises(pb_utils.TritonError, match="model 'net' has been finalized"):
        next(stream)


def test_a_model_that_does_not_stop_is_left_behind(write, monkeypatch):
    monkeypatch.setattr(instance, "_LEAST_PATIENCE_S", 0.05)
    begun, release = threading.Event(), threading.Event()
    path = write("""
        def execute(self, requests):
            self.begun.set()
            self.release.wait(60)
            return [answer(Y=array(request)) for request in requests]
    """)
    model = load_python_model(path, answer_timeout_s=0.05)
    model.python_object.begun, model.python_object.release = begun, release
    stream = model.stream(x([1, 2]))
    assert begun.wait(20)

    with pytest.raises(
        TimeoutError, match=r"model 'net' cannot be finalized: it still executes 0.05 s after"
    ):
        model.finalize()

    with pytest.raises(pb_utils.TritonError, match="model 'net' has been finalized"):
        next(stream)

    [thread] = [thread for thread in threading.enumerate() if thread.name == "model net"]
    release.set()
    thread.join(20)
    assert not thread.is_alive()
    assert str(path / "1") not in sys.path
