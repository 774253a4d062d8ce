"""The backend that executes bound functions on threads of the program that has bound them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from tritonpy.errors import NotFound
from tritonpy.handles import BackendAttributes, Model, ModelInstance
from tritonpy.hookspecs import hookimpl
from tritonpy.request import InferRequest

from tritonpy_sdk.functions.bound import Bound
from tritonpy_sdk.functions.calls import FunctionInstance
from tritonpy_sdk.functions.context import FunctionContext

_log = logging.getLogger("tritonpy.function")


class FunctionBackend:
    """Hooks of the backend `function`.

    Args:
        models: what is bound, by name; read when a model is loaded.
    """

    def __init__(self, models: Mapping[str, Bound]) -> None:
        self._models = models

    @hookimpl
    def backend_attributes(self) -> BackendAttributes:
        return BackendAttributes(execution="thread")

    @hookimpl
    def model_initialize(self, model: Model) -> None:
        """See `BackendHooks`.

        Raises:
            NotFound: no function is bound by the model's name.
        """
        found = self._models.get(model.name)
        if found is None:
            raise NotFound(f"model '{model.name}': no function of this program is bound by that name")
        model.state = found

    @hookimpl
    def model_instance_initialize(self, instance: ModelInstance) -> None:
        bound: Bound = instance.model.state
        context = FunctionContext(
            bound.name,
            instance.model.config,
            bound.inputs,
            bound.outputs,
            instance.index,
            instance.name,
            instance.model.server,
        )
        instance.state = FunctionInstance(bound, context)

    @hookimpl
    def model_instance_finalize(self, instance: ModelInstance) -> None:
        instance.state.close()

    @hookimpl
    def model_instance_execute(self, instance: ModelInstance, requests: Sequence[InferRequest]) -> Any:
        return instance.state.execute(requests)

    @hookimpl
    def model_instance_ready(self, instance: ModelInstance) -> bool:
        return not instance.state.is_lost
