"""Handles that the hooks of a plugin receive: the backend, the model, the instance, the batcher.

These are plain objects in the process where the hooks run. `state` belongs to the plugin; everything else
is for reading. The loop-side counterparts (`tritonpy.model`) are never given to plugins.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from tritonpy.buffers import MemoryType
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.executor import Executor, FrameExecutor
from tritonpy.json_object import JsonObject as JsonObject
from tritonpy.server_link import ServerLink
from tritonpy.temporary import OF_THIS_PROCESS
from tritonpy.tensor import Array


@dataclass(frozen=True, slots=True)
class PreferredGroup:
    """An instance group the backend proposes for models that configure none.

    Attributes:
        kind: as in a configuration.
        count: instances, on each GPU where the kind is `KIND_GPU`; 0 leaves it to the server.
        gpus: numbers of the GPUs where the kind is `KIND_GPU` or `KIND_AUTO`; those that are missing are left
            out. Empty means all of them.
    """

    kind: Literal["KIND_CPU", "KIND_GPU", "KIND_MODEL", "KIND_AUTO"] = "KIND_CPU"
    count: int = 1
    gpus: Sequence[int] = ()


EXECUTIONS = ("thread", "process")
"""How instances run: on threads of the server, or each in a worker."""


@dataclass(frozen=True, slots=True)
class BackendAttributes:
    """Attributes of a backend, as it states them once before its first model is loaded.

    Attributes:
        execution: how models run of which the hook `model_execution` says nothing else. `thread` promises
            that `model_instance_execute` releases the GIL in its hot call (or is over in microseconds);
            `process` puts every instance into a worker of its own.
        preferred_groups: instance groups for models that configure none, the most wanted first: the first one
            that this machine has the devices for is taken. None means `KIND_AUTO`.
        parallel_instance_loading: loading hooks may run at the same time, for the instances of a model and
            for several models. Otherwise those that run in the server's process take turns: two threads that
            import the same framework for the first time can get half of it.
        default_filename: the model file looked for in a version directory, such as `model.onnx`.
        uses_gpus: models can run on GPUs, so that `KIND_AUTO` means one where there is one. A backend whose
            framework is installed without says False, and its models stay on the CPU.
        op_framework: the framework whose custom operators models can call: plugins of the kind `op_libraries`
            are asked by this name before each load. "" asks none.
    """

    execution: Literal["thread", "process"] = "thread"
    preferred_groups: Sequence[PreferredGroup] = ()
    parallel_instance_loading: bool = False
    default_filename: str = ""
    uses_gpus: bool = True
    op_framework: str = ""

    def __post_init__(self) -> None:
        """Refuse an `execution` that is neither `thread` nor `process`.

        Raises:
            ValueError: `execution` is neither `thread` nor `process`.
        """
        if self.execution not in EXECUTIONS:
            raise ValueError(f"execution is {self.execution!r}, expected 'thread' or 'process'")


@dataclass(slots=True)
class Backend:
    """One backend, alive while any of its models is.

    Attributes:
        name: as models write it in `backend: "…"`.
        settings: `--backend-config` values that name this backend or every backend.
        state: the plugin's own.
        directory: its folder in `--backend-directory`, for a backend that consists of files which another
            backend runs; None for a plugin.
        completes_config: models may leave out of their configuration what it can find out by itself.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    state: Any = None  # Any: the plugin's own
    directory: Path | None = None
    completes_config: bool = True


@dataclass(frozen=True, slots=True)
class WorkerCommand:
    """The command that starts a backend's own worker program.

    Attributes:
        command: the program and its arguments.
        environment: variables that differ from the server's; None takes one away.
    """

    command: Sequence[str]
    environment: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of_hooks(cls, interpreter: str, environment: Mapping[str, str | None] | None = None) -> Self:
        """The program that runs a backend's hooks, on an interpreter that may be another than the server's.

        Args:
            interpreter: its environment has the backend, and tritonpy in the server's version.
            environment: variables that differ from the server's; None takes one away.
        """
        return cls([interpreter, "-P", "-m", "tritonpy.workers.child.main"], environment or {})


@dataclass(frozen=True, slots=True)
class OpLibrary:
    """A library of custom operators that models may call.

    Attributes:
        path: where it lies.
        named_by: what names it, for errors; such as `plugin 'xyz' of kind 'op_libraries'`.
    """

    path: Path
    named_by: str


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """Memory of one kind that a model or an instance uses.

    Attributes:
        memory_type: where it is.
        device_id: the GPU's number; 0 for memory of the CPU.
        byte_size: how much.
    """

    memory_type: MemoryType
    device_id: int
    byte_size: int


