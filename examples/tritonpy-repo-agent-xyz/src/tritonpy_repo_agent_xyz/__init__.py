"""The repository agent `xyz`: a file in the model's directory names the version that is loaded."""

from __future__ import annotations

import shutil

from tritonpy.plugin import InvalidArg, RepoAgentModel, hookimpl


@hookimpl
def repo_agent_model_action(model: RepoAgentModel, action: str) -> None:
    if action != "LOAD":
        return
    version = read_version(model)
    copy = model.acquire_directory()  # the server removes it when the model is gone
    for path in model.directory.iterdir():
        if path.name == version or not path.name.isdecimal():
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, copy / path.name)
    model.directory = copy  # what is loaded instead


def read_version(model: RepoAgentModel) -> str:
    name = model.parameters.get("file", "release.txt")
    if "/" in name:  # errors show what is in the file, so it must be none of others
        raise InvalidArg(f"model '{model.name}': parameter file: got '{name}', expected a name without '/'")
    try:
        version = (model.directory / name).read_text().strip()
    except (OSError, ValueError) as exc:
        raise InvalidArg(f"model '{model.name}': cannot read which version to load: {exc}") from exc
    if not version.isdecimal() or not (model.directory / version).is_dir():
        raise InvalidArg(f"model '{model.name}': {name} names version '{version}', which is not there")
    return version
