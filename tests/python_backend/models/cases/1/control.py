"""Loading and unloading models from inside one."""

import threading

import numpy as np
import triton_python_backend_utils as pb_utils


def outcome(function):
    """What a call returns, or the type and text of what it raises."""
    try:
        return function()
    except Exception as exc:
        return [type(exc).__name__, str(exc)]


def load(request, name, *args):
    return outcome(lambda: pb_utils.load_model(name, *args))


def load_with(request, name, arguments):
    """By keywords; the contents of `files` travel as bytes."""
    if "files" in arguments:
        arguments["files"] = {path: text.encode() for path, text in arguments["files"].items()}
    return outcome(lambda: pb_utils.load_model(model_name=name, **arguments))


def unload(request, name, *args):
    return outcome(lambda: pb_utils.unload_model(name, *args))


def is_ready(request, name, *version):
    return outcome(lambda: pb_utils.is_model_ready(name, *version))


def call(request, name):
    """The sum of one and one by another model, or its error."""
    asking = pb_utils.InferenceRequest(
        model_name=name,
        requested_output_names=["SUM"],
        inputs=[pb_utils.Tensor(each, np.ones((1, 2), np.float32)) for each in "AB"],
    )
    response = asking.exec()
    if response.has_error():
        return response.error().message()
    return response.output_tensors()[0].as_numpy().tolist()


def load_twice_at_once(request, *names):
    """Loads from several threads."""
    found = []
    threads = [threading.Thread(target=lambda name=name: found.append(load(request, name))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
