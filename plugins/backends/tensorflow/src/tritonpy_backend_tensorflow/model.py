"""One version of one TensorFlow model: its files, its configuration, and the sessions its instances run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from tritonpy.plugin import BatchPlan, JsonObject, Model, ModelInstance, TritonError, Unavailable, Unsupported

from tritonpy_backend_tensorflow.checks import check_tensors
from tritonpy_backend_tensorflow.files import Format, ModelFiles, find_files
from tritonpy_backend_tensorflow.framework import Framework
from tritonpy_backend_tensorflow.graph import Device, Graph
from tritonpy_backend_tensorflow.graph_def import load_graph_def
from tritonpy_backend_tensorflow.init_ops import read_init_ops
from tritonpy_backend_tensorflow.operators import open_libraries, operator_error
from tritonpy_backend_tensorflow.saved_model import load_saved_model
from tritonpy_backend_tensorflow.settings import Settings, read_settings


class TensorFlowModel:
    """What the instances of a model version share; thread-safe.

    Instances on one device run one session, with its variables in memory once, unless calls leave traces in
    it or `MAX_SESSION_SHARE_COUNT` says how many may.

    Attributes:
        framework: TensorFlow and the settings for all models.
        settings: what the parameters say.
        graph: the model as the first instance runs it; what its files say is read from it.
        plan: how batches are executed; set by `bind`.
        sizes: of inputs that are compared before each call; set by `bind`.
    """

    def __init__(self, model: Model, framework: Framework, settings: Settings) -> None:
        self.framework = framework
        self.settings = settings
        self.plan = BatchPlan({"name": model.name}, framework.pool)
        self.sizes: Sequence[tuple[str, int, int]] = ()
        self._model = model
        self._lock = threading.Lock()  # guards _users
        self._files = _first_files(model)
        self._device = _first_device(model.config)
        open_libraries(model.op_libraries, framework.tf)
        self.graph = self._load(self._files, self._device)
        self._users: dict[tuple[Path, Device], list[tuple[Graph, int]]] = {
            (self._files.path, self._device): [(self.graph, 0)]
        }

    def fits(self, model: Model, settings: Settings) -> bool:
        """True if a fresh one with these settings would be the same."""
        return (
            self.settings == settings
            and self._files == _first_files(model)
            and self._device == _first_device(model.config)
        )

    def bind(self, config: JsonObject) -> None:
        """Compare a complete configuration with the model.

        Raises:
            TritonError: they do not fit.
        """
        if config.get("model_transaction_policy", {}).get("decoupled", False):
            raise Unsupported(
                f"model '{self._model.name}': a call of a TensorFlow model gives one response, so it cannot "
                "be decoupled; a Python model can call TensorFlow and send many"
            )
        fit = check_tensors(config, self.graph)
        self.plan = BatchPlan(config, self.framework.pool, fit.scalars)
        self.sizes = fit.sizes
        self._bind(self.graph)

    def take(self, instance: ModelInstance) -> Graph:
        """A graph in a session for an instance: on its device, of the files for that kind of device."""
        files = find_files(instance.model, instance.model_filename)
        device = Device(instance.kind, instance.device_id if instance.kind == "KIND_GPU" else 0)
        with self._lock:
            graphs = self._users.setdefault((files.path, device), [])
            for index, (graph, count) in enumerate(graphs):
                if count < self._limit(graph):
                    graphs[index] = (graph, count + 1)
                    return graph
            graph = self._load(files, device)
            self._bind(graph)
            graphs.append((graph, 1))
            return graph

    def give_back(self, taken: Graph) -> None:
        """Let go of a graph; one that no instance uses is closed, but for that of the model itself."""
        with self._lock:
            for graphs in self._users.values():
                for index, (graph, count) in enumerate(graphs):
                    if graph is not taken:
                        continue
                    if count > 1 or graph is self.graph:
                        graphs[index] = (graph, count - 1)
                    else:
                        del graphs[index]
                        graph.close()
                    return

    def close(self) -> None:
        """Close all sessions."""
        with self._lock:
            for graphs in self._users.values():
                for graph, _ in graphs:
                    graph.close()
            self._users.clear()

    def _limit(self, graph: Graph) -> float:
        if self.settings.share_count is not None:
            return self.settings.share_count
        return 1 if graph.leaves_traces else float("inf")

    def _bind(self, graph: Graph) -> None:
        batch_inputs = [name for batch_input in self.plan.batch_inputs for name in batch_input.names]
        graph.bind([*self.plan.inputs, *batch_inputs], [binding.name for binding in self.plan.outputs])

    def _load(self, files: ModelFiles, device: Device) -> Graph:
        load = load_saved_model if files.format is Format.SAVED_MODEL else load_graph_def
        init_ops = read_init_ops(self._model, self.settings.init_ops_file)
        try:
            graph = load(self.framework, files.path, self._model.name, self.settings, device)
        except TritonError as exc:
            raise operator_error(exc, self._model) from exc
        try:
            graph.run(init_ops)
        except TritonError:
            graph.close()
            raise
        return graph


def open_model(model: Model) -> TensorFlowModel:
    """Load a model, or take what auto-complete has just loaded when it is still what is wanted.

    Raises:
        TritonError: its files are missing or broken, or a parameter is wrong.
    """
    settings = read_settings(model)
    opened = model.state
    if isinstance(opened, TensorFlowModel):
        if opened.fits(model, settings):
            return opened
        opened.close()
    model.state = opened = None  # before the files are loaded again
    return TensorFlowModel(model, model.backend.state, settings)


def _first_device(config: JsonObject) -> Device:
    group: JsonObject = next(iter(config.get("instance_group", ())), {})
    kind = group.get("kind", "KIND_CPU")
    gpus = group.get("gpus") or [0]
    return Device(kind, int(gpus[0]) if kind == "KIND_GPU" else 0)


def _first_files(model: Model) -> ModelFiles:
    """The default files or, where there are none, some of those for single kinds of GPUs."""
    try:
        return find_files(model)
    except Unavailable:
        for filename in model.config.get("cc_model_filenames", {}).values():
            try:
                return find_files(model, filename)
            except Unavailable:
                continue
        raise
