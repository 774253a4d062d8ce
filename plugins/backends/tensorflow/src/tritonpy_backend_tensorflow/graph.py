"""A loaded model: a session, and the tensors that its calls feed and fetch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonpy.plugin import Array, InvalidArg, TritonError

from tritonpy_backend_tensorflow.framework import Framework, framework_error
from tritonpy_backend_tensorflow.settings import Settings
from tritonpy_backend_tensorflow.tensor_info import TensorInfo, tensor_info
from tritonpy_backend_tensorflow.traces import Verdict

Session = Any  # Any: TensorFlow is not looked into by the type checker

_MOST_CALLABLES = 64
"""Sets of inputs and outputs that have a callable of their own; clients choose the outputs."""

_FEW_OPERATORS = 64
_CALLER = -1  # what TensorFlow calls the thread that calls, among pools of threads

_GPU_COUNT = "GPU"


@dataclass(frozen=True, slots=True)
class Device:
    """Where the operators of a session run.

    Attributes:
        kind: of the instance, such as `KIND_CPU`; `KIND_MODEL` leaves it to the graph.
        number: of the GPU.
    """

    kind: str
    number: int = 0

    @property
    def name(self) -> str | None:
        """TensorFlow's word for it; None where operators are placed by TensorFlow or by the graph."""
        return f"/device:GPU:{self.number}" if self.kind == "KIND_GPU" else None


