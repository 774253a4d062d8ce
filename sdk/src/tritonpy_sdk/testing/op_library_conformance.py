"""The tests that every plugin with custom operators has to pass."""

from __future__ import annotations

import copy
import inspect
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
from tritonpy.errors import ErrorCode, TritonError
from tritonpy.handles import Backend, JsonObject, Model
from tritonpy.lifecycle.loading.op_plugins import OpPlugins

from tritonpy_sdk.testing.op_libraries import op_plugins_of
from tritonpy_sdk.testing.rules import rule
from tritonpy_sdk.testing.traces import (
    check_no_growth,
    directory_left_alone,
    nothing_printed,
    process_as_it_was,
)

_PAGE = "how-to/custom-operators.md"
_HOOKS = "reference/hooks.md"
_MODULES = {"pytorch": "torch", "tensorflow": "tensorflow"}
_FRAMEWORKS = (*_MODULES, "onnxruntime", "a framework of tomorrow")


class OpLibraryConformance:
    """Subclass this in a test module and every rule of the hook is tested with your operators.

    ```python
    class TestXyz(OpLibraryConformance, ops="xyz", parameters={"operators": "xyz"}): ...
    ```

    Class arguments:
        ops: the name of an installed plugin, or a module or object with the hook. A function that returns one
            will do, too.
        frameworks: those that there are operators for: `pytorch`, `tensorflow`.
        parameters: of the configuration of a model that calls the operators.
        are_built: the libraries are where the plugin says. False where another step compiles them.

    Override `make_model` where the plugin reads the files of a model.
    """

    ops: ClassVar[str | object]
    frameworks: Sequence[str]
    parameters: Mapping[str, str]
    are_built: bool

    def __init_subclass__(
        cls,
        *,
        ops: str | object = "",
        frameworks: Sequence[str] = ("pytorch",),
        parameters: Mapping[str, str] | None = None,
        are_built: bool = True,
        **rest: object,
    ) -> None:
        super().__init_subclass__(**rest)
        if ops:
            cls.ops = staticmethod(ops) if inspect.isfunction(ops) else ops
            cls.frameworks = frameworks
            cls.parameters = dict(parameters or {})
            cls.are_built = are_built

    def make_model(self, framework: str, directory: Path) -> None:
        """Put the files of a version of a model that calls the operators into an empty directory."""
        (directory / "model").write_bytes(b"weights")

    # Answers.

    @rule(
        "a model that calls the operators gets the libraries that have them",
        "look at what tells such a model from others, and at the name of the framework",
        _PAGE,
    )
    def test_a_model_that_calls_them_gets_libraries(self) -> None:
        with self._asked() as asked:
            for framework in self.frameworks:
                assert asked.of(framework), (
                    f"names no library for a model of {framework} that calls its operators"
                )

    @rule(
        "libraries are named by a list of absolute paths",
        "return [Path(__file__).parent / 'lib' / name]; a text alone is no list",
        _HOOKS,
    )
    def test_paths_are_absolute(self) -> None:
        with self._asked() as asked:
            for framework in self.frameworks:
                asked.of(framework)

    @rule(
        "a library is a file, for one framework",
        "have the wheel bring it, beside the module, and compile one for each framework",
        _PAGE,
    )
    def test_libraries_are_there(self) -> None:
        if not self.are_built:
            pytest.skip("the suite says are_built=False")
        with self._asked() as asked:
            for framework in self.frameworks:
                missing = [path for path in asked.of(framework) if not path.is_file()]
                assert not missing, f"names '{missing[0]}' for {framework}, where no file is"

    @rule(
        "a framework gets libraries that were compiled for it, and one that is not known gets none",
        "compare `framework` with each name that you have a library for, and return [] for all others",
        _HOOKS,
    )
    def test_other_frameworks_get_none(self) -> None:
        with self._asked() as asked:
            named = {framework: asked.of(framework) for framework in self.frameworks}
            for framework in _FRAMEWORKS:
                if framework not in self.frameworks:
                    found = asked.of(framework, like=self.frameworks[0])
                    assert not found, (
                        f"names '{found[0]}' for '{framework}', which the suite has no operators for"
                    )
            for framework, paths in named.items():
                for other in self.frameworks:
                    shared = [path for path in paths if other != framework and path in named[other]]
                    assert not shared, f"names '{shared[0]}' for {framework} and for {other}"

    @rule(
        "models that do not call the operators get no library, because one with libraries runs in workers",
        "answer by a parameter or by the files of the model, and return [] for others",
        _PAGE,
    )
    def test_other_models_get_none(self) -> None:
        with self._asked() as asked:
            for framework in self.frameworks:
                found = asked.of_another_model(framework)
                assert not found, f"names '{found[0]}' for a model of {framework} that does not ask for it"

    @rule(
        "asked again about the same model, a plugin answers the same",
        "return a list made anew, in a fixed order, by what is in the model and nothing else",
        _HOOKS,
    )
    def test_the_answer_is_the_same_again(self) -> None:
        with self._asked() as asked:
            for framework in self.frameworks:
                first, again = asked.of(framework), asked.of(framework)
                assert again == first, f"named {_names(again)} for {framework}, and {_names(first)} before"

    @rule(
        "several models are loaded at once, on threads of their own",
        "keep nothing between calls, or guard it with a lock and under the model's directory",
        _HOOKS,
    )
    def test_models_are_asked_about_at_the_same_time(self) -> None:
        with self._asked() as asked, ThreadPoolExecutor(8) as threads:
            for framework in self.frameworks:
                alone, other = asked.of(framework), asked.of_another_model(framework)
                calls = [(threads.submit(asked.of, framework), alone) for _ in range(8)]
                calls += [(threads.submit(asked.of_another_model, framework), other) for _ in range(8)]
                for call, expected in calls:
                    named = call.result()
                    assert named == expected, (
                        f"named {_names(named)} for a model that gets {_names(expected)}, while it was asked "
                        f"about others"
                    )

    @rule(
        "a broken model is the business of its backend: it gets no library, or an error for the user",
        "read regular files only, and catch OSError; raise InvalidArg with the path where you cannot go on",
        _PAGE,
    )
    def test_a_broken_model_is_no_accident(self) -> None:
        with self._asked() as asked:
            for framework in self.frameworks:
                for what, directory in asked.broken_models():
                    error = _error_of(asked.plugins, framework, asked.model(framework, directory))
                    assert error is None or error.code is not ErrorCode.INTERNAL, (
                        f"failed for a model {what}: {error}"
                    )

    # What it must not do.

    @rule(
        "the framework is imported in the process of the model only, never in the server's",
        "import nothing of it, not even to see whether it is installed: that is the backend's question",
        _HOOKS,
    )
    def test_no_framework_is_imported(self) -> None:
        with self._asked() as asked, _noticing_imports(set(_MODULES.values())) as imported:
            for framework in self.frameworks:
                error = _error_of(asked.plugins, framework, asked.model(framework))
                assert not imported, f"imports '{imported[0]}' when it is asked"
                assert error is None, f"failed where no framework is installed: {error}"

    @rule(
        "a model is read and not changed, neither its configuration nor its files",
        "copy what you change, and write nothing below the model's directory",
        _HOOKS,
    )
    def test_the_model_is_only_read(self) -> None:
        with self._asked() as asked:
            for framework in self.frameworks:
                model = asked.model(framework)
                before = copy.deepcopy(model)
                with directory_left_alone(model.directory):
                    asked.plugins.libraries_of(framework, model)
                changed = [
                    name for name in ("name", "version", "config", "state") if _differs(model, before, name)
                ]
                assert not changed, f"changed model.{changed[0]}"

    @rule(
        "the hook is called once for each load of a model, and keeps nothing",
        "close the files that you read, and begin no threads",
        _HOOKS,
    )
    def test_nothing_grows_with_the_number_of_loads(self) -> None:
        with self._asked() as asked:

            def ask() -> None:
                for framework in self.frameworks:
                    asked.of(framework)
                    asked.of_another_model(framework)

            check_no_growth(ask, "each load of a model")

    @rule(
        "standard output belongs to the server",
        "use logging.getLogger(__name__), which the server's log takes",
        _PAGE,
    )
    def test_nothing_is_printed(self) -> None:
        with nothing_printed(), self._asked() as asked:
            for framework in self.frameworks:
                asked.of(framework)

    @rule(
        "what all of a process share belongs to the server",
        "make paths from __file__ instead of changing the working directory",
        _HOOKS,
    )
    def test_the_process_stays_as_it_was(self) -> None:
        with process_as_it_was(), self._asked() as asked:
            for framework in self.frameworks:
                asked.of(framework)

    # How.

    @contextmanager
    def _asked(self) -> Iterator[_Asked]:
        ops = type(self).ops
        with tempfile.TemporaryDirectory() as room:
            for framework in self.frameworks:
                directory = Path(room) / f"{framework}_with" / "1"
                directory.mkdir(parents=True)
                self.make_model(framework, directory)
            other = Path(room) / "other" / "1"
            other.mkdir(parents=True)
            (other / "model").write_bytes(b"weights of another one")
            yield _Asked(
                op_plugins_of(ops() if inspect.isfunction(ops) else ops), Path(room), self.parameters
            )