@dataclass(slots=True)
class Model:
    """One version of one model.

    Attributes:
        name: the model's name.
        version: the number of its version directory.
        config: what `GET /v2/models/<name>/config` shows, as a plain dict.
        directory: the model's directory in the repository.
        backend: the backend that runs it.
        state: the plugin's own.
        plugin_op_libraries: what plugins of the kind `op_libraries` name for it; see `op_libraries`.
        memory_usage: memory that it uses, for the plugin to set: the model's statistics show it.
        server: the server that it is a model of, for calls of other models; None where there is none.
    """

    name: str
    version: int
    config: JsonObject
    directory: Path
    backend: Backend
    state: Any = None  # Any: the plugin's own
    plugin_op_libraries: Sequence[OpLibrary] = ()
    memory_usage: Sequence[MemoryUsage] = ()
    server: ServerLink | None = None

    @property
    def version_directory(self) -> Path:
        """The directory with the files of this version."""
        return self.directory / str(self.version)

    @property
    def max_batch_size(self) -> int:
        """Rows a batch may have; 0 for a model that does not batch."""
        return int(self.config.get("max_batch_size", 0))

    @property
    def is_decoupled(self) -> bool:
        """True if a request may get any number of responses."""
        return bool(self.config.get("model_transaction_policy", {}).get("decoupled", False))

    @property
    def op_libraries(self) -> list[OpLibrary]:
        """Libraries of custom operators of this model: those of plugins, then those of its configuration.

        Names in `model_operations { op_library_filename }` are relative to the model's directory. Whether the
        files are there has not been looked at.
        """
        names = self.config.get("model_operations", {}).get("op_library_filename", ())
        named_by = f"'op_library_filename' of model '{self.name}'"
        own = [OpLibrary((self.directory / name).resolve(), named_by) for name in names]
        return [*self.plugin_op_libraries, *own]

    def parameter(self, key: str, default: str = "") -> str:
        """The value of `parameters { key: … value { string_value: … } }` in the configuration."""
        value = self.config.get("parameters", {}).get(key)
        return default if value is None else str(value.get("string_value", default))


@dataclass(slots=True)
class ModelInstance:
    """One execution slot of a model.

    Attributes:
        name: such as `resnet_0_1`: group, then index inside the group.
        index: position among all instances of the model, from 0.
        kind: `KIND_CPU`, `KIND_GPU` or `KIND_MODEL`.
        device_id: the GPU's number; 0 on a CPU.
        model: the model it runs.
        state: the plugin's own.
        compute_capability: of its GPU, such as `8.6`; "" on a CPU.
        secondary_devices: kind and number of each, such as `("KIND_NVDLA", 0)`.
        lease_output: returns memory for an output of so many bytes that the server reads where it is, or None
            where none is to be had, or outputs are not copied anyway. It is an array of bytes of any content,
            for one output of one response, whose tensor begins where the array begins; once it is answered,
            neither write to it nor read it.
        host_policy: the name of the policy that it runs under, such as `cpu` or `gpu_0`.
        host_policy_settings: what `--host-policy` says for that name, as it was written.
        profiles: names of optimization profiles that its group asks for.
        memory_usage: memory that it uses beyond the model's, for the plugin to set; see `Model`.
        executor: executes its batches instead of `model_instance_execute`, for the plugin to set in
            `model_instance_initialize`; see `Executor`.
        frame_executor: the same in a worker; see `FrameExecutor`.
    """

    name: str
    index: int
    kind: str
    device_id: int
    model: Model
    state: Any = None  # Any: the plugin's own
    compute_capability: str = ""
    secondary_devices: Sequence[tuple[str, int]] = ()
    lease_output: Callable[[int], Array | None] = lambda byte_size: None
    host_policy: str = ""
    host_policy_settings: Mapping[str, str] = field(default_factory=dict)
    profiles: Sequence[str] = ()
    memory_usage: Sequence[MemoryUsage] = ()
    executor: Executor | None = None
    frame_executor: FrameExecutor | None = None
    compute_start_ns: int = 0
    compute_end_ns: int = 0

    @property
    def model_filename(self) -> str:
        """The model file in the version directory: its GPU's in `cc_model_filenames`, or the default."""
        files: Mapping[str, str] = self.model.config.get("cc_model_filenames", {})
        default: str = self.model.config.get("default_model_filename", "")
        return files.get(self.compute_capability, default) if self.kind == "KIND_GPU" else default

    def report_compute(self, start_ns: int, end_ns: int) -> None:
        """Say when the framework's own call began and ended in the running execution.

        Without it the whole execution counts as compute time. What lies before is reported as
        `compute_input`, what lies behind as `compute_output`, as in
        `TRITONBACKEND_ModelInstanceReportBatchStatistics`.

        Args:
            start_ns: `time.monotonic_ns()` when the inputs were gathered.
            end_ns: the same clock when the framework's call was done.
        """
        self.compute_start_ns = start_ns
        self.compute_end_ns = end_ns

    @staticmethod
    def now_ns() -> int:
        """The clock that `report_compute` wants."""
        return time.monotonic_ns()


