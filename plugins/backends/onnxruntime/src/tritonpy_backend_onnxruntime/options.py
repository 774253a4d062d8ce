"""From parameters and the optimization block of a configuration to ONNX Runtime's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tritonpy.plugin import InvalidArg, JsonObject, Model, parse_whole, usable_core_count

from tritonpy_backend_onnxruntime.framework import Framework
from tritonpy_backend_onnxruntime.values import parse_flag

ENTRY_PREFIXES = ("session.", "optimization.", "ep.", "mlas.")
"""Parameters that begin so are ONNX Runtime's session config entries and are handed on unchanged."""

ARENA_SHRINKAGE = "memory.enable_memory_arena_shrinkage"
_DEFAULT_CPU_INSTANCES = 2
_ISOLATION = "TRITONPY_ISOLATION"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of a model's sessions; equal settings make equal sessions.

    Attributes:
        intra_op_thread_count: threads one operator may use, the caller's included; 0 means all cores.
        inter_op_thread_count: threads for operators side by side, with `execution_mode` 1.
        is_parallel: `execution_mode` 1.
        graph_level: `optimization { graph { level } }`.
        uses_memory_arena: `enable_mem_arena`.
        uses_memory_pattern: `enable_mem_pattern`.
        entries: session config entries.
        run_entries: run config entries.
        op_libraries: custom operators to register, absolute.
        shares_session: the instances on one device run one session.
        uses_global_threads: no threads of its own.
    """

    intra_op_thread_count: int
    inter_op_thread_count: int
    is_parallel: bool
    graph_level: int
    uses_memory_arena: bool
    uses_memory_pattern: bool
    entries: tuple[tuple[str, str], ...]
    run_entries: tuple[tuple[str, str], ...]
    op_libraries: tuple[str, ...]
    shares_session: bool
    uses_global_threads: bool


def read_settings(model: Model, framework: Framework, core_count: int | None = None) -> SessionSettings:
    """Read a model's settings.

    The threads of all CPU instances of a model together are as many as there are cores, and they do not
    spin; docs/adr/0005 has the measurements. Parameters win over `--backend-config`, which wins over that.

    Args:
        model: its parameters, `optimization`, `instance_group` and `model_operations` are read.
        framework: settings for all models.
        core_count: cores to share out; None counts those this process may use.

    Raises:
        InvalidArg: a parameter has a value that it cannot have.
    """

    def whole(key: str, default: int) -> int:
        text = model.parameter(key)
        return parse_whole(text, f"parameter '{key}' of model '{model.name}'") if text else default

    def flag(key: str, default: bool) -> bool:
        text = model.parameter(key)
        return parse_flag(text, f"parameter '{key}' of model '{model.name}'") if text else default

    execution_mode = whole("execution_mode", 0)
    if execution_mode > 1:
        raise InvalidArg(
            f"parameter 'execution_mode' of model '{model.name}': got '{execution_mode}', "
            f"expected 0 (sequential) or 1 (parallel)"
        )
    shares_session = flag("share_session_between_instances", True)
    cores = core_count or usable_core_count()
    intra = framework.intra_op_thread_count
    if intra is None:
        has_pool_in_common = shares_session and model.parameter(_ISOLATION) != "process"
        intra = _fair_thread_count(cores, _cpu_instance_count(model.config), has_pool_in_common)
    inter = framework.inter_op_thread_count or 0
    keys = [key for key in model.config.get("parameters", {}) if key.startswith(ENTRY_PREFIXES)]
    entries = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
    entries |= {key: model.parameter(key) for key in keys}
    shrinkage = model.parameter(ARENA_SHRINKAGE)
    return SessionSettings(
        intra_op_thread_count=whole("intra_op_thread_count", intra),
        inter_op_thread_count=whole("inter_op_thread_count", inter),
        is_parallel=execution_mode == 1,
        graph_level=int(model.config.get("optimization", {}).get("graph", {}).get("level", 0)),
        uses_memory_arena=flag("enable_mem_arena", True),
        uses_memory_pattern=flag("enable_mem_pattern", True),
        entries=tuple(sorted(entries.items())),
        run_entries=((ARENA_SHRINKAGE, shrinkage),) if shrinkage else (),
        op_libraries=_op_libraries(model),
        shares_session=shares_session,
        uses_global_threads=framework.uses_global_threads,
    )


def session_options(framework: Framework, settings: SessionSettings) -> Any:  # Any: onnxruntime is untyped
    """Make ONNX Runtime's `SessionOptions`."""
    ort = framework.ort
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = {-1: levels.ORT_ENABLE_BASIC, 1: levels.ORT_ENABLE_EXTENDED}.get(
        settings.graph_level, levels.ORT_ENABLE_ALL
    )
    if settings.is_parallel:
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    if settings.uses_global_threads:
        options.use_per_session_threads = False
    else:
        options.intra_op_num_threads = settings.intra_op_thread_count
        options.inter_op_num_threads = settings.inter_op_thread_count
    options.enable_cpu_mem_arena = settings.uses_memory_arena
    options.enable_mem_pattern = settings.uses_memory_pattern
    for key, value in settings.entries:
        options.add_session_config_entry(key, value)
    for path in settings.op_libraries:
        options.register_custom_ops_library(path)
    return options


def run_options(framework: Framework, settings: SessionSettings) -> Any:  # Any: onnxruntime is untyped
    """Make the `RunOptions` of every execution."""
    options = framework.ort.RunOptions()
    options.log_severity_level = 4  # an error is answered to the client that caused it, not printed as well
    for key, value in settings.run_entries:
        options.add_run_config_entry(key, value)
    return options


def _fair_thread_count(cores: int, instances: int, has_pool_in_common: bool) -> int:
    if has_pool_in_common:
        # Each instance brings its own thread, the pool brings the rest.
        return max(1, cores - instances + 1)
    return max(1, cores // instances)


def _cpu_instance_count(config: JsonObject) -> int:
    groups = [group for group in config.get("instance_group", ()) if not group.get("passive", False)]
    if not groups:  # not yet normalised: what `backend_attributes` prefers
        return _DEFAULT_CPU_INSTANCES
    return max(1, sum(int(group.get("count", 1)) for group in groups if group.get("kind") != "KIND_GPU"))


def _op_libraries(model: Model) -> tuple[str, ...]:
    names = model.config.get("model_operations", {}).get("op_library_filename", ())
    return tuple(str(model.directory / name) for name in names)
