"""Loading and unloading models from inside a model; the server must run in the control mode *explicit*."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from ._arguments import flag, text
from ._errors import TritonModelException
from ._link import Link, require_link

_INITIALIZE = "initialize"

# Which of the model's methods runs besides `execute`. Each model has a thread of its own, and so a context.
_method: ContextVar[str] = ContextVar("triton_python_backend_method", default="")


@contextmanager
def running(method: str) -> Iterator[None]:
    """Say which of the model's methods runs meanwhile; called by the worker."""
    token = _method.set(method)
    try:
        yield
    finally:
        _method.reset(token)


def load_model(model_name: str, config: str = "", files: Mapping[str, bytes] | None = None) -> None:
    """Load a model, or load it anew if its files have changed, and wait until it serves.

    A model that serves goes on to serve until the new one is ready, and for good when the load fails. The
    asking model may load itself: requests from then on go to the new one.

    Args:
        model_name: the model.
        config: its configuration as JSON, instead of its `config.pbtxt`.
        files: contents by path, such as `{"file:1/model.py": b"…"}`. With any, these are all the files that
            the model has, and `config` must be given.

    Raises:
        TritonModelException: it cannot be loaded, or not now; with the server's text.
    """
    model_name = text("load_model: model_name", model_name)
    config = text("load_model: config", config)
    contents = None if files is None else _checked_files(model_name, files) or None
    link = _link("load_model")
    is_initializing = _method.get() == _INITIALIZE
    _ask(link, "Failed to load model", "models.load", model_name, config or None, contents, is_initializing)


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Take a model out of service, and return at once.

    Requests that it has accepted are answered before it is finalised, in the background. The asking model may
    unload itself, or one that is waiting for its answer. A model that is not loaded is no error.

    Args:
        model_name: the model.
        unload_dependents: for an ensemble, also the models that it is made of.

    Raises:
        TritonModelException: the server does not unload on request, or not now.
    """
    model_name = text("unload_model: model_name", model_name)
    unload_dependents = flag("unload_model: unload_dependents", unload_dependents)
    link = _link("unload_model")
    _ask(link, "Failed to unload model", "models.unload", model_name, unload_dependents)


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """True if a model takes requests; False for one that the server does not know.

    Args:
        model_name: the model.
        model_version: its version; the newest one if left out.

    Raises:
        TritonModelException: `model_version` is no number, or the server is about to start or to stop.
    """
    model_name = text("is_model_ready: model_name", model_name)
    model_version = text("is_model_ready: model_version", model_version)
    link = _link("is_model_ready")
    return bool(_ask(link, "Failed to check model readiness", "models.ready", model_name, model_version))


def _link(function: str) -> Link:
    link = require_link(function)
    method = _method.get()
    if method and method != _INITIALIZE:
        raise TritonModelException(
            f"{function} cannot be called in {method}; call it in {_INITIALIZE} or execute"
        )
    return link


def _ask(link: Link, failure: str, what: str, *args: object) -> object:
    try:
        answer: object = link.ask(what, *args)
    except TritonModelException as exc:
        raise TritonModelException(f"{failure}: {exc}") from None
    return answer


def _checked_files(model_name: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    if not isinstance(files, Mapping):
        raise TritonModelException(
            f"failed to load model '{model_name}', files should be a dictionary of file paths and file "
            f"contents"
        )
    contents: dict[str, bytes] = {}
    for key, content in files.items():
        path = text("load_model: a path in files", key)
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(f"load_model: files['{path}'] must be bytes, got {type(content).__name__}")
        contents[path] = bytes(content)
    return contents
