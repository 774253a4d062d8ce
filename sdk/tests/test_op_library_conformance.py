"""Right operators pass every check of the kit; each wrong plugin is named with what to do about it."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path

import pytest
from tritonpy.plugin import InvalidArg, hookimpl
from tritonpy_sdk.testing import DEADLINE_S, OpLibraryConformance, PluginFault
from tritonpy_sdk.testing.rules import rules_of

LIBRARIES = {
    "pytorch": Path(__file__).absolute(),
    "tensorflow": Path(__file__).absolute().with_name("conftest.py"),
}
"""Files that are there; nothing opens them."""


class ByParameter:
    @hookimpl
    def op_library_paths(self, framework, model):
        return self.paths(framework) if model.parameter("operators", "") == "square" else []

    def paths(self, framework):
        return [LIBRARIES[framework]] if framework in LIBRARIES else []


class ByFiles(ByParameter):
    """Yields texts."""

    @hookimpl
    def op_library_paths(self, framework, model):
        path = model.directory / "1/model"
        if path.is_file() and path.read_bytes().startswith(b"squares"):
            return map(str, self.paths(framework))
        return iter(())


class AsksForAnotherName(ByParameter):
    @hookimpl
    def op_library_paths(self, framework, model):
        return self.paths({"pytorch": "torch"}.get(framework, framework))


class GivesRelativePaths(ByParameter):
    def paths(self, framework):
        return [path.name for path in super().paths(framework)]


class GivesAText(ByParameter):
    def paths(self, framework):
        return str(LIBRARIES.get(framework, ""))


class ForgetsToBuild(ByParameter):
    def paths(self, framework):
        return [path.with_suffix(".so") for path in super().paths(framework)]


class OneForAllFrameworks(ByParameter):
    def paths(self, framework):
        return [LIBRARIES["pytorch"]] if framework in LIBRARIES else []


class AnyFramework(ByParameter):
    def paths(self, framework):
        return [LIBRARIES.get(framework, LIBRARIES["pytorch"])]


class AnyModel(ByParameter):
    @hookimpl
    def op_library_paths(self, framework, model):
        return self.paths(framework)


class OtherOrders(ByParameter):
    turns = itertools.cycle([1, -1])

    def paths(self, framework):
        return [*super().paths(framework), Path(__file__).parent / "models"][:: next(self.turns)]


class OncePerProcess(ByParameter):
    def __init__(self):
        self.named = set()

    def paths(self, framework):
        fresh = framework not in self.named
        self.named.add(framework)
        return super().paths(framework) if fresh else []


class OneAtATime(ByParameter):
    def __init__(self):
        self.lock = threading.Lock()
        self.intruded = threading.Event()
        self.count = itertools.count()

    @hookimpl
    def op_library_paths(self, framework, model):
        if not self.lock.acquire(blocking=False):
            self.intruded.set()
            return []
        try:
            if next(self.count) >= 2:  # of a model that calls them and of another, one after the other
                self.intruded.wait(DEADLINE_S / 10)
            return self.paths(framework)[: 1 if model.config else 0]
        finally:
            self.lock.release()


class OpensWhateverIsThere(ByFiles):
    @hookimpl
    def op_library_paths(self, framework, model):
        called = (model.directory / "1/model").read_bytes().startswith(b"squares")
        return self.paths(framework) if called else []


class ImportsTheFramework(ByParameter):
    def paths(self, framework):
        if framework == "pytorch":
            import torch  # noqa: F401
        return super().paths(framework)


class AsksWhetherItIsInstalled(ByParameter):
    def paths(self, framework):
        try:
            import tensorflow.version  # noqa: F401
        except ImportError:
            return []
        return super().paths(framework)


class NeedsItInstalled(ByParameter):
    def paths(self, framework):
        raise InvalidArg(f"{framework} is not installed")


class ChangesTheConfiguration(ByParameter):
    @hookimpl
    def op_library_paths(self, framework, model):
        model.config["name"] = "mine"
        return super().op_library_paths(framework, model)


class WritesBesideTheModel(ByParameter):
    @hookimpl
    def op_library_paths(self, framework, model):
        if model.directory.is_dir():
            (model.directory / "seen").touch()
        return super().op_library_paths(framework, model)


class KeepsFilesOpen(ByParameter):
    def paths(self, framework):
        KEPT.append(open(__file__, "rb"))  # noqa: SIM115
        return super().paths(framework)


KEPT = []


class Prints(ByParameter):
    def paths(self, framework):
        print("asked")
        return super().paths(framework)


class GoesWhereTheyAre(ByParameter):
    def paths(self, framework):
        os.chdir(Path(__file__).parent if Path.cwd() != Path(__file__).parent else "/")
        return super().paths(framework)


RIGHT = (ByParameter, ByFiles)
WRONG = [
    (
        AsksForAnotherName,
        "a_model_that_calls_them_gets_libraries",
        "no library for a model of py",
        "the name of",
    ),
    (
        GivesRelativePaths,
        "paths_are_absolute",
        "got 'test_op_library_conformance.py', expected an",
        "__file__",
    ),
    (GivesAText, "paths_are_absolute", "expected a list of absolute paths", "a text alone is no list"),
    (ForgetsToBuild, "libraries_are_there", "conformance.so' for pytorch, where no file", "have the wheel"),
    (OneForAllFrameworks, "other_frameworks_get_none", "for pytorch and for tensorflow", "each name"),
    (AnyFramework, "other_frameworks_get_none", "for 'onnxruntime'", "return [] for all others"),
    (AnyModel, "other_models_get_none", "that does not ask for it", "by a parameter"),
    (OtherOrders, "the_answer_is_the_same_again", "and [", "in a fixed order"),
    (OncePerProcess, "the_answer_is_the_same_again", "named [] for pytorch", "by what is in the model"),
    (
        OneAtATime,
        "models_are_asked_about_at_the_same_time",
        "while it was asked about others",
        "keep nothing",
    ),
    (OpensWhateverIsThere, "a_broken_model_is_no_accident", "without a directory", "catch OSError"),
    (ImportsTheFramework, "no_framework_is_imported", "imports 'torch'", "import nothing of it"),
    (AsksWhetherItIsInstalled, "no_framework_is_imported", "imports 'tensorflow'", "the backend's question"),
    (NeedsItInstalled, "no_framework_is_imported", "pytorch is not installed", "import nothing of it"),
    (ChangesTheConfiguration, "the_model_is_only_read", "changed model.config", "copy what you change"),
    (WritesBesideTheModel, "the_model_is_only_read", "made 'seen'", "write nothing below"),
    (KeepsFilesOpen, "nothing_grows_with_the_number_of_loads", "file descriptors", "close the files"),
    (Prints, "nothing_is_printed", "wrote 'asked", "logging.getLogger"),
    (GoesWhereTheyAre, "the_process_stays_as_it_was", "changed the working directory", "from __file__"),
]
CHECKS = [name for name, _ in rules_of(OpLibraryConformance)]


@pytest.fixture
def little_patience(monkeypatch, tmp_path):
    monkeypatch.setattr("tritonpy_sdk.testing.traces._GRACE_S", 0.0)
    monkeypatch.chdir(tmp_path)
    yield
    while KEPT:
        KEPT.pop().close()


def run(plugin, check):
    class Suite(
        OpLibraryConformance,
        ops=plugin(),
        frameworks=["pytorch", "tensorflow"],
        parameters={"operators": "square"},
    ):
        def make_model(self, framework, directory):
            (directory / "model").write_bytes(b"squares")

    getattr(Suite(), check)()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("plugin", RIGHT)
def test_right_operators_pass(plugin, check):
    run(plugin, check)


@pytest.mark.parametrize(
    ("plugin", "check", "did", "remedy"), WRONG, ids=lambda each: getattr(each, "__name__", "")
)
def test_wrong_operators_are_named_with_what_to_do(plugin, check, did, remedy, little_patience):
    with pytest.raises(PluginFault) as caught:
        run(plugin, f"test_{check}")

    assert did in caught.value.did
    assert remedy in caught.value.rule.remedy


def test_every_check_of_the_kit_can_fail():
    assert {f"test_{check}" for _, check, _, _ in WRONG} == set(CHECKS)


def test_libraries_may_be_built_later():
    class Suite(
        OpLibraryConformance, ops=ForgetsToBuild(), parameters={"operators": "square"}, are_built=False
    ): ...

    with pytest.raises(pytest.skip.Exception, match="are_built=False"):
        Suite().test_libraries_are_there()
    Suite().test_paths_are_absolute()
