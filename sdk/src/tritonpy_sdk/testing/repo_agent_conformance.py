"""The tests that every repository agent has to pass."""

from __future__ import annotations

import inspect
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

from tritonpy.errors import ErrorCode, TritonError
from tritonpy.lifecycle.agents.chain import AgentChain
from tritonpy.lifecycle.agents.repository_agents import RepositoryAgents

from tritonpy_sdk.testing.conformance import find_models
from tritonpy_sdk.testing.logged import raising_what_is_logged
from tritonpy_sdk.testing.refusals import check_refusals
from tritonpy_sdk.testing.repo_agent import agents_of, chain_of
from tritonpy_sdk.testing.rules import rule
from tritonpy_sdk.testing.traces import (
    check_no_growth,
    directory_left_alone,
    no_temporary_files,
    nothing_printed,
    process_as_it_was,
)

_PAGE = "how-to/write-a-repository-agent.md"
_HOOKS = "reference/hooks.md"
_NAMES = ("net", "other", "third", "fourth")
_TIME_LIMIT_S = 15.0
"""What the server gives to other actions than LOAD."""

T = TypeVar("T")


class RepoAgentConformance:
    """Subclass this in a test module and every rule of the agent hooks is tested with your agent.

    ```python
    class TestXyz(RepoAgentConformance, agent="xyz", model="models/net", parameters={"KEY": "value"}): ...
    ```

    Class arguments:
        agent: the name of an installed one, a module or object, or the `Path` of a file: `.py`, or a shared
            object, which needs tritonpy-abi. A function that returns one will do, too.
        model: the directory of a model that the agent lets load: absolute, or relative to the test file's
            directory or one above it. It is copied, and called otherwise. A small one is made without.
        parameters: what the model's configuration gives to the agent.
        wrong_parameters: parameters that the agent has to refuse.

    Override `make_model` for a model that has to be made.
    """

    agent: ClassVar[str | os.PathLike[str] | object]
    model: ClassVar[Path | None]
    parameters: Mapping[str, str]
    wrong_parameters: Sequence[Mapping[str, str]]

    def __init_subclass__(
        cls,
        *,
        agent: str | os.PathLike[str] | object = "",
        model: str | Path | None = None,
        parameters: Mapping[str, str] | None = None,
        wrong_parameters: Sequence[Mapping[str, str]] = (),
        **rest: object,
    ) -> None:
        super().__init_subclass__(**rest)
        if agent:
            cls.agent = staticmethod(agent) if inspect.isfunction(agent) else agent
            cls.model = None if model is None else find_models(model, cls)
            cls.parameters = dict(parameters or {})
            cls.wrong_parameters = wrong_parameters

    def make_model(self, directory: Path) -> None:
        """Put the files of a model that the agent lets load into an empty directory."""
        if self.model is not None:
            shutil.copytree(self.model, directory, dirs_exist_ok=True)
            return
        (directory / "1").mkdir()
        (directory / "1/weights").write_bytes(bytes(range(256)))
        (directory / "config.pbtxt").write_text('backend: "identity"\nmax_batch_size: 8\n')

    # The life of a model.

    @rule(
        "an agent acts in LOAD, LOAD_COMPLETE, UNLOAD and UNLOAD_COMPLETE of a load, each on another thread",
        "look at the exception; only LOAD may raise, and model.directory may be set in LOAD only",
        _PAGE,
    )
    def test_it_acts_from_load_to_unload(self) -> None:
        with self._begun() as begun:
            load = begun.load("net")
            load.complete()
            load.unload()

    @rule(
        "LOAD_FAIL follows a LOAD when the model cannot be loaded, and nothing else follows it",
        "act on LOAD_FAIL as on the end of the model, and raise nothing there",
        _PAGE,
    )
    def test_it_acts_on_a_load_that_fails(self) -> None:
        with self._begun() as begun:
            begun.load("net").fail()

    @rule(
        "LOAD refuses a model by an error for the user, and LOAD_FAIL follows for the same agent",
        "raise InvalidArg with the parameter, what came and what was expected; in LOAD_FAIL count on nothing "
        "that LOAD did not come to",
        _PAGE,
    )
    def test_wrong_parameters_are_refused_with_words(self) -> None:
        with self._begun() as begun, no_temporary_files():

            def load(parameters: Mapping[str, str]) -> None:
                begun.load("net", parameters).fail()

            check_refusals(load, self.wrong_parameters, "wrong_parameters")

    @rule(
        "a model whose files an agent cannot make sense of is refused by an error for the user, or loads",
        "catch OSError and the like where files are read, and raise InvalidArg with the path and the reason",
        _PAGE,
    )
    def test_a_model_without_files_is_no_accident(self) -> None:
        with self._begun() as begun:
            for path in begun.repository.glob("net/*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            try:
                load = begun.load("net")
            except TritonError as error:
                if error.code is ErrorCode.INTERNAL:
                    raise AssertionError(f"refused an empty directory by {error}") from error
            else:
                load.fail()

    @rule(
        "after the last model an agent is finalized, and initialized anew for the next one",
        "make in repo_agent_initialize what repo_agent_finalize ends, and keep it in agent.state",
        _HOOKS,
    )
    def test_it_begins_anew_after_its_last_model(self) -> None:
        with self._begun() as begun:
            for _ in range(2):
                load = begun.load("net")
                load.complete()
                load.unload()

    @rule(
        "other actions than LOAD are given 15 seconds; then the server goes on without them",
        "do what takes long in LOAD, or give it to a thread that repo_agent_finalize ends",
        _HOOKS,
    )
    def test_other_actions_than_load_take_seconds(self) -> None:
        with self._begun() as begun:
            load = begun.load("net")
            for step in (load.complete, load.unload):
                start = time.monotonic()
                step()
                took_s = time.monotonic() - start
                assert took_s < _TIME_LIMIT_S, f"took {took_s:.1f} seconds for another action than LOAD"

    # Files.

    @rule(
        "the repository belongs to its owner: an agent reads there",
        "write into model.acquire_directory() and set model.directory to it",
        _PAGE,
    )
    def test_the_repository_is_left_alone(self) -> None:
        with self._begun() as begun, directory_left_alone(begun.repository):
            load = begun.load("net")
            load.complete()
            load.unload()
            begun.load("net").fail()

    @rule(
        "what an agent hands over is a directory that stays as it is until UNLOAD_COMPLETE",
        "remove nothing before that: a model reads its files late, and the requests under way need it still",
        _PAGE,
    )
    def test_what_it_hands_over_stays_until_the_end(self) -> None:
        with self._begun() as begun:
            load = begun.load("net")
            handed = _contents(load.directory)
            assert handed, f"handed over '{load.directory.name}', in which nothing can be read"
            load.complete()
            assert _contents(load.directory) == handed, "changed in LOAD_COMPLETE what it had handed over"
            load.begin_unload()
            assert _contents(load.directory) == handed, "changed in UNLOAD what it had handed over"
            load.unload()

    @rule(
        "nothing is left of a load when the model is gone",
        "let model.acquire_directory() make directories, which the server removes",
        _PAGE,
    )
    def test_nothing_is_left_of_a_model_that_is_gone(self) -> None:
        with self._begun() as begun, no_temporary_files():
            load = begun.load("net")
            load.complete()
            load.unload()
            _check_gone(load, begun)

    @rule(
        "nothing is left of a load that failed",
        "do in LOAD_FAIL what is done in UNLOAD_COMPLETE, or in repo_agent_model_finalize for both",
        _PAGE,
    )
    def test_nothing_is_left_of_a_load_that_failed(self) -> None:
        with self._begun() as begun, no_temporary_files():
            load = begun.load("net")
            load.fail()
            _check_gone(load, begun)

    # Side by side.

    @rule(
        "models are loaded at the same time, on threads of their own",
        "keep what belongs to one load in model.state, and guard agent.state with a lock",
        _HOOKS,
    )
    def test_models_load_at_the_same_time(self) -> None:
        with self._begun() as begun:
            alone = {}
            for name in _NAMES:
                load = begun.load(name)
                alone[name] = _contents(load.directory)
                load.fail()
            with ThreadPoolExecutor(len(_NAMES)) as threads:
                loads = list(threads.map(begun.load, _NAMES))
                for name, load in zip(_NAMES, loads, strict=True):
                    assert _contents(load.directory) == alone[name], (
                        f"handed over other files for '{name}' while other models were loaded"
                    )
                list(threads.map(_Load.complete, loads))
                list(threads.map(_Load.unload, loads))

    @rule(
        "a reload is a load of its own beside what serves, which is unloaded when the reload has succeeded",
        "keep what belongs to a load in model.state, not under the model's name",
        _PAGE,
    )
    def test_a_reload_stands_beside_what_serves(self) -> None:
        with self._begun() as begun:
            first = begun.load("net")
            first.complete()
            second = begun.load("net")
            second.complete()
            handed = _contents(second.directory)
            first.unload()
            assert _contents(second.directory) == handed, (
                "spoiled the files of a reload when what had served before was unloaded"
            )
            second.unload()

    @rule(
        "a reload that fails leaves what serves as it is, and that is unloaded later like any other",
        "keep what belongs to a load in model.state, and end that in LOAD_FAIL, nothing else",
        _PAGE,
    )
    def test_a_reload_that_fails_leaves_what_serves_alone(self) -> None:
        with self._begun() as begun:
            first = begun.load("net")
            first.complete()
            handed = _contents(first.directory)
            begun.load("net").fail()
            assert _contents(first.directory) == handed, (
                "spoiled the files of a model that serves when its reload failed"
            )
            first.unload()

    # What it must not do.

    @rule(
        "what an agent holds for a model is given back when the model is gone",
        "close files and end threads in repo_agent_model_finalize or repo_agent_finalize; keep no globals",
        _HOOKS,
    )
    def test_nothing_grows_with_the_number_of_loads(self) -> None:
        with self._begun() as begun:

            def live() -> None:
                load = begun.load("net")
                load.complete()
                load.unload()
                begun.load("net").fail()

            check_no_growth(live, "each load of a model")

    @rule(
        "standard output belongs to the server",
        "use logging.getLogger(__name__), which the server's log takes",
        _PAGE,
    )
    def test_nothing_is_printed(self) -> None:
        with nothing_printed(), self._begun() as begun:
            load = begun.load("net")
            load.complete()
            load.unload()

    @rule(
        "what all of a process share belongs to the server",
        "give paths, modes and limits to functions instead of changing those of the process",
        _HOOKS,
    )
    def test_the_process_stays_as_it_was(self) -> None:
        with process_as_it_was(), self._begun() as begun:
            load = begun.load("net")
            load.complete()
            load.unload()

    # How.

    @contextmanager
    def _begun(self) -> Iterator[_Begun]:
        agent = type(self).agent
        with tempfile.TemporaryDirectory() as room:
            repository = Path(room)
            for name in _NAMES:
                (repository / name).mkdir()
                self.make_model(repository / name)
            found = agents_of(agent() if inspect.isfunction(agent) else agent)
            with raising_what_is_logged(logging.getLogger("tritonpy.repository"), "the agent"):
                yield _Begun(*found, repository, self.parameters)


class _Begun:
    """An agent and a repository with models that name it.

    Attributes:
        repository: its directory.
    """

    def __init__(
        self, agents: RepositoryAgents, name: str, repository: Path, parameters: Mapping[str, str]
    ) -> None:
        self.repository = repository
        self._agents = agents
        self._name = name
        self._parameters = parameters

    def load(self, name: str, parameters: Mapping[str, str] | None = None) -> _Load:
        """Take a model through LOAD.

        Raises:
            TritonError: the agent refuses it; it has got LOAD_FAIL.
        """
        given = self._parameters if parameters is None else parameters
        chain = chain_of(self._agents, self._name, self.repository / name, given)
        _on_a_thread(chain.load)
        return _Load(chain)


class _Load:
    """A load after LOAD."""

    def __init__(self, chain: AgentChain) -> None:
        self._chain = chain
        self._is_unloading = False

    @property
    def directory(self) -> Path:
        return self._chain.directory

    def complete(self) -> None:
        """LOAD_COMPLETE."""
        _on_a_thread(self._chain.loaded)

    def fail(self) -> None:
        """LOAD_FAIL."""
        _on_a_thread(self._chain.failed)

    def begin_unload(self) -> None:
        """UNLOAD."""
        self._is_unloading = True
        _on_a_thread(self._chain.unload)

    def unload(self) -> None:
        """UNLOAD, if that has not been, and UNLOAD_COMPLETE."""
        if not self._is_unloading:
            self.begin_unload()
        _on_a_thread(self._chain.unloaded)


def _on_a_thread(act: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(act).result()


def _contents(directory: Path) -> dict[str, bytes]:
    """Each file below a directory; none where there is no directory."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _check_gone(load: _Load, begun: _Begun) -> None:
    if load.directory.parent != begun.repository:
        assert not load.directory.exists(), f"left '{load.directory.name}', which it had handed over"
