"""The repository agent `checksum`: a model loads only if its files are those its configuration asks for."""

from __future__ import annotations

from tritonpy.plugin import RepoAgentModel, hookimpl

from tritonpy_repo_agent_checksum.files import check_file, check_nothing_else
from tritonpy_repo_agent_checksum.parameters import read_parameters


@hookimpl
def repo_agent_model_action(model: RepoAgentModel, action: str) -> None:
    """Compare the files before the model is loaded; nothing is left to do afterwards."""
    if action != "LOAD":
        return
    wanted = read_parameters(model.name, model.parameters)
    for checksum in wanted.checksums:
        check_file(model, checksum)
    if wanted.is_every_file_listed:
        check_nothing_else(model, {checksum.path for checksum in wanted.checksums})
