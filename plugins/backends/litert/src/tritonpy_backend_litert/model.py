"""One version of one TensorFlow Lite model: its file, its configuration, and the interpreters made of it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from tritonpy.plugin import BatchPlan, InvalidArg, JsonObject, Model, Unavailable, Unsupported

from tritonpy_backend_litert.checks import check_tensors
from tritonpy_backend_litert.framework import Framework, framework_error
from tritonpy_backend_litert.settings import Settings, read_settings
from tritonpy_backend_litert.signature import Interpreter, Signature, read_signature

MODEL_FILENAME = "model.tflite"

_log = logging.getLogger("tritonpy.backend.litert")


class LiteModel:
    """The part of a model version that its instances share; thread-safe.

    The file is read once, and all interpreters use its weights where they lie. It is not mapped: a file that
    is written over would change, or end, under running calls.

    Attributes:
        framework: LiteRT and the settings for all models.
        settings: how interpreters are made.
        signature: what the file says.
        plan: how batches are executed; set by `bind`.
    """

    def __init__(self, model: Model, framework: Framework, settings: Settings) -> None:
        self.settings = settings
        self.plan = BatchPlan({"name": model.name}, framework.pool)
        self._name = model.name
        self.framework = framework
        self._path = find_file(model)
        self._content = self._path.read_bytes()
        self._lock = threading.Lock()  # guards _opened
        self._opened: Interpreter | None = self._open()
        self.signature: Signature = read_signature(self._opened, settings.signature_key, model.name)

    def fits(self, model: Model, settings: Settings) -> bool:
        """True if a fresh one with these settings would be the same."""
        return self.settings == settings and self._path == find_file(model)

    def bind(self, config: JsonObject) -> None:
        """Compare a complete configuration with the model file.

        Raises:
            TritonError: they do not fit.
        """
        if any(group.get("kind") == "KIND_GPU" for group in config.get("instance_group", ())):
            raise InvalidArg(
                f"unable to load model '{self._name}', backend 'litert' runs models on the CPU: got an "
                "instance_group of KIND_GPU, expected KIND_CPU or KIND_AUTO"
            )
        if config.get("model_transaction_policy", {}).get("decoupled", False):
            raise Unsupported(
                f"model '{self._name}': a call of a TensorFlow Lite model gives one response, so it cannot "
                "be decoupled"
            )
        self.plan = BatchPlan(config, self.framework.pool, check_tensors(config, self.signature))
        for info in (*self.signature.inputs.values(), *self.signature.outputs.values()):
            if info.scale:
                _log.info(
                    "model '%s': '%s' is quantised, n stands for %g * (n - %d)",
                    self._name, info.name, info.scale, info.zero_point,
                )  # fmt: skip

    def make_interpreter(self) -> Interpreter:
        """An interpreter for one instance; the first one gets that which the signature was read from.

        Raises:
            Internal: LiteRT cannot make it.
        """
        with self._lock:
            opened, self._opened = self._opened, None
        return opened if opened is not None else self._open()

    def _open(self) -> Interpreter:
        module, settings = self.framework.module, self.settings
        kinds = module.OpResolverType
        resolver = kinds.BUILTIN if settings.uses_xnnpack else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        try:
            return module.Interpreter(
                model_content=self._content,
                num_threads=settings.thread_count,
                experimental_op_resolver_type=resolver,
            )
        except (RuntimeError, ValueError) as exc:
            raise framework_error(exc, f"failed to load model '{self._name}': ") from exc


def open_model(model: Model) -> LiteModel:
    """Open a model's file, or take what auto-complete has just opened when it is still what is wanted.

    Raises:
        TritonError: the file is missing or broken, or a parameter is wrong.
    """
    settings = read_settings(model)
    opened = model.state
    if isinstance(opened, LiteModel) and opened.fits(model, settings):
        return opened
    model.state = opened = None  # before the file is loaded again
    return LiteModel(model, model.backend.state, settings)


def find_file(model: Model) -> Path:
    """The model file of a version.

    Raises:
        Unavailable: there is none.
        InvalidArg: it is something else.
    """
    folder = model.version_directory
    path = folder / (model.config.get("default_model_filename") or MODEL_FILENAME)
    if not path.is_file():
        names = sorted(found.name for found in folder.glob("*.tflite")) if folder.is_dir() else []
        advice = f"; there is '{names[0]}': write default_model_filename: \"{names[0]}\"" if names else ""
        raise Unavailable(f"unable to find '{path}' for model instance '{model.name}'{advice}")
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"version "):
        raise InvalidArg(
            f"'{path}' of model '{model.name}' is a Git LFS pointer; `git lfs pull` fetches the file"
        )
    if head[4:8] != b"TFL3":
        raise InvalidArg(
            f"'{path}' of model '{model.name}' is not a TensorFlow Lite model: got {head[4:8]!r} as its "
            "bytes 4 to 7, expected b'TFL3'"
        )
    return path
