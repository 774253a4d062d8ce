"""Backends that are files: a library compiled for Triton, or a `model.py` in the backend directory."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path

from tritonpy.config.complete import advice_on
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.plugin_files import first_file, is_filename
from tritonpy.plugin_manager import install_hint
from tritonpy.protos import ModelConfig

_RUNNERS = {"model.py": "python"}
"""Which backend runs a file, by what the configuration's `runtime` calls it."""

_BUILT_IN = {"pytorch": "model.py"}
"""Backends of Triton that bring such a file themselves; here the plugin does what it does."""

_FRAMEWORKS = {
    "dali": "DALI",
    "fastertransformer": "FasterTransformer",
    "fil": "FIL",
    "openvino": "OpenVINO",
    "tensorrt": "TensorRT",
    "tensorrtllm": "TensorRT-LLM",
    "vllm": "vLLM",
}
"""Backends of Triton that have no counterpart here, and what they run."""


@dataclass(frozen=True, slots=True)
class BackendFiles:
    """A backend that consists of files.

    Attributes:
        runtime: the name of its file, as `runtime` in configurations says it.
        runner: the installed backend that runs it; "" for a library, which runs itself.
        directory: the backend's own in `--backend-directory`.
        library: the path of a library compiled for Triton; None for other files.
    """

    runtime: str
    runner: str
    directory: Path
    library: Path | None = None


def find_backend_files(
    config: ModelConfig,
    backend_directory: Path,
    installed: Collection[str],
    model_directories: Iterable[Path] = (),
    disabled: Container[str] = (),
) -> BackendFiles | None:
    """The files behind a model's backend; None when it is a plugin.

    An installed plugin of that name wins, unless the configuration asks for the file. One that is disabled
    does not win over a library.

    Args:
        config: its `backend` and `runtime` count.
        backend_directory: `--backend-directory`.
        installed: names of installed backends.
        model_directories: of the version and the model, where Triton looks for a library first.
        disabled: names of those that must not be loaded.

    Raises:
        InvalidArg: the configuration asks for a file that is not there, or outside of the directory.
        NotFound: the file is there, and nothing that could run it; or there is no such backend at all, with
            where it was looked for.
    """
    name = config.backend
    directory = backend_directory / name
    directories = [*model_directories, directory]
    if normpath(config.runtime).startswith(("/", "../")):
        raise InvalidArg(f"backend library name '{config.runtime}' escapes backend directory")
    if name not in installed or name in disabled or config.runtime:
        library = _find_library(config, directories)
        if library is not None:
            return BackendFiles(config.runtime or library.name, "", directory.absolute(), library.absolute())
    if config.runtime not in ("", f"libtriton_{name}.so", *_RUNNERS):  # the second may mean a plugin
        raise InvalidArg(
            f"unable to find backend library '{config.runtime}' for model '{config.name}', searched: "
            f"{_listed(directories)}"
        )
    for runtime, runner in _RUNNERS.items():
        is_wanted = config.runtime == runtime
        if not is_wanted and (config.runtime or name in installed):
            continue
        if is_filename(name) and (directory / runtime).is_file():
            if runner not in installed:
                raise NotFound(
                    f"backend '{name}' is {directory / runtime}, which needs backend '{runner}', and that is "
                    f"not installed: pip install tritonpy-backend-{runner}"
                )
            return BackendFiles(runtime, runner, directory.absolute())
        if is_wanted and not (name in installed and _BUILT_IN.get(name) == runtime):
            raise InvalidArg(
                f"unable to find Python backend based backend library '{runtime}' for model '{config.name}', "
                f"searched: '{directory / runtime}'"
            )
    if name not in installed:
        missing = f"no installed plugin of kind 'backends' is called '{name}'"
        if advice := advice_on(name) or _advice_on_framework(name):
            raise NotFound(f"{missing}: {advice}")
        rest = install_hint("backends", name)
        if not rest and is_filename(name):
            rest = f"; no libtriton_{name}.so in {_listed(directories)}"
        raise NotFound(f"{missing}; installed: {', '.join(installed) or 'none'}{rest}")
    return None


def _advice_on_framework(name: str) -> str:
    framework = _FRAMEWORKS.get(name)
    if framework is None:
        return ""
    return (
        f"Triton's {framework} backend has no counterpart here yet; a Python model can call {framework}, and "
        f"an ONNX export of a model is served with backend 'onnxruntime'"
    )


def _find_library(config: ModelConfig, directories: Iterable[Path]) -> Path | None:
    """The library of a backend that was compiled for Triton; None where there is none.

    A `runtime` may be of any name, and in a directory of its own.
    """
    library = config.runtime or f"libtriton_{config.backend}.so"
    if library.endswith(".py") or not is_filename(config.backend):
        return None
    return first_file(directories, (library,))


def _listed(directories: Iterable[Path]) -> str:
    return " ".join(f"'{directory}'" for directory in directories)
