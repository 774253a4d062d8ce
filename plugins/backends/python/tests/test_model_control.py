"""`load_model`, `unload_model` and `is_model_ready`, with a server that notes what it is asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import triton_python_backend_utils as pb_utils
from triton_python_backend_utils._link import forget_link, set_link
from triton_python_backend_utils._model_control import running


class Link:
    """Answers as the test says.

    Attributes:
        asked: what it was asked.
        answer: what it answers; an exception is raised.
    """

    def __init__(self) -> None:
        self.asked: list[tuple] = []
        self.answer: object = None

    def ask(self, what, *args):
        self.asked.append((what, *args))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def link() -> Iterator[Link]:
    link = Link()
    set_link(link)
    yield link
    forget_link(link)
    set_link(None)
    forget_link(None)


def test_a_load_asks_for_what_is_given(link):
    pb_utils.load_model("m")
    pb_utils.load_model(model_name="m", config="{}", files={"file:1/model.py": bytearray(b"x")})
    pb_utils.load_model("m", "", {})

    assert link.asked == [
        ("models.load", "m", None, None, False),
        ("models.load", "m", "{}", {"file:1/model.py": b"x"}, False),
        ("models.load", "m", None, None, False),
    ]


def test_an_unload_asks_for_what_is_given(link):
    pb_utils.unload_model("m")
    pb_utils.unload_model("m", unload_dependents=True)

    assert link.asked == [("models.unload", "m", False), ("models.unload", "m", True)]


@pytest.mark.parametrize("answer", [True, False])
def test_readiness_is_what_the_server_says(link, answer):
    link.answer = answer

    assert pb_utils.is_model_ready("m", "3") is answer
    assert pb_utils.is_model_ready("m") is answer
    assert link.asked == [("models.ready", "m", "3"), ("models.ready", "m", "")]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pb_utils.load_model("m"), "Failed to load model: no"),
        (lambda: pb_utils.unload_model("m"), "Failed to unload model: no"),
        (lambda: pb_utils.is_model_ready("m"), "Failed to check model readiness: no"),
    ],
)
def test_a_refusal_is_raised_with_the_servers_text(link, call, text):
    link.answer = pb_utils.TritonModelException("no")

    with pytest.raises(pb_utils.TritonModelException) as error:
        call()

    assert str(error.value) == text


def test_files_that_are_no_dictionary_are_refused_in_triton_s_words():
    with pytest.raises(pb_utils.TritonModelException, match="model 'm', files should be a dictionary"):
        pb_utils.load_model("m", files=["x"])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: pb_utils.load_model(1), "load_model: model_name must be a str, got int"),
        (lambda: pb_utils.load_model("m", {}), "load_model: config must be a str, got dict"),
        (
            lambda: pb_utils.load_model("m", files={1: b""}),
            "load_model: a path in files must be a str, got int",
        ),
        (
            lambda: pb_utils.load_model("m", files={"file:1/model.py": "text"}),
            r"load_model: files\['file:1/model.py'\] must be bytes, got str",
        ),
        (lambda: pb_utils.unload_model(None), "unload_model: model_name must be a str, got NoneType"),
        (lambda: pb_utils.unload_model("m", "x"), "unload_model: unload_dependents must be a bool, got str"),
        (lambda: pb_utils.is_model_ready("m", 1), "is_model_ready: model_version must be a str, got int"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(link, call, text):
    with pytest.raises(TypeError, match=text):
        call()

    assert link.asked == []


CALLS = [
    lambda: pb_utils.load_model("m"),
    lambda: pb_utils.unload_model("m"),
    lambda: pb_utils.is_model_ready("m"),
]


@pytest.mark.parametrize("method", ["auto_complete_config", "finalize"])
@pytest.mark.parametrize("call", CALLS)
def test_some_methods_of_a_model_are_no_place_for_it(link, method, call):
    with running(method), pytest.raises(pb_utils.TritonModelException, match=f"cannot be called in {method}"):
        call()

    assert link.asked == []
    call()  # elsewhere it works
    assert len(link.asked) == 1


def test_a_load_from_initialize_says_so(link):
    with running("initialize"):
        pb_utils.load_model("m")
        pb_utils.unload_model("m")

    assert link.asked == [("models.load", "m", None, None, True), ("models.unload", "m", False)]


def test_the_method_of_one_thread_is_not_that_of_another(link):
    with running("finalize"):
        thread = threading.Thread(target=pb_utils.unload_model, args=("m",))
        thread.start()
        thread.join()

    assert link.asked == [("models.unload", "m", False)]


@pytest.mark.parametrize("call", CALLS)
def test_without_a_server_it_is_refused(call):
    with pytest.raises(pb_utils.TritonModelException, match="needs a server, and no server has started"):
        call()
