"""The repository agent `xyz`: a polynomial is fitted to the points in a file when the model is loaded."""

from __future__ import annotations

import json
import shutil

import numpy as np
from tritonpy.plugin import InvalidArg, RepoAgentModel, hookimpl


@hookimpl
def repo_agent_model_action(model: RepoAgentModel, action: str) -> None:
    if action != "LOAD":
        return
    path = model.directory / "points.csv"
    try:
        x, y = np.loadtxt(path, delimiter=",", unpack=True)
        degree = int(model.parameters.get("degree", "1"))
    except (OSError, ValueError) as exc:
        raise InvalidArg(f"model '{model.name}': cannot fit to {path}: {exc}") from exc
    copy = model.acquire_directory()  # the server removes it when the model is gone
    shutil.copytree(model.directory, copy, dirs_exist_ok=True)
    (copy / "1").mkdir()
    coefficients = np.polyfit(x, y, degree).round(6).tolist()
    (copy / "1" / "coefficients.json").write_text(json.dumps(coefficients))
    model.directory = copy  # what is loaded instead