@dataclass(slots=True)
class Batcher:
    """A batching strategy bound to one model version.

    Attributes:
        model: the model whose requests are batched.
        state: the strategy's own.
    """

    model: Model
    state: Any = None  # Any: the strategy's own


@dataclass(slots=True)
class Batch:
    """One attempt to form a batch, from its first request until the batch leaves or is begun anew.

    Attributes:
        batcher: the strategy's state for the model.
        state: the strategy's own, such as bytes left.
    """

    batcher: Batcher
    state: Any = None  # Any: the strategy's own


@dataclass(slots=True)
class RepoAgent:
    """One repository agent, alive while any model uses it.

    Attributes:
        name: as models write it in `model_repository_agents`.
        state: the plugin's own.
    """

    name: str
    state: Any = None  # Any: the plugin's own


class RepoAgentModel:
    """A model as a repository agent sees it.

    Attributes:
        name: the model's name.
        parameters: what the model's configuration gives to this agent.
        config: the configuration in `directory` as this agent was called first, as a plain dict; nothing is
            filled in or checked yet.
        action: the action under way, or the last one.
        state: the plugin's own.
    """

    __slots__ = ("_acquired", "_directory", "action", "config", "name", "parameters", "state")

    def __init__(
        self,
        name: str,
        directory: Path,
        parameters: Mapping[str, str],
        config: JsonObject,
        state: Any = None,  # Any: the plugin's own
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.config = config
        self.state = state
        self.action = "LOAD"
        self._directory = directory
        self._acquired: Path | None = None

    @property
    def directory(self) -> Path:
        """The directory of the model's files; the agent before this one may have put them there.

        During LOAD an agent may set this to a changed copy: the model is then loaded from there, and keeps
        its name. Setting it later raises `InvalidArg`.
        """
        return self._directory

    @directory.setter
    def directory(self, directory: str | os.PathLike[str]) -> None:
        if self.action != "LOAD":
            raise InvalidArg(
                f"location can only be updated during TRITONREPOAGENT_ACTION_LOAD, current action type is "
                f"TRITONREPOAGENT_ACTION_{self.action} (model '{self.name}')"
            )
        self._directory = Path(directory)

    def acquire_directory(self) -> Path:
        """An empty directory for a changed copy of the model, that only the server's user can read.

        It belongs to the model: the server removes it when the model is gone or could not be loaded. Asked
        again, it is the same one. The model is loaded from it only if `directory` is set to it, or to a
        directory inside.
        """
        if self._acquired is None:
            self._acquired = OF_THIS_PROCESS.make("agent-")
        return self._acquired

    def release_directory(self) -> None:
        """Remove the directory that `acquire_directory` gave, before the server does.

        Raises:
            Unavailable: none was acquired, or it was released before.
        """
        if self._acquired is None:
            raise Unavailable(f"No mutable location to be deleted (model '{self.name}')")
        acquired, self._acquired = self._acquired, None
        _remove(acquired)


def _remove(directory: Path) -> None:
    """Remove a directory, also if what was copied into it came from a place that may only be read."""
    directory.chmod(0o700)
    for parent, names, _ in os.walk(directory):
        for name in names:
            if not os.path.islink(os.path.join(parent, name)):
                os.chmod(os.path.join(parent, name), 0o700)
    shutil.rmtree(directory)


@dataclass(slots=True)
class Cache:
    """The response cache of a server, shared by all models that enable it.

    Attributes:
        settings: the values of `--cache-config NAME,key=value`.
        state: the plugin's own.
        name: the NAME.
        is_shared: entries are seen by other servers or outlive this one; for `cache_initialize` to set. The
            keys of a shared cache are the same for the same files of a model on every server; those of
            any other cache differ with every load.
    """

    settings: Mapping[str, str]
    state: Any = None  # Any: the plugin's own
    name: str = ""
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Usage of a response cache.

    Attributes:
        entry_count: entries that it holds now.
        eviction_count: entries that had to go for others, since the start.
        fraction: of its room that is used, from 0 to 1.
    """

    entry_count: int
    eviction_count: int
    fraction: float