class _Asked:
    """A plugin, with models to ask it about.

    Attributes:
        plugins: asks this one plugin, as a server does.
    """

    def __init__(self, plugins: OpPlugins, room: Path, parameters: Mapping[str, str]) -> None:
        self.plugins = plugins
        self._room = room
        self._config: JsonObject = {
            "parameters": {key: {"string_value": value} for key, value in parameters.items()}
        }

    def of(self, framework: str, like: str = "") -> list[Path]:
        """What it names for the model that calls its operators; the files are those for framework `like`."""
        model = self.model(framework, self._room / f"{like or framework}_with")
        return [library.path for library in self.plugins.libraries_of(framework, model)]

    def of_another_model(self, framework: str) -> list[Path]:
        """What it names for a model that calls none."""
        model = Model("other", 1, {}, self._room / "other", Backend(framework))
        return [library.path for library in self.plugins.libraries_of(framework, model)]

    def model(self, framework: str, directory: Path | None = None) -> Model:
        """The model that calls the operators, or one whose files are elsewhere."""
        config = copy.deepcopy(self._config)
        return Model("net", 1, config, directory or self._room / f"{framework}_with", Backend(framework))

    def broken_models(self) -> Iterator[tuple[str, Path]]:
        """Directories with descriptions."""
        yield "without a directory", self._room / "nowhere"
        empty = self._room / "empty"
        (empty / "1").mkdir(parents=True, exist_ok=True)
        yield "without files", empty
        odd = self._room / "odd"
        for name in ("model.pt", "model", "saved_model.pb"):
            (odd / "1" / name).mkdir(parents=True, exist_ok=True)
        if not (odd / "1/link").is_symlink():
            (odd / "1/link").symlink_to("nowhere")
        yield "whose files are directories and links that lead nowhere", odd


class _Noticing(MetaPathFinder):
    """Notes and refuses imports of some modules."""

    def __init__(self, names: set[str]) -> None:
        self.imported: list[str] = []
        self._names = names

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> None:
        if fullname.partition(".")[0] in self._names:
            self.imported.append(fullname)
            raise ImportError(f"{fullname} must not be imported here", name=fullname)


@contextmanager
def _noticing_imports(names: set[str]) -> Iterator[list[str]]:
    """Let these modules look as if they were not imported, and note what imports them."""
    finder = _Noticing(names)
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.meta_path.insert(0, finder)
    try:
        yield finder.imported
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(hidden)


def _error_of(plugins: OpPlugins, framework: str, model: Model) -> TritonError | None:
    try:
        plugins.libraries_of(framework, model)
    except TritonError as error:
        return error
    return None


def _differs(model: Model, before: Model, attribute: str) -> bool:
    return bool(getattr(model, attribute) != getattr(before, attribute))


def _names(paths: Sequence[Path]) -> str:
    return f"[{', '.join(path.name for path in paths)}]"
