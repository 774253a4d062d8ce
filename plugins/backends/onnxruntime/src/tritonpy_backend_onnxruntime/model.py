"""One version of one ONNX model: its file, what it takes and gives, and the sessions its instances run."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tritonpy.plugin import BatchPlan, JsonObject, Model, ModelInstance, NotFound, Unsupported

from tritonpy_backend_onnxruntime.framework import Framework, framework_error
from tritonpy_backend_onnxruntime.options import SessionSettings, read_settings, session_options
from tritonpy_backend_onnxruntime.providers import Provider, providers_for
from tritonpy_backend_onnxruntime.signature import ModelSignature, check_tensors, read_signature

MODEL_FILENAME = "model.onnx"

Session = Any  # Any: onnxruntime is untyped


class OnnxModel:
    """The part of a model version that its instances share; thread-safe.

    By default instances on one device run one session: ONNX Runtime allows that, and the weights are then
    loaded once instead of once for each instance.

    Attributes:
        framework: ONNX Runtime and the settings for all models.
        settings: how sessions are made.
        signature: what the file says.
        plan: how batches are executed; set by `bind`.
    """

    def __init__(self, model: Model, framework: Framework, settings: SessionSettings) -> None:
        self.framework = framework
        self.settings = settings
        self.plan = BatchPlan({"name": model.name}, framework.pool)
        self._name = model.name
        self._config = model.config
        self._lock = threading.Lock()  # guards _sessions
        self._sessions: dict[tuple[Path, str], Session] = {}
        self._first_providers = _first_providers(framework, model.config)
        if model.config.get("cc_model_filenames"):  # this one need not be a file that any instance runs
            session = self._open(_any_model_file(model), self._first_providers)
        else:
            session = self._shared(find_model_file(model), self._first_providers)
        self.signature: ModelSignature = read_signature(session)

    def fits(self, settings: SessionSettings, config: JsonObject) -> bool:
        """True if a fresh one with these settings would be the same."""
        return self.settings == settings and self._first_providers == _first_providers(self.framework, config)

    def bind(self, config: JsonObject) -> None:
        """Compare a complete configuration with the model file.

        Raises:
            TritonError: they do not fit.
        """
        self._config = config
        self.plan = BatchPlan(config, self.framework.pool, check_tensors(config, self.signature))
        if {"BF16", "BYTES"} <= {binding.datatype for binding in self.plan.bindings}:
            raise Unsupported(
                f"model '{self._name}': ONNX Runtime's Python interface cannot run a model that takes or "
                f"gives both bfloat16 and strings"
            )

    def session_for(self, instance: ModelInstance) -> Session:
        """The session for an instance: on its device, of the file for that kind of device."""
        providers = providers_for(self.framework, self._config, instance.kind, instance.device_id)
        path = find_model_file(instance.model, instance.model_filename)
        if self.settings.shares_session:
            return self._shared(path, providers)
        with self._lock:  # the one that `signature` was read from goes to the first instance
            session = self._sessions.pop((path, str(providers)), None)
        return session if session is not None else self._open(path, providers)

    def _shared(self, path: Path, providers: list[Provider]) -> Session:
        key = path, str(providers)
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = self._open(path, providers)
            return self._sessions[key]

    def _open(self, path: Path, providers: list[Provider]) -> Session:
        try:
            options = session_options(self.framework, self.settings)
            return self.framework.ort.InferenceSession(path, options, providers=providers, enable_fallback=0)
        except Exception as exc:  # onnxruntime's exceptions have no common base
            raise framework_error(exc, f"failed to load model '{self._name}': ") from exc


def _first_providers(framework: Framework, config: JsonObject) -> list[Provider]:
    """The providers of the first instance, whose session is also the one that the signature is read from."""
    group: JsonObject = next(iter(config.get("instance_group", ())), {})
    gpus = group.get("gpus") or [0]
    return providers_for(framework, config, group.get("kind", "KIND_CPU"), int(gpus[0]))


def open_model(model: Model) -> OnnxModel:
    """Open a model's file, or take what auto-complete has just opened when it is still what is wanted.

    Raises:
        TritonError: the file is missing or broken, or a parameter is wrong.
    """
    framework: Framework = model.backend.state
    settings = read_settings(model, framework)
    opened = model.state
    if isinstance(opened, OnnxModel) and opened.fits(settings, model.config):
        return opened
    model.state = opened = None  # before the file is loaded again
    return OnnxModel(model, framework, settings)


def find_model_file(model: Model, filename: str = "") -> Path:
    """A model file, which may also be a directory that holds `model.onnx`.

    Args:
        model: the model.
        filename: the file's name; "" for `default_model_filename`.

    Raises:
        NotFound: there is none.
    """
    filename = filename or model.config.get("default_model_filename") or MODEL_FILENAME
    path = model.version_directory / filename
    candidate = path / MODEL_FILENAME if path.is_dir() else path
    if not candidate.is_file():
        raise NotFound(
            f"unable to find '{path}' or '{path / MODEL_FILENAME}' for model '{model.name}', "
            f"version {model.version}"
        )
    return candidate


def _any_model_file(model: Model) -> Path:
    """The default file or, where there is none, one of those for single kinds of GPUs.

    Raises:
        NotFound: there is not one of them.
    """
    try:
        return find_model_file(model)
    except NotFound:
        for filename in model.config["cc_model_filenames"].values():
            with suppress(NotFound):
                return find_model_file(model, filename)
        raise
