"""Modules saved as each kind of file, loaded through the hooks of the installed backend."""

from __future__ import annotations

import io
import warnings
from contextlib import ExitStack

import pytest
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import BackendDriver


@pytest.fixture(scope="session")
def scripted():
    """The TorchScript file of a module; traced with samples, if there are any."""
    torch = pytest.importorskip("torch")

    def save(module, *samples):
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TorchScript is deprecated
            module = module.eval()
            torch.jit.save(torch.jit.trace(module, samples) if samples else torch.jit.script(module), buffer)
        return buffer.getvalue()

    return save


@pytest.fixture(scope="session")
def exported():
    """The file of an exported program; sizes of any value are given by the name of a `Dim`."""
    torch = pytest.importorskip("torch")

    def save(module, args=(), kwargs=None, shapes=None):
        program = torch.export.export(module.eval(), args, kwargs, dynamic_shapes=shapes)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        return buffer.getvalue()

    return save


@pytest.fixture
def saved():
    """What `torch.save` writes."""
    torch = pytest.importorskip("torch")

    def save(value):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        return buffer.getvalue()

    return save


@pytest.fixture
def load(tmp_path):
    """Load a model by its files and its configuration, in this process; finalised when the test is over."""
    with ExitStack() as stack:

        def start(files, config=None, *, name="net", settings=None, op_libraries=None):
            if isinstance(files, bytes):
                files = {"model.pt2" if b"archive_format" in files else "model.pt": files}
            base = {} if config is None else {"backend": "pytorch"}
            ModelRepository(tmp_path).model(name, None if config is None else base | config, files)
            driver = BackendDriver("pytorch", tmp_path, settings, op_libraries)
            return stack.enter_context(driver.load(name))

        yield start