class Graph:
    """The graph of a model in a session; any number of instances may call it at the same time.

    A callable is prepared for each set of outputs that requests want. TensorFlow takes the memory of an array
    as it is where that begins at a multiple of 64 bytes, and may give the same memory back as an output: the
    array of an output keeps alive what it was made from. Only outputs that later calls may write to
    are copied.

    Args:
        framework: TensorFlow.
        session: with the graph loaded; closed by `close`.
        inputs: what can be fed, by name.
        outputs: what is described as output, by name.
        has_signature: the model's files say which inputs and outputs there are; otherwise any placeholder is
            an input, and any tensor an output.
        verdict: what its calls do.
        inter_thread_count: threads for operators side by side; 0 where the model does not say. A graph with
            one, or with few operators and no number, is run by the thread that calls: to hand it to another
            one takes several times as long as a small graph itself.

    Attributes:
        inputs, outputs, has_signature: as given.
        leaves_traces: calls change what later calls see, such as variables.
        runs_on_caller_s_thread: its operators run one after the other, each with all threads it can use.
    """

    def __init__(
        self,
        framework: Framework,
        session: Session,
        inputs: Mapping[str, TensorInfo],
        outputs: Mapping[str, TensorInfo],
        *,
        has_signature: bool,
        verdict: Verdict,
        inter_thread_count: int,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.has_signature = has_signature
        self.leaves_traces = verdict.leaves_traces
        self._copies = verdict.shows_memory
        is_small = verdict.operator_count <= _FEW_OPERATORS
        self.runs_on_caller_s_thread = inter_thread_count == 1 or (inter_thread_count == 0 and is_small)
        self._tf = framework.tf
        self._session = session
        self._lock = threading.Lock()  # guards additions to _callables and to the graph
        self._callables: dict[tuple[tuple[str, ...], tuple[str, ...]], Callable[..., Sequence[object]]] = {}
        self._names: tuple[str, ...] = ()
        self._all_outputs: tuple[str, ...] = ()

    def find_output(self, name: str) -> TensorInfo | None:
        """The output of a name; without a signature it may be that of any operator, or `operator:index`."""
        found = self.outputs.get(name)
        if found is not None or self.has_signature:
            return found
        try:
            tensor = self._session.graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
        except (KeyError, ValueError):  # no such operator, or no such output of it
            return None
        return tensor_info(name, tensor, tensor.dtype, tensor.shape)

    def run(self, operations: Sequence[str]) -> None:
        """Run operators by their names, one after the other.

        Raises:
            TritonError: there is none of a name, or it fails.
        """
        for name in operations:
            try:
                self._session.run(name)
            except Exception as exc:  # TensorFlow's have no common base with those of its Python code
                raise framework_error(exc, f"operator '{name}': ") from exc

    def bind(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Say which inputs and outputs calls may have, and prepare the call with all of them.

        Raises:
            TritonError: TensorFlow cannot prepare it.
        """
        self._names = tuple(inputs)
        self._all_outputs = tuple(outputs)
        required = tuple(name for name in inputs if not self.inputs[name].has_default)
        self._prepare(required, self._all_outputs)

    def call(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Compute outputs, in the order in which they are asked for.

        Args:
            feeds: one array for each input, of the type and rank that the graph wants: TensorFlow checks the
                type only.
            outputs: names.

        Raises:
            TritonError: with TensorFlow's words.
        """
        names = self._names
        if len(feeds) != len(names):  # some have values in the graph
            names = tuple(name for name in names if name in feeds)
        key = names, tuple(outputs)
        run = self._callables.get(key)
        if run is None:
            if len(self._callables) >= _MOST_CALLABLES and key[1] != self._all_outputs:
                found = dict(zip(self._all_outputs, self.call(feeds, self._all_outputs), strict=True))
                return [found[name] for name in outputs]
            run = self._prepare(*key)
        try:
            results = run(*[feeds[name] for name in names])
        except Exception as exc:  # as above
            raise framework_error(exc) from exc
        arrays = [result if isinstance(result, np.ndarray) else _scalar(result) for result in results]
        return [array.copy() for array in arrays] if self._copies else arrays

    def close(self) -> None:
        """Close the session; no call may run any more."""
        self._callables.clear()
        self._session.close()

    def _prepare(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Callable[..., Sequence[object]]:
        from tensorflow.core.protobuf import config_pb2

        with self._lock:
            feed = [self.inputs[name].tensor for name in inputs]
            fetch = [self._fetched(name, feed) for name in outputs]
            try:
                pool = _CALLER if self.runs_on_caller_s_thread else 0
                how = config_pb2.RunOptions(inter_op_thread_pool=pool)
                options = config_pb2.CallableOptions(feed=feed, fetch=fetch, run_options=how)
                run: Callable[..., Sequence[object]] = self._session._make_callable_from_options(options)
            except Exception as exc:  # as above
                raise framework_error(exc) from exc
            self._callables[inputs, outputs] = run
            return run

    def _fetched(self, name: str, feed: Sequence[str]) -> str:
        info = self.find_output(name)
        if info is None:
            raise InvalidArg(f"unexpected inference output '{name}'")
        if info.tensor not in feed:
            return info.tensor
        graph = self._session.graph  # nothing can be fed and fetched at once
        with graph.as_default():
            same: str = self._tf.identity(graph.get_tensor_by_name(info.tensor)).name
        return same


@contextmanager
def new_session(
    framework: Framework, settings: Settings, device: Device, model_name: str
) -> Iterator[Session]:
    """Open a session with an empty graph to load a model into; it stays open unless that fails.

    Inside, new operators go into the graph, and to the device where they name none.

    Raises:
        TritonError: what was raised inside, that of TensorFlow with its words.
    """
    session = open_session(framework, settings, device)
    try:
        with session.graph.as_default(), session.graph.device(device.name):
            yield session
    except TritonError:
        session.close()
        raise
    except Exception as exc:  # of TensorFlow, of protobuf or of the system
        session.close()
        raise framework_error(exc, f"failed to load model '{model_name}': ") from exc


def open_session(framework: Framework, settings: Settings, device: Device) -> Session:
    """A session with an empty graph, whose threads and devices are as the settings say."""
    from tensorflow.core.protobuf import rewriter_config_pb2

    v1 = framework.tf.compat.v1
    config = v1.ConfigProto(
        intra_op_parallelism_threads=settings.intra_thread_count,
        inter_op_parallelism_threads=settings.inter_thread_count,
        use_per_session_threads=settings.has_own_threads,
        allow_soft_placement=framework.allows_soft_placement,
    )
    if device.kind == "KIND_CPU":
        config.device_count[_GPU_COUNT] = 0
    gpus = config.gpu_options
    gpus.allow_growth = framework.gpu_memory_fraction == 0
    gpus.per_process_gpu_memory_fraction = framework.gpu_memory_fraction
    if settings.graph_level is not None:
        levels = v1.OptimizerOptions
        level = {-1: levels.OFF, 0: levels.DEFAULT, 1: levels.ON_1}.get(settings.graph_level, levels.ON_2)
        config.graph_options.optimizer_options.global_jit_level = level
    if settings.uses_mixed_precision and device.kind != "KIND_CPU":
        config.graph_options.rewrite_options.auto_mixed_precision = rewriter_config_pb2.RewriterConfig.ON
    return v1.Session(graph=framework.tf.Graph(), config=config)


def _scalar(value: object) -> Array:
    """A value without dimensions, which TensorFlow gives as a number or as `bytes`."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    array = np.empty((), object)
    array[()] = value
    return array
