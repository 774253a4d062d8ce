"""Which code runs when a model's files were edited between two loads."""

from __future__ import annotations

import os
import py_compile
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from tritonpy.ipc import frame
from tritonpy_backend_python.worker import sources

CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils
{imports}

def here():
    return {word!r}

class TritonPythonModel:
    def execute(self, requests):
        answer = np.array([{source}()], object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", answer)]) for _ in requests]
"""

HELPER = "def word():\n    return {word!r}\n"

LAYOUTS = {
    "the model file itself": ("1/model.py", "", "here"),
    "a module of the version's package": ("1/helper.py", "from .helper import word", "word"),
    "a module beside it": ("1/helper.py", "from helper import word", "word"),
    "a module in the model's directory": ("helper.py", "from helper import word", "word"),
    "a package in the model's directory": ("things/deep.py", "from things.deep import word", "word"),
}


def write(path: Path, text: str, time_ns: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(time_ns, time_ns))


@pytest.fixture
def word_after_load(workers, tmp_path):
    """Load the model in `tmp_path` into a fresh worker; returns what it answers."""

    def word_after_load(**options) -> str:
        worker = workers(variables={"PYTHONDONTWRITEBYTECODE": ""}, **options)
        worker.directory = tmp_path / "net"
        worker.config = {"name": "net", "max_batch_size": 0, "input": [], "output": [{"name": "OUTPUT0"}]}
        worker.set_up()
        answer = worker.initialize()
        assert answer[0] == frame.INITIALIZED, answer
        [outputs] = worker.infer(worker.request())
        return outputs["OUTPUT0"][0].decode()

    return word_after_load


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_edit_in_the_same_second_and_of_the_same_size_is_seen_by_the_next_load(
    word_after_load, tmp_path, layout
):
    edited, imports, source = LAYOUTS[layout]
    model = tmp_path / "net"
    time_ns = 1_700_000_000_000_000_000
    seen = []

    for word in ("old", "new"):
        write(model / "1" / "model.py", CODE.format(imports=imports, word=word, source=source), time_ns)
        if source == "word":
            write(model / edited, HELPER.format(word=word), time_ns)
        time_ns += 1_000_000
        seen.append(word_after_load())

    assert seen == ["old", "new"]


def test_a_stale_compiled_file_that_somebody_left_is_not_used(word_after_load, tmp_path):
    time_ns = 1_700_000_000_000_000_000
    path = tmp_path / "net" / "1" / "model.py"
    write(path, CODE.format(imports="", word="old", source="here"), time_ns)
    py_compile.compile(str(path))
    assert list(path.parent.glob("__pycache__/model.*.pyc"))
    write(path, CODE.format(imports="", word="new", source="here"), time_ns)

    assert word_after_load() == "new"


def test_loading_writes_nothing_into_the_model_s_directory(word_after_load, tmp_path):
    model = tmp_path / "net"
    write(model / "1" / "model.py", CODE.format(imports="import helper", word="x", source="here"), 0)
    write(model / "1" / "helper.py", "", 0)
    before = sorted(model.rglob("*"))

    word_after_load()

    assert sorted(model.rglob("*")) == before


def test_a_compiled_file_without_its_source_can_be_imported(word_after_load, tmp_path):
    model = tmp_path / "net"
    code = CODE.format(imports="from helper import word", word="", source="word")
    write(model / "1" / "model.py", code, 0)
    write(model / "1" / "helper.py", HELPER.format(word="compiled"), 0)
    helper = model / "1" / "helper.py"
    py_compile.compile(str(helper), cfile=str(helper.with_suffix(".pyc")))
    helper.unlink()

    assert word_after_load() == "compiled"


def test_packages_of_an_environment_in_the_model_s_directory_keep_their_compiled_files(
    word_after_load, tmp_path
):
    environment = tmp_path / "net" / "env"
    venv.create(environment, with_pip=False, symlinks=True, system_site_packages=False)
    [site_packages] = environment.glob("lib/python*/site-packages")
    (site_packages / "numpy.pth").write_text(str(Path(np.__file__).parent.parent))
    write(site_packages / "helper.py", HELPER.format(word="a package"), 0)
    code = CODE.format(imports="from helper import word", word="", source="word")
    write(tmp_path / "net" / "1" / "model.py", code, 0)

    assert word_after_load(python=str(environment / "bin" / "python")) == "a package"

    assert list(site_packages.glob("__pycache__/helper.*.pyc"))


def test_models_on_threads_may_import_while_another_one_is_loaded_or_goes(tmp_path, monkeypatch):
    """All threads have one memory of where they have looked for modules."""
    monkeypatch.setattr(sys, "path_importer_cache", {str(tmp_path / "m"): None, "/elsewhere": None})
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    is_below = sources.is_below

    def disturbed(path, directory):
        sys.path_importer_cache[f"/imported by another thread/{len(sys.path_importer_cache)}"] = None
        sys.path_importer_cache.pop(str(tmp_path / "m"), None)
        return is_below(path, directory)

    monkeypatch.setattr(sources, "is_below", disturbed)
    sources.import_from_source(str(tmp_path / "m"))
    sys.path_importer_cache[str(tmp_path / "m")] = None
    sources.forget_directory(str(tmp_path / "m"))

    assert str(tmp_path / "m") not in sys.path_importer_cache
    assert "/elsewhere" in sys.path_importer_cache
