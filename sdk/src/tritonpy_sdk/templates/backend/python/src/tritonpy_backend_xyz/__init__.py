"""The backend `xyz`: a model is a polynomial, its file a JSON list of coefficients, highest power first."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from tritonpy.plugin import InferRequest, InferResponse, InvalidArg, Model, ModelInstance, hookimpl


@hookimpl
def model_initialize(model: Model) -> None:
    path = model.version_directory / "coefficients.json"
    try:
        model.state = np.array(json.loads(path.read_text()), np.float32)
    except (OSError, ValueError) as exc:
        raise InvalidArg(f"model '{model.name}': expected a JSON list of numbers in {path}: {exc}") from exc


@hookimpl
def model_instance_execute(instance: ModelInstance, requests: Sequence[InferRequest]) -> list[InferResponse]:
    xs = [request.input("X").numpy() for request in requests]
    ys = np.polyval(instance.model.state, np.concatenate(xs))
    ends = np.cumsum([len(x) for x in xs])
    return [InferResponse().add("Y", y) for y in np.split(ys, ends[:-1])]
