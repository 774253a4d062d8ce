"""Find what the models of a repository need: backends, strategies, agents, caches and packages, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tritonpy.cli.config_check import find_targets
from tritonpy.errors import InvalidArg, NotFound, TritonError
from tritonpy.lifecycle.loading.backend_files import find_backend_files
from tritonpy.lifecycle.resolved_config import check_config, read_given_config
from tritonpy.protos import ModelConfig, ModelInstanceGroup
from tritonpy.repository.layout import ModelDirectory, read_model
from tritonpy.scheduler.strategy_finder import PATH_PARAMETER

from tritonpy_compose.catalog import Catalog

ENVIRONMENT_PARAMETER = "EXECUTION_ENV_PATH"
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz", ".zip")
_REQUIREMENTS = "requirements.txt"
_STRATEGY_FILES = ("batchstrategy.so", "batchstrategy.py")


@dataclass(frozen=True, slots=True)
class Need:
    """A plugin that something needs.

    Attributes:
        kind: of the plugin, such as `backends`.
        name: of the plugin.
        reason: what needs it, such as `model 'digits': 1/model.onnx`.
    """

    kind: str
    name: str
    reason: str


@dataclass(slots=True)
class Needs:
    """What models need.

    Attributes:
        plugins: in the order in which they were found; several may need the same.
        requirement_files: `requirements.txt` of Python models.
        notes: what an image cannot bring, each a sentence.
        unpacks: something is unpacked where the server may write, and executed there.
        model_names: of all models.
    """

    plugins: list[Need] = field(default_factory=list)
    requirement_files: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unpacks: bool = False
    model_names: set[str] = field(default_factory=set)


def find_needs(repositories: Iterable[Path], backend_directory: Path, catalog: Catalog) -> Needs:
    """Read the models of local repositories, as a server would, and note what they need.

    Args:
        repositories: directories of models.
        backend_directory: where backends lie that are files.
        catalog: the plugins that there are.

    Raises:
        InvalidArg: a repository is none, or models are wrong: a line for each.
    """
    needs = Needs()
    problems: list[str] = []
    steps: list[tuple[str, str]] = []
    for repository in repositories:
        for path in _model_directories(repository):
            needs.model_names.add(path.name)
            try:
                directory = read_model(path)
                given = read_given_config(directory)
                config = ModelConfig()
                config.CopyFrom(given)
                check_config(config, directory)
                steps += [(path.name, step.model_name) for step in config.ensemble_scheduling.step]
                _Reader(directory, given, config, needs).read(backend_directory, catalog)
            except TritonError as error:
                problems.append(f"model '{path.name}': {error.message}")
            except OSError as exc:
                problems.append(f"model '{path.name}': {exc.filename}: {exc.strerror}")
    for ensemble, step in steps:
        if step not in needs.model_names:
            needs.notes.append(f"ensemble '{ensemble}' has a step '{step}', which is in no repository given")
    if problems:
        raise InvalidArg("\n".join(problems))
    return needs


def _model_directories(repository: Path) -> list[Path]:
    found = find_targets(repository)
    if found == [repository] or repository.is_file():
        raise InvalidArg(f"'{repository}' is no model repository: expected a directory of models")
    return [path.absolute() for path in found]


class _Reader:
    """Notes what one model needs."""

    def __init__(
        self, directory: ModelDirectory, given: ModelConfig, config: ModelConfig, needs: Needs
    ) -> None:
        self._model = f"model '{directory.name}'"
        self._directory = directory
        self._given = given
        self._config = config
        self._needs = needs

    def read(self, backend_directory: Path, catalog: Catalog) -> None:
        """Note all of it; a name that is no plugin's is found when the plan is made."""
        if not self._config.HasField("ensemble_scheduling"):  # which executes nothing itself
            self._read_backend(backend_directory, catalog)
            self._read_strategy()
        for agent in self._config.model_repository_agents.agents:
            self._need("repo_agents", agent.name, "model_repository_agents")
        if self._config.response_cache.enable:
            self._need("caches", "", "response_cache")
        if any(group.kind == ModelInstanceGroup.KIND_GPU for group in self._given.instance_group):
            self._needs.notes.append(
                f"{self._model} has instances on GPUs (KIND_GPU), which needs --enable-gpu"
            )

    def _need(self, kind: str, name: str, reason: str) -> None:
        self._needs.plugins.append(Need(kind, name, f"{self._model}: {reason}"))

    def _read_backend(self, backend_directory: Path, catalog: Catalog) -> None:
        config, reason = self._config, self._backend_reason()
        try:
            files = find_backend_files(
                config,
                backend_directory,
                catalog.names("backends"),
                [*self._versions(), self._directory.path],
            )
        except NotFound:
            catalog.distribution("backends", config.backend)  # raises, and names the nearest
            raise
        name = config.backend
        if files is not None:
            if files.library is not None:
                self._need("loaders", "abi", f"{reason} is {files.library.name}")
            else:
                self._need("backends", files.runner, f"{reason} is {files.directory.name}/{files.runtime}")
                name = files.runner
        else:
            self._need("backends", name, reason)
        if name in ("python", "tensorflow"):
            self._read_environment(is_python=name == "python")

    def _backend_reason(self) -> str:
        if self._given.backend:
            return f'backend: "{self._given.backend}"'
        if self._given.platform:
            return f'platform: "{self._given.platform}"'
        if self._given.default_model_filename:
            return f'default_model_filename: "{self._given.default_model_filename}"'
        version = f"{self._directory.versions[0]}/" if self._directory.versions else ""
        if version and (self._directory.path / version / self._config.default_model_filename).exists():
            return version + self._config.default_model_filename
        return "its name"

    def _read_environment(self, *, is_python: bool) -> None:
        parameters = self._config.parameters
        path = parameters[ENVIRONMENT_PARAMETER].string_value if ENVIRONMENT_PARAMETER in parameters else ""
        if path:
            self._needs.unpacks |= path.endswith(_ARCHIVES)
            if not path.startswith("$$TRITON_MODEL_DIRECTORY/") or ".." in path:
                note = (
                    f"{self._model} runs in {path} ({ENVIRONMENT_PARAMETER}), which the image does not bring"
                )
                self._needs.notes.append(note)
        elif is_python:
            files = [folder / _REQUIREMENTS for folder in (self._directory.path, *self._versions())]
            self._needs.requirement_files += [file for file in files if file.is_file()]

    def _read_strategy(self) -> None:
        parameters = self._config.parameters
        name = parameters[PATH_PARAMETER].string_value if PATH_PARAMETER in parameters else ""
        if not name:
            folders = (*self._versions(), self._directory.path)
            files = [folder / filename for folder in folders for filename in _STRATEGY_FILES]
            name = next((str(file) for file in files if file.is_file()), "")
            if name.endswith(".so"):
                self._need("loaders", "abi", Path(name).name)
            return
        reason = f"{PATH_PARAMETER} {name}"
        if name.endswith(".so"):
            self._need("loaders", "abi", reason)
        elif ":" in name and "/" not in name:
            module = name.partition(":")[0]
            self._needs.notes.append(
                f"{self._model} imports its batching strategy from module '{module}': name the distribution "
                f"that has it with --package"
            )
        elif "/" not in name and not name.endswith(".py"):
            self._need("batching", name, reason)

    def _versions(self) -> Iterator[Path]:
        return (self._directory.path / str(version) for version in self._directory.versions)
