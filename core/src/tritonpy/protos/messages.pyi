"""The message classes as type checkers see them; `make protos` writes this file."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from google.protobuf.internal.containers import (
    MessageMap,
    RepeatedCompositeFieldContainer,
    RepeatedScalarFieldContainer,
    ScalarMap,
)
from google.protobuf.internal.enum_type_wrapper import _EnumTypeWrapper
from google.protobuf.message import Message

_Like: TypeAlias = Mapping[str, Any]  # Any: keyword arguments of the message it stands for

class _DataTypeWrapper(_EnumTypeWrapper[int]):
    TYPE_INVALID: Literal[0]
    TYPE_BOOL: Literal[1]
    TYPE_UINT8: Literal[2]
    TYPE_UINT16: Literal[3]
    TYPE_UINT32: Literal[4]
    TYPE_UINT64: Literal[5]
    TYPE_INT8: Literal[6]
    TYPE_INT16: Literal[7]
    TYPE_INT32: Literal[8]
    TYPE_INT64: Literal[9]
    TYPE_FP16: Literal[10]
    TYPE_FP32: Literal[11]
    TYPE_FP64: Literal[12]
    TYPE_STRING: Literal[13]
    TYPE_BF16: Literal[14]

DataType: _DataTypeWrapper

class ModelRateLimiter(Message):
    class Resource(Message):
        name: str
        count: int
        def __init__(
            self,
            *,
            name: str | None = ...,
            count: int | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["name", "global", "count"]) -> None: ...
    @property
    def resources(self) -> RepeatedCompositeFieldContainer[ModelRateLimiter.Resource]: ...
    priority: int
    def __init__(
        self,
        *,
        resources: Iterable[ModelRateLimiter.Resource | _Like] | None = ...,
        priority: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["resources", "priority"]) -> None: ...

class ModelInstanceGroup(Message):
    class _KindWrapper(_EnumTypeWrapper[int]):
        KIND_AUTO: Literal[0]
        KIND_GPU: Literal[1]
        KIND_CPU: Literal[2]
        KIND_MODEL: Literal[3]

    Kind: _KindWrapper

    KIND_AUTO: Literal[0]
    KIND_GPU: Literal[1]
    KIND_CPU: Literal[2]
    KIND_MODEL: Literal[3]
    class SecondaryDevice(Message):
        class _SecondaryDeviceKindWrapper(_EnumTypeWrapper[int]):
            KIND_NVDLA: Literal[0]

        SecondaryDeviceKind: _SecondaryDeviceKindWrapper

        KIND_NVDLA: Literal[0]
        kind: int
        device_id: int
        def __init__(
            self,
            *,
            kind: int | str | None = ...,
            device_id: int | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["kind", "device_id"]) -> None: ...
    name: str
    kind: int
    count: int
    @property
    def rate_limiter(self) -> ModelRateLimiter: ...
    @property
    def gpus(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def secondary_devices(self) -> RepeatedCompositeFieldContainer[ModelInstanceGroup.SecondaryDevice]: ...
    @property
    def profile(self) -> RepeatedScalarFieldContainer[str]: ...
    passive: bool
    host_policy: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        kind: int | str | None = ...,
        count: int | None = ...,
        rate_limiter: ModelRateLimiter | _Like | None = ...,
        gpus: Iterable[int] | None = ...,
        secondary_devices: Iterable[ModelInstanceGroup.SecondaryDevice | _Like] | None = ...,
        profile: Iterable[str] | None = ...,
        passive: bool | None = ...,
        host_policy: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["rate_limiter"]) -> bool: ...
    def ClearField(self, field_name: Literal["name", "kind", "count", "rate_limiter", "gpus", "secondary_devices", "profile", "passive", "host_policy"]) -> None: ...

class ModelTensorReshape(Message):
    @property
    def shape(self) -> RepeatedScalarFieldContainer[int]: ...
    def __init__(
        self,
        *,
        shape: Iterable[int] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["shape"]) -> None: ...

class ModelInput(Message):
    class _FormatWrapper(_EnumTypeWrapper[int]):
        FORMAT_NONE: Literal[0]
        FORMAT_NHWC: Literal[1]
        FORMAT_NCHW: Literal[2]

    Format: _FormatWrapper

    FORMAT_NONE: Literal[0]
    FORMAT_NHWC: Literal[1]
    FORMAT_NCHW: Literal[2]
    name: str
    data_type: int
    format: int
    @property
    def dims(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def reshape(self) -> ModelTensorReshape: ...
    is_shape_tensor: bool
    allow_ragged_batch: bool
    optional: bool
    is_non_linear_format_io: bool
    def __init__(
        self,
        *,
        name: str | None = ...,
        data_type: int | str | None = ...,
        format: int | str | None = ...,
        dims: Iterable[int] | None = ...,
        reshape: ModelTensorReshape | _Like | None = ...,
        is_shape_tensor: bool | None = ...,
        allow_ragged_batch: bool | None = ...,
        optional: bool | None = ...,
        is_non_linear_format_io: bool | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["reshape"]) -> bool: ...
    def ClearField(self, field_name: Literal["name", "data_type", "format", "dims", "reshape", "is_shape_tensor", "allow_ragged_batch", "optional", "is_non_linear_format_io"]) -> None: ...

class ModelOutput(Message):
    name: str
    data_type: int
    @property
    def dims(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def reshape(self) -> ModelTensorReshape: ...
    label_filename: str
    is_shape_tensor: bool
    is_non_linear_format_io: bool
    def __init__(
        self,
        *,
        name: str | None = ...,
        data_type: int | str | None = ...,
        dims: Iterable[int] | None = ...,
        reshape: ModelTensorReshape | _Like | None = ...,
        label_filename: str | None = ...,
        is_shape_tensor: bool | None = ...,
        is_non_linear_format_io: bool | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["reshape"]) -> bool: ...
    def ClearField(self, field_name: Literal["name", "data_type", "dims", "reshape", "label_filename", "is_shape_tensor", "is_non_linear_format_io"]) -> None: ...

class BatchInput(Message):
    class _KindWrapper(_EnumTypeWrapper[int]):
        BATCH_ELEMENT_COUNT: Literal[0]
        BATCH_ACCUMULATED_ELEMENT_COUNT: Literal[1]
        BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO: Literal[2]
        BATCH_MAX_ELEMENT_COUNT_AS_SHAPE: Literal[3]
        BATCH_ITEM_SHAPE: Literal[4]
        BATCH_ITEM_SHAPE_FLATTEN: Literal[5]

    Kind: _KindWrapper

    BATCH_ELEMENT_COUNT: Literal[0]
    BATCH_ACCUMULATED_ELEMENT_COUNT: Literal[1]
    BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO: Literal[2]
    BATCH_MAX_ELEMENT_COUNT_AS_SHAPE: Literal[3]
    BATCH_ITEM_SHAPE: Literal[4]
    BATCH_ITEM_SHAPE_FLATTEN: Literal[5]
    kind: int
    @property
    def target_name(self) -> RepeatedScalarFieldContainer[str]: ...
    data_type: int
    @property
    def source_input(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        kind: int | str | None = ...,
        target_name: Iterable[str] | None = ...,
        data_type: int | str | None = ...,
        source_input: Iterable[str] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["kind", "target_name", "data_type", "source_input"]) -> None: ...

class BatchOutput(Message):
    class _KindWrapper(_EnumTypeWrapper[int]):
        BATCH_SCATTER_WITH_INPUT_SHAPE: Literal[0]

    Kind: _KindWrapper

    BATCH_SCATTER_WITH_INPUT_SHAPE: Literal[0]
    @property
    def target_name(self) -> RepeatedScalarFieldContainer[str]: ...
    kind: int
    @property
    def source_input(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        target_name: Iterable[str] | None = ...,
        kind: int | str | None = ...,
        source_input: Iterable[str] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["target_name", "kind", "source_input"]) -> None: ...

class ModelVersionPolicy(Message):
    class Latest(Message):
        num_versions: int
        def __init__(
            self,
            *,
            num_versions: int | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["num_versions"]) -> None: ...
    class All(Message):
        def __init__(self) -> None: ...
    class Specific(Message):
        @property
        def versions(self) -> RepeatedScalarFieldContainer[int]: ...
        def __init__(
            self,
            *,
            versions: Iterable[int] | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["versions"]) -> None: ...
    @property
    def latest(self) -> ModelVersionPolicy.Latest: ...
    @property
    def all(self) -> ModelVersionPolicy.All: ...
    @property
    def specific(self) -> ModelVersionPolicy.Specific: ...
    def __init__(
        self,
        *,
        latest: ModelVersionPolicy.Latest | _Like | None = ...,
        all: ModelVersionPolicy.All | _Like | None = ...,
        specific: ModelVersionPolicy.Specific | _Like | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["latest", "all", "specific", "policy_choice"]) -> bool: ...
    def ClearField(self, field_name: Literal["latest", "all", "specific", "policy_choice"]) -> None: ...
    def WhichOneof(self, oneof_group: Literal["policy_choice"]) -> Literal["latest", "all", "specific"] | None: ...

class ModelOptimizationPolicy(Message):
    class _ModelPriorityWrapper(_EnumTypeWrapper[int]):
        PRIORITY_DEFAULT: Literal[0]
        PRIORITY_MAX: Literal[1]
        PRIORITY_MIN: Literal[2]

    ModelPriority: _ModelPriorityWrapper

    PRIORITY_DEFAULT: Literal[0]
    PRIORITY_MAX: Literal[1]
    PRIORITY_MIN: Literal[2]
    class Graph(Message):
        level: int
        def __init__(
            self,
            *,
            level: int | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["level"]) -> None: ...
    class Cuda(Message):
        class GraphSpec(Message):
            class Shape(Message):
                @property
                def dim(self) -> RepeatedScalarFieldContainer[int]: ...
                def __init__(
                    self,
                    *,
                    dim: Iterable[int] | None = ...,
                ) -> None: ...
                def ClearField(self, field_name: Literal["dim"]) -> None: ...
            class LowerBound(Message):
                batch_size: int
                @property
                def input(self) -> MessageMap[str, ModelOptimizationPolicy.Cuda.GraphSpec.Shape]: ...
                def __init__(
                    self,
                    *,
                    batch_size: int | None = ...,
                    input: Mapping[str, ModelOptimizationPolicy.Cuda.GraphSpec.Shape] | None = ...,
                ) -> None: ...
                def ClearField(self, field_name: Literal["batch_size", "input"]) -> None: ...
            batch_size: int
            @property
            def input(self) -> MessageMap[str, ModelOptimizationPolicy.Cuda.GraphSpec.Shape]: ...
            @property
            def graph_lower_bound(self) -> ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound: ...
            def __init__(
                self,
                *,
                batch_size: int | None = ...,
                input: Mapping[str, ModelOptimizationPolicy.Cuda.GraphSpec.Shape] | None = ...,
                graph_lower_bound: ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound | _Like | None = ...,
            ) -> None: ...
            def HasField(self, field_name: Literal["graph_lower_bound"]) -> bool: ...
            def ClearField(self, field_name: Literal["batch_size", "input", "graph_lower_bound"]) -> None: ...
        graphs: bool
        busy_wait_events: bool
        @property
        def graph_spec(self) -> RepeatedCompositeFieldContainer[ModelOptimizationPolicy.Cuda.GraphSpec]: ...
        output_copy_stream: bool
        def __init__(
            self,
            *,
            graphs: bool | None = ...,
            busy_wait_events: bool | None = ...,
            graph_spec: Iterable[ModelOptimizationPolicy.Cuda.GraphSpec | _Like] | None = ...,
            output_copy_stream: bool | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["graphs", "busy_wait_events", "graph_spec", "output_copy_stream"]) -> None: ...
    class ExecutionAccelerators(Message):
        class Accelerator(Message):
            name: str
            @property
            def parameters(self) -> ScalarMap[str, str]: ...
            def __init__(
                self,
                *,
                name: str | None = ...,
                parameters: Mapping[str, str] | None = ...,
            ) -> None: ...
            def ClearField(self, field_name: Literal["name", "parameters"]) -> None: ...
        @property
        def gpu_execution_accelerator(self) -> RepeatedCompositeFieldContainer[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator]: ...
        @property
        def cpu_execution_accelerator(self) -> RepeatedCompositeFieldContainer[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator]: ...
        def __init__(
            self,
            *,
            gpu_execution_accelerator: Iterable[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator | _Like] | None = ...,
            cpu_execution_accelerator: Iterable[ModelOptimizationPolicy.ExecutionAccelerators.Accelerator | _Like] | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["gpu_execution_accelerator", "cpu_execution_accelerator"]) -> None: ...
    class PinnedMemoryBuffer(Message):
        enable: bool
        def __init__(
            self,
            *,
            enable: bool | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["enable"]) -> None: ...
    @property
    def graph(self) -> ModelOptimizationPolicy.Graph: ...
    priority: int
    @property
    def cuda(self) -> ModelOptimizationPolicy.Cuda: ...
    @property
    def execution_accelerators(self) -> ModelOptimizationPolicy.ExecutionAccelerators: ...
    @property
    def input_pinned_memory(self) -> ModelOptimizationPolicy.PinnedMemoryBuffer: ...
    @property
    def output_pinned_memory(self) -> ModelOptimizationPolicy.PinnedMemoryBuffer: ...
    gather_kernel_buffer_threshold: int
    eager_batching: bool
    def __init__(
        self,
        *,
        graph: ModelOptimizationPolicy.Graph | _Like | None = ...,
        priority: int | str | None = ...,
        cuda: ModelOptimizationPolicy.Cuda | _Like | None = ...,
        execution_accelerators: ModelOptimizationPolicy.ExecutionAccelerators | _Like | None = ...,
        input_pinned_memory: ModelOptimizationPolicy.PinnedMemoryBuffer | _Like | None = ...,
        output_pinned_memory: ModelOptimizationPolicy.PinnedMemoryBuffer | _Like | None = ...,
        gather_kernel_buffer_threshold: int | None = ...,
        eager_batching: bool | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["graph", "cuda", "execution_accelerators", "input_pinned_memory", "output_pinned_memory"]) -> bool: ...
    def ClearField(self, field_name: Literal["graph", "priority", "cuda", "execution_accelerators", "input_pinned_memory", "output_pinned_memory", "gather_kernel_buffer_threshold", "eager_batching"]) -> None: ...

class ModelQueuePolicy(Message):
    class _TimeoutActionWrapper(_EnumTypeWrapper[int]):
        REJECT: Literal[0]
        DELAY: Literal[1]

    TimeoutAction: _TimeoutActionWrapper

    REJECT: Literal[0]
    DELAY: Literal[1]
    timeout_action: int
    default_timeout_microseconds: int
    allow_timeout_override: bool
    max_queue_size: int
    def __init__(
        self,
        *,
        timeout_action: int | str | None = ...,
        default_timeout_microseconds: int | None = ...,
        allow_timeout_override: bool | None = ...,
        max_queue_size: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["timeout_action", "default_timeout_microseconds", "allow_timeout_override", "max_queue_size"]) -> None: ...

class ModelDynamicBatching(Message):
    @property
    def preferred_batch_size(self) -> RepeatedScalarFieldContainer[int]: ...
    max_queue_delay_microseconds: int
    preserve_ordering: bool
    priority_levels: int
    default_priority_level: int
    @property
    def default_queue_policy(self) -> ModelQueuePolicy: ...
    @property
    def priority_queue_policy(self) -> MessageMap[int, ModelQueuePolicy]: ...
    def __init__(
        self,
        *,
        preferred_batch_size: Iterable[int] | None = ...,
        max_queue_delay_microseconds: int | None = ...,
        preserve_ordering: bool | None = ...,
        priority_levels: int | None = ...,
        default_priority_level: int | None = ...,
        default_queue_policy: ModelQueuePolicy | _Like | None = ...,
        priority_queue_policy: Mapping[int, ModelQueuePolicy] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["default_queue_policy"]) -> bool: ...
    def ClearField(self, field_name: Literal["preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering", "priority_levels", "default_priority_level", "default_queue_policy", "priority_queue_policy"]) -> None: ...

class ModelSequenceBatching(Message):
    class Control(Message):
        class _KindWrapper(_EnumTypeWrapper[int]):
            CONTROL_SEQUENCE_START: Literal[0]
            CONTROL_SEQUENCE_READY: Literal[1]
            CONTROL_SEQUENCE_END: Literal[2]
            CONTROL_SEQUENCE_CORRID: Literal[3]

        Kind: _KindWrapper

        CONTROL_SEQUENCE_START: Literal[0]
        CONTROL_SEQUENCE_READY: Literal[1]
        CONTROL_SEQUENCE_END: Literal[2]
        CONTROL_SEQUENCE_CORRID: Literal[3]
        kind: int
        @property
        def int32_false_true(self) -> RepeatedScalarFieldContainer[int]: ...
        @property
        def fp32_false_true(self) -> RepeatedScalarFieldContainer[float]: ...
        @property
        def bool_false_true(self) -> RepeatedScalarFieldContainer[bool]: ...
        data_type: int
        def __init__(
            self,
            *,
            kind: int | str | None = ...,
            int32_false_true: Iterable[int] | None = ...,
            fp32_false_true: Iterable[float] | None = ...,
            bool_false_true: Iterable[bool] | None = ...,
            data_type: int | str | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["kind", "int32_false_true", "fp32_false_true", "bool_false_true", "data_type"]) -> None: ...
    class ControlInput(Message):
        name: str
        @property
        def control(self) -> RepeatedCompositeFieldContainer[ModelSequenceBatching.Control]: ...
        def __init__(
            self,
            *,
            name: str | None = ...,
            control: Iterable[ModelSequenceBatching.Control | _Like] | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["name", "control"]) -> None: ...
    class InitialState(Message):
        data_type: int
        @property
        def dims(self) -> RepeatedScalarFieldContainer[int]: ...
        name: str
        zero_data: bool
        data_file: str
        def __init__(
            self,
            *,
            data_type: int | str | None = ...,
            dims: Iterable[int] | None = ...,
            name: str | None = ...,
            zero_data: bool | None = ...,
            data_file: str | None = ...,
        ) -> None: ...
        def HasField(self, field_name: Literal["zero_data", "data_file", "state_data"]) -> bool: ...
        def ClearField(self, field_name: Literal["data_type", "dims", "name", "zero_data", "data_file", "state_data"]) -> None: ...
        def WhichOneof(self, oneof_group: Literal["state_data"]) -> Literal["zero_data", "data_file"] | None: ...
    class State(Message):
        input_name: str
        output_name: str
        data_type: int
        @property
        def dims(self) -> RepeatedScalarFieldContainer[int]: ...
        @property
        def initial_state(self) -> RepeatedCompositeFieldContainer[ModelSequenceBatching.InitialState]: ...
        use_same_buffer_for_input_output: bool
        use_growable_memory: bool
        def __init__(
            self,
            *,
            input_name: str | None = ...,
            output_name: str | None = ...,
            data_type: int | str | None = ...,
            dims: Iterable[int] | None = ...,
            initial_state: Iterable[ModelSequenceBatching.InitialState | _Like] | None = ...,
            use_same_buffer_for_input_output: bool | None = ...,
            use_growable_memory: bool | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["input_name", "output_name", "data_type", "dims", "initial_state", "use_same_buffer_for_input_output", "use_growable_memory"]) -> None: ...
    class StrategyDirect(Message):
        max_queue_delay_microseconds: int
        minimum_slot_utilization: float
        def __init__(
            self,
            *,
            max_queue_delay_microseconds: int | None = ...,
            minimum_slot_utilization: float | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["max_queue_delay_microseconds", "minimum_slot_utilization"]) -> None: ...
    class StrategyOldest(Message):
        max_candidate_sequences: int
        @property
        def preferred_batch_size(self) -> RepeatedScalarFieldContainer[int]: ...
        max_queue_delay_microseconds: int
        preserve_ordering: bool
        def __init__(
            self,
            *,
            max_candidate_sequences: int | None = ...,
            preferred_batch_size: Iterable[int] | None = ...,
            max_queue_delay_microseconds: int | None = ...,
            preserve_ordering: bool | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["max_candidate_sequences", "preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering"]) -> None: ...
    @property
    def direct(self) -> ModelSequenceBatching.StrategyDirect: ...
    @property
    def oldest(self) -> ModelSequenceBatching.StrategyOldest: ...
    max_sequence_idle_microseconds: int
    @property
    def control_input(self) -> RepeatedCompositeFieldContainer[ModelSequenceBatching.ControlInput]: ...
    @property
    def state(self) -> RepeatedCompositeFieldContainer[ModelSequenceBatching.State]: ...
    iterative_sequence: bool
    def __init__(
        self,
        *,
        direct: ModelSequenceBatching.StrategyDirect | _Like | None = ...,
        oldest: ModelSequenceBatching.StrategyOldest | _Like | None = ...,
        max_sequence_idle_microseconds: int | None = ...,
        control_input: Iterable[ModelSequenceBatching.ControlInput | _Like] | None = ...,
        state: Iterable[ModelSequenceBatching.State | _Like] | None = ...,
        iterative_sequence: bool | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["direct", "oldest", "strategy_choice"]) -> bool: ...
    def ClearField(self, field_name: Literal["direct", "oldest", "max_sequence_idle_microseconds", "control_input", "state", "iterative_sequence", "strategy_choice"]) -> None: ...
    def WhichOneof(self, oneof_group: Literal["strategy_choice"]) -> Literal["direct", "oldest"] | None: ...

class ModelEnsembling(Message):
    class Step(Message):
        model_name: str
        model_version: int
        @property
        def input_map(self) -> ScalarMap[str, str]: ...
        @property
        def output_map(self) -> ScalarMap[str, str]: ...
        model_namespace: str
        def __init__(
            self,
            *,
            model_name: str | None = ...,
            model_version: int | None = ...,
            input_map: Mapping[str, str] | None = ...,
            output_map: Mapping[str, str] | None = ...,
            model_namespace: str | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["model_name", "model_version", "input_map", "output_map", "model_namespace"]) -> None: ...
    @property
    def step(self) -> RepeatedCompositeFieldContainer[ModelEnsembling.Step]: ...
    max_inflight_requests: int
    def __init__(
        self,
        *,
        step: Iterable[ModelEnsembling.Step | _Like] | None = ...,
        max_inflight_requests: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["step", "max_inflight_requests"]) -> None: ...

class ModelParameter(Message):
    string_value: str
    def __init__(
        self,
        *,
        string_value: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["string_value"]) -> None: ...

class ModelWarmup(Message):
    class Input(Message):
        data_type: int
        @property
        def dims(self) -> RepeatedScalarFieldContainer[int]: ...
        zero_data: bool
        random_data: bool
        input_data_file: str
        def __init__(
            self,
            *,
            data_type: int | str | None = ...,
            dims: Iterable[int] | None = ...,
            zero_data: bool | None = ...,
            random_data: bool | None = ...,
            input_data_file: str | None = ...,
        ) -> None: ...
        def HasField(self, field_name: Literal["zero_data", "random_data", "input_data_file", "input_data_type"]) -> bool: ...
        def ClearField(self, field_name: Literal["data_type", "dims", "zero_data", "random_data", "input_data_file", "input_data_type"]) -> None: ...
        def WhichOneof(self, oneof_group: Literal["input_data_type"]) -> Literal["zero_data", "random_data", "input_data_file"] | None: ...
    name: str
    batch_size: int
    @property
    def inputs(self) -> MessageMap[str, ModelWarmup.Input]: ...
    count: int
    def __init__(
        self,
        *,
        name: str | None = ...,
        batch_size: int | None = ...,
        inputs: Mapping[str, ModelWarmup.Input] | None = ...,
        count: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "batch_size", "inputs", "count"]) -> None: ...

class ModelOperations(Message):
    @property
    def op_library_filename(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        op_library_filename: Iterable[str] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["op_library_filename"]) -> None: ...

class ModelTransactionPolicy(Message):
    decoupled: bool
    def __init__(
        self,
        *,
        decoupled: bool | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["decoupled"]) -> None: ...

class ModelRepositoryAgents(Message):
    class Agent(Message):
        name: str
        @property
        def parameters(self) -> ScalarMap[str, str]: ...
        def __init__(
            self,
            *,
            name: str | None = ...,
            parameters: Mapping[str, str] | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["name", "parameters"]) -> None: ...
    @property
    def agents(self) -> RepeatedCompositeFieldContainer[ModelRepositoryAgents.Agent]: ...
    def __init__(
        self,
        *,
        agents: Iterable[ModelRepositoryAgents.Agent | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["agents"]) -> None: ...

class ModelResponseCache(Message):
    enable: bool
    def __init__(
        self,
        *,
        enable: bool | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["enable"]) -> None: ...

class ModelMetrics(Message):
    class MetricControl(Message):
        class MetricIdentifier(Message):
            family: str
            def __init__(
                self,
                *,
                family: str | None = ...,
            ) -> None: ...
            def ClearField(self, field_name: Literal["family"]) -> None: ...
        class HistogramOptions(Message):
            @property
            def buckets(self) -> RepeatedScalarFieldContainer[float]: ...
            def __init__(
                self,
                *,
                buckets: Iterable[float] | None = ...,
            ) -> None: ...
            def ClearField(self, field_name: Literal["buckets"]) -> None: ...
        @property
        def metric_identifier(self) -> ModelMetrics.MetricControl.MetricIdentifier: ...
        @property
        def histogram_options(self) -> ModelMetrics.MetricControl.HistogramOptions: ...
        def __init__(
            self,
            *,
            metric_identifier: ModelMetrics.MetricControl.MetricIdentifier | _Like | None = ...,
            histogram_options: ModelMetrics.MetricControl.HistogramOptions | _Like | None = ...,
        ) -> None: ...
        def HasField(self, field_name: Literal["metric_identifier", "histogram_options", "metric_options"]) -> bool: ...
        def ClearField(self, field_name: Literal["metric_identifier", "histogram_options", "metric_options"]) -> None: ...
        def WhichOneof(self, oneof_group: Literal["metric_options"]) -> Literal["histogram_options"] | None: ...
    @property
    def metric_control(self) -> RepeatedCompositeFieldContainer[ModelMetrics.MetricControl]: ...
    def __init__(
        self,
        *,
        metric_control: Iterable[ModelMetrics.MetricControl | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["metric_control"]) -> None: ...

class ModelConfig(Message):
    name: str
    platform: str
    backend: str
    runtime: str
    @property
    def version_policy(self) -> ModelVersionPolicy: ...
    max_batch_size: int
    @property
    def input(self) -> RepeatedCompositeFieldContainer[ModelInput]: ...
    @property
    def output(self) -> RepeatedCompositeFieldContainer[ModelOutput]: ...
    @property
    def batch_input(self) -> RepeatedCompositeFieldContainer[BatchInput]: ...
    @property
    def batch_output(self) -> RepeatedCompositeFieldContainer[BatchOutput]: ...
    @property
    def optimization(self) -> ModelOptimizationPolicy: ...
    @property
    def dynamic_batching(self) -> ModelDynamicBatching: ...
    @property
    def sequence_batching(self) -> ModelSequenceBatching: ...
    @property
    def ensemble_scheduling(self) -> ModelEnsembling: ...
    @property
    def instance_group(self) -> RepeatedCompositeFieldContainer[ModelInstanceGroup]: ...
    default_model_filename: str
    @property
    def cc_model_filenames(self) -> ScalarMap[str, str]: ...
    @property
    def metric_tags(self) -> ScalarMap[str, str]: ...
    @property
    def parameters(self) -> MessageMap[str, ModelParameter]: ...
    @property
    def model_warmup(self) -> RepeatedCompositeFieldContainer[ModelWarmup]: ...
    @property
    def model_operations(self) -> ModelOperations: ...
    @property
    def model_transaction_policy(self) -> ModelTransactionPolicy: ...
    @property
    def model_repository_agents(self) -> ModelRepositoryAgents: ...
    @property
    def response_cache(self) -> ModelResponseCache: ...
    @property
    def model_metrics(self) -> ModelMetrics: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        platform: str | None = ...,
        backend: str | None = ...,
        runtime: str | None = ...,
        version_policy: ModelVersionPolicy | _Like | None = ...,
        max_batch_size: int | None = ...,
        input: Iterable[ModelInput | _Like] | None = ...,
        output: Iterable[ModelOutput | _Like] | None = ...,
        batch_input: Iterable[BatchInput | _Like] | None = ...,
        batch_output: Iterable[BatchOutput | _Like] | None = ...,
        optimization: ModelOptimizationPolicy | _Like | None = ...,
        dynamic_batching: ModelDynamicBatching | _Like | None = ...,
        sequence_batching: ModelSequenceBatching | _Like | None = ...,
        ensemble_scheduling: ModelEnsembling | _Like | None = ...,
        instance_group: Iterable[ModelInstanceGroup | _Like] | None = ...,
        default_model_filename: str | None = ...,
        cc_model_filenames: Mapping[str, str] | None = ...,
        metric_tags: Mapping[str, str] | None = ...,
        parameters: Mapping[str, ModelParameter] | None = ...,
        model_warmup: Iterable[ModelWarmup | _Like] | None = ...,
        model_operations: ModelOperations | _Like | None = ...,
        model_transaction_policy: ModelTransactionPolicy | _Like | None = ...,
        model_repository_agents: ModelRepositoryAgents | _Like | None = ...,
        response_cache: ModelResponseCache | _Like | None = ...,
        model_metrics: ModelMetrics | _Like | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["version_policy", "optimization", "dynamic_batching", "sequence_batching", "ensemble_scheduling", "model_operations", "model_transaction_policy", "model_repository_agents", "response_cache", "model_metrics", "scheduling_choice"]) -> bool: ...
    def ClearField(self, field_name: Literal["name", "platform", "backend", "runtime", "version_policy", "max_batch_size", "input", "output", "batch_input", "batch_output", "optimization", "dynamic_batching", "sequence_batching", "ensemble_scheduling", "instance_group", "default_model_filename", "cc_model_filenames", "metric_tags", "parameters", "model_warmup", "model_operations", "model_transaction_policy", "model_repository_agents", "response_cache", "model_metrics", "scheduling_choice"]) -> None: ...
    def WhichOneof(self, oneof_group: Literal["scheduling_choice"]) -> Literal["dynamic_batching", "sequence_batching", "ensemble_scheduling"] | None: ...

class ServerLiveRequest(Message):
    def __init__(self) -> None: ...

class ServerLiveResponse(Message):
    live: bool
    def __init__(
        self,
        *,
        live: bool | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["live"]) -> None: ...

class ServerReadyRequest(Message):
    def __init__(self) -> None: ...

class ServerReadyResponse(Message):
    ready: bool
    def __init__(
        self,
        *,
        ready: bool | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["ready"]) -> None: ...

class ModelReadyRequest(Message):
    name: str
    version: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        version: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "version"]) -> None: ...

class ModelReadyResponse(Message):
    ready: bool
    def __init__(
        self,
        *,
        ready: bool | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["ready"]) -> None: ...

class ServerMetadataRequest(Message):
    def __init__(self) -> None: ...

class ServerMetadataResponse(Message):
    name: str
    version: str
    @property
    def extensions(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        version: str | None = ...,
        extensions: Iterable[str] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "version", "extensions"]) -> None: ...

class ModelMetadataRequest(Message):
    name: str
    version: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        version: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "version"]) -> None: ...

class ModelMetadataResponse(Message):
    class TensorMetadata(Message):
        name: str
        datatype: str
        @property
        def shape(self) -> RepeatedScalarFieldContainer[int]: ...
        def __init__(
            self,
            *,
            name: str | None = ...,
            datatype: str | None = ...,
            shape: Iterable[int] | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["name", "datatype", "shape"]) -> None: ...
    name: str
    @property
    def versions(self) -> RepeatedScalarFieldContainer[str]: ...
    platform: str
    @property
    def inputs(self) -> RepeatedCompositeFieldContainer[ModelMetadataResponse.TensorMetadata]: ...
    @property
    def outputs(self) -> RepeatedCompositeFieldContainer[ModelMetadataResponse.TensorMetadata]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        versions: Iterable[str] | None = ...,
        platform: str | None = ...,
        inputs: Iterable[ModelMetadataResponse.TensorMetadata | _Like] | None = ...,
        outputs: Iterable[ModelMetadataResponse.TensorMetadata | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "versions", "platform", "inputs", "outputs"]) -> None: ...

class InferParameter(Message):
    bool_param: bool
    int64_param: int
    string_param: str
    double_param: float
    uint64_param: int
    def __init__(
        self,
        *,
        bool_param: bool | None = ...,
        int64_param: int | None = ...,
        string_param: str | None = ...,
        double_param: float | None = ...,
        uint64_param: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["bool_param", "int64_param", "string_param", "double_param", "uint64_param", "parameter_choice"]) -> bool: ...
    def ClearField(self, field_name: Literal["bool_param", "int64_param", "string_param", "double_param", "uint64_param", "parameter_choice"]) -> None: ...
    def WhichOneof(self, oneof_group: Literal["parameter_choice"]) -> Literal["bool_param", "int64_param", "string_param", "double_param", "uint64_param"] | None: ...

class InferTensorContents(Message):
    @property
    def bool_contents(self) -> RepeatedScalarFieldContainer[bool]: ...
    @property
    def int_contents(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def int64_contents(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def uint_contents(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def uint64_contents(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def fp32_contents(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def fp64_contents(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def bytes_contents(self) -> RepeatedScalarFieldContainer[bytes]: ...
    def __init__(
        self,
        *,
        bool_contents: Iterable[bool] | None = ...,
        int_contents: Iterable[int] | None = ...,
        int64_contents: Iterable[int] | None = ...,
        uint_contents: Iterable[int] | None = ...,
        uint64_contents: Iterable[int] | None = ...,
        fp32_contents: Iterable[float] | None = ...,
        fp64_contents: Iterable[float] | None = ...,
        bytes_contents: Iterable[bytes] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["bool_contents", "int_contents", "int64_contents", "uint_contents", "uint64_contents", "fp32_contents", "fp64_contents", "bytes_contents"]) -> None: ...

class ModelInferRequest(Message):
    class InferInputTensor(Message):
        name: str
        datatype: str
        @property
        def shape(self) -> RepeatedScalarFieldContainer[int]: ...
        @property
        def parameters(self) -> MessageMap[str, InferParameter]: ...
        @property
        def contents(self) -> InferTensorContents: ...
        def __init__(
            self,
            *,
            name: str | None = ...,
            datatype: str | None = ...,
            shape: Iterable[int] | None = ...,
            parameters: Mapping[str, InferParameter] | None = ...,
            contents: InferTensorContents | _Like | None = ...,
        ) -> None: ...
        def HasField(self, field_name: Literal["contents"]) -> bool: ...
        def ClearField(self, field_name: Literal["name", "datatype", "shape", "parameters", "contents"]) -> None: ...
    class InferRequestedOutputTensor(Message):
        name: str
        @property
        def parameters(self) -> MessageMap[str, InferParameter]: ...
        def __init__(
            self,
            *,
            name: str | None = ...,
            parameters: Mapping[str, InferParameter] | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["name", "parameters"]) -> None: ...
    model_name: str
    model_version: str
    id: str
    @property
    def parameters(self) -> MessageMap[str, InferParameter]: ...
    @property
    def inputs(self) -> RepeatedCompositeFieldContainer[ModelInferRequest.InferInputTensor]: ...
    @property
    def outputs(self) -> RepeatedCompositeFieldContainer[ModelInferRequest.InferRequestedOutputTensor]: ...
    @property
    def raw_input_contents(self) -> RepeatedScalarFieldContainer[bytes]: ...
    def __init__(
        self,
        *,
        model_name: str | None = ...,
        model_version: str | None = ...,
        id: str | None = ...,
        parameters: Mapping[str, InferParameter] | None = ...,
        inputs: Iterable[ModelInferRequest.InferInputTensor | _Like] | None = ...,
        outputs: Iterable[ModelInferRequest.InferRequestedOutputTensor | _Like] | None = ...,
        raw_input_contents: Iterable[bytes] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["model_name", "model_version", "id", "parameters", "inputs", "outputs", "raw_input_contents"]) -> None: ...

class ModelInferResponse(Message):
    class InferOutputTensor(Message):
        name: str
        datatype: str
        @property
        def shape(self) -> RepeatedScalarFieldContainer[int]: ...
        @property
        def parameters(self) -> MessageMap[str, InferParameter]: ...
        @property
        def contents(self) -> InferTensorContents: ...
        def __init__(
            self,
            *,
            name: str | None = ...,
            datatype: str | None = ...,
            shape: Iterable[int] | None = ...,
            parameters: Mapping[str, InferParameter] | None = ...,
            contents: InferTensorContents | _Like | None = ...,
        ) -> None: ...
        def HasField(self, field_name: Literal["contents"]) -> bool: ...
        def ClearField(self, field_name: Literal["name", "datatype", "shape", "parameters", "contents"]) -> None: ...
    model_name: str
    model_version: str
    id: str
    @property
    def parameters(self) -> MessageMap[str, InferParameter]: ...
    @property
    def outputs(self) -> RepeatedCompositeFieldContainer[ModelInferResponse.InferOutputTensor]: ...
    @property
    def raw_output_contents(self) -> RepeatedScalarFieldContainer[bytes]: ...
    def __init__(
        self,
        *,
        model_name: str | None = ...,
        model_version: str | None = ...,
        id: str | None = ...,
        parameters: Mapping[str, InferParameter] | None = ...,
        outputs: Iterable[ModelInferResponse.InferOutputTensor | _Like] | None = ...,
        raw_output_contents: Iterable[bytes] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["model_name", "model_version", "id", "parameters", "outputs", "raw_output_contents"]) -> None: ...

class ModelStreamInferResponse(Message):
    error_message: str
    @property
    def infer_response(self) -> ModelInferResponse: ...
    def __init__(
        self,
        *,
        error_message: str | None = ...,
        infer_response: ModelInferResponse | _Like | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["infer_response"]) -> bool: ...
    def ClearField(self, field_name: Literal["error_message", "infer_response"]) -> None: ...

class ModelConfigRequest(Message):
    name: str
    version: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        version: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "version"]) -> None: ...

class ModelConfigResponse(Message):
    @property
    def config(self) -> ModelConfig: ...
    def __init__(
        self,
        *,
        config: ModelConfig | _Like | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["config"]) -> bool: ...
    def ClearField(self, field_name: Literal["config"]) -> None: ...

class ModelStatisticsRequest(Message):
    name: str
    version: str
    def __init__(
        self,
        *,
        name: str | None = ...,
        version: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "version"]) -> None: ...

class StatisticDuration(Message):
    count: int
    ns: int
    def __init__(
        self,
        *,
        count: int | None = ...,
        ns: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["count", "ns"]) -> None: ...

class InferStatistics(Message):
    @property
    def success(self) -> StatisticDuration: ...
    @property
    def fail(self) -> StatisticDuration: ...
    @property
    def queue(self) -> StatisticDuration: ...
    @property
    def compute_input(self) -> StatisticDuration: ...
    @property
    def compute_infer(self) -> StatisticDuration: ...
    @property
    def compute_output(self) -> StatisticDuration: ...
    @property
    def cache_hit(self) -> StatisticDuration: ...
    @property
    def cache_miss(self) -> StatisticDuration: ...
    def __init__(
        self,
        *,
        success: StatisticDuration | _Like | None = ...,
        fail: StatisticDuration | _Like | None = ...,
        queue: StatisticDuration | _Like | None = ...,
        compute_input: StatisticDuration | _Like | None = ...,
        compute_infer: StatisticDuration | _Like | None = ...,
        compute_output: StatisticDuration | _Like | None = ...,
        cache_hit: StatisticDuration | _Like | None = ...,
        cache_miss: StatisticDuration | _Like | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"]) -> bool: ...
    def ClearField(self, field_name: Literal["success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"]) -> None: ...

class InferResponseStatistics(Message):
    @property
    def compute_infer(self) -> StatisticDuration: ...
    @property
    def compute_output(self) -> StatisticDuration: ...
    @property
    def success(self) -> StatisticDuration: ...
    @property
    def fail(self) -> StatisticDuration: ...
    @property
    def empty_response(self) -> StatisticDuration: ...
    @property
    def cancel(self) -> StatisticDuration: ...
    def __init__(
        self,
        *,
        compute_infer: StatisticDuration | _Like | None = ...,
        compute_output: StatisticDuration | _Like | None = ...,
        success: StatisticDuration | _Like | None = ...,
        fail: StatisticDuration | _Like | None = ...,
        empty_response: StatisticDuration | _Like | None = ...,
        cancel: StatisticDuration | _Like | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["compute_infer", "compute_output", "success", "fail", "empty_response", "cancel"]) -> bool: ...
    def ClearField(self, field_name: Literal["compute_infer", "compute_output", "success", "fail", "empty_response", "cancel"]) -> None: ...

class InferBatchStatistics(Message):
    batch_size: int
    @property
    def compute_input(self) -> StatisticDuration: ...
    @property
    def compute_infer(self) -> StatisticDuration: ...
    @property
    def compute_output(self) -> StatisticDuration: ...
    def __init__(
        self,
        *,
        batch_size: int | None = ...,
        compute_input: StatisticDuration | _Like | None = ...,
        compute_infer: StatisticDuration | _Like | None = ...,
        compute_output: StatisticDuration | _Like | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["compute_input", "compute_infer", "compute_output"]) -> bool: ...
    def ClearField(self, field_name: Literal["batch_size", "compute_input", "compute_infer", "compute_output"]) -> None: ...

class MemoryUsage(Message):
    type: str
    id: int
    byte_size: int
    def __init__(
        self,
        *,
        type: str | None = ...,
        id: int | None = ...,
        byte_size: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["type", "id", "byte_size"]) -> None: ...

class ModelStatistics(Message):
    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    @property
    def inference_stats(self) -> InferStatistics: ...
    @property
    def batch_stats(self) -> RepeatedCompositeFieldContainer[InferBatchStatistics]: ...
    @property
    def memory_usage(self) -> RepeatedCompositeFieldContainer[MemoryUsage]: ...
    @property
    def response_stats(self) -> MessageMap[str, InferResponseStatistics]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        version: str | None = ...,
        last_inference: int | None = ...,
        inference_count: int | None = ...,
        execution_count: int | None = ...,
        inference_stats: InferStatistics | _Like | None = ...,
        batch_stats: Iterable[InferBatchStatistics | _Like] | None = ...,
        memory_usage: Iterable[MemoryUsage | _Like] | None = ...,
        response_stats: Mapping[str, InferResponseStatistics] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["inference_stats"]) -> bool: ...
    def ClearField(self, field_name: Literal["name", "version", "last_inference", "inference_count", "execution_count", "inference_stats", "batch_stats", "memory_usage", "response_stats"]) -> None: ...

class ModelStatisticsResponse(Message):
    @property
    def model_stats(self) -> RepeatedCompositeFieldContainer[ModelStatistics]: ...
    def __init__(
        self,
        *,
        model_stats: Iterable[ModelStatistics | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["model_stats"]) -> None: ...

class ModelRepositoryParameter(Message):
    bool_param: bool
    int64_param: int
    string_param: str
    bytes_param: bytes
    def __init__(
        self,
        *,
        bool_param: bool | None = ...,
        int64_param: int | None = ...,
        string_param: str | None = ...,
        bytes_param: bytes | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["bool_param", "int64_param", "string_param", "bytes_param", "parameter_choice"]) -> bool: ...
    def ClearField(self, field_name: Literal["bool_param", "int64_param", "string_param", "bytes_param", "parameter_choice"]) -> None: ...
    def WhichOneof(self, oneof_group: Literal["parameter_choice"]) -> Literal["bool_param", "int64_param", "string_param", "bytes_param"] | None: ...

class RepositoryIndexRequest(Message):
    repository_name: str
    ready: bool
    def __init__(
        self,
        *,
        repository_name: str | None = ...,
        ready: bool | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["repository_name", "ready"]) -> None: ...

class RepositoryIndexResponse(Message):
    class ModelIndex(Message):
        name: str
        version: str
        state: str
        reason: str
        def __init__(
            self,
            *,
            name: str | None = ...,
            version: str | None = ...,
            state: str | None = ...,
            reason: str | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["name", "version", "state", "reason"]) -> None: ...
    @property
    def models(self) -> RepeatedCompositeFieldContainer[RepositoryIndexResponse.ModelIndex]: ...
    def __init__(
        self,
        *,
        models: Iterable[RepositoryIndexResponse.ModelIndex | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["models"]) -> None: ...

class RepositoryModelLoadRequest(Message):
    repository_name: str
    model_name: str
    @property
    def parameters(self) -> MessageMap[str, ModelRepositoryParameter]: ...
    def __init__(
        self,
        *,
        repository_name: str | None = ...,
        model_name: str | None = ...,
        parameters: Mapping[str, ModelRepositoryParameter] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["repository_name", "model_name", "parameters"]) -> None: ...

class RepositoryModelLoadResponse(Message):
    def __init__(self) -> None: ...

class RepositoryModelUnloadRequest(Message):
    repository_name: str
    model_name: str
    @property
    def parameters(self) -> MessageMap[str, ModelRepositoryParameter]: ...
    def __init__(
        self,
        *,
        repository_name: str | None = ...,
        model_name: str | None = ...,
        parameters: Mapping[str, ModelRepositoryParameter] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["repository_name", "model_name", "parameters"]) -> None: ...

class RepositoryModelUnloadResponse(Message):
    def __init__(self) -> None: ...

class SystemSharedMemoryStatusRequest(Message):
    name: str
    def __init__(
        self,
        *,
        name: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name"]) -> None: ...

class SystemSharedMemoryStatusResponse(Message):
    class RegionStatus(Message):
        name: str
        key: str
        offset: int
        byte_size: int
        def __init__(
            self,
            *,
            name: str | None = ...,
            key: str | None = ...,
            offset: int | None = ...,
            byte_size: int | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["name", "key", "offset", "byte_size"]) -> None: ...
    @property
    def regions(self) -> MessageMap[str, SystemSharedMemoryStatusResponse.RegionStatus]: ...
    def __init__(
        self,
        *,
        regions: Mapping[str, SystemSharedMemoryStatusResponse.RegionStatus] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["regions"]) -> None: ...

class SystemSharedMemoryRegisterRequest(Message):
    name: str
    key: str
    offset: int
    byte_size: int
    def __init__(
        self,
        *,
        name: str | None = ...,
        key: str | None = ...,
        offset: int | None = ...,
        byte_size: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "key", "offset", "byte_size"]) -> None: ...

class SystemSharedMemoryRegisterResponse(Message):
    def __init__(self) -> None: ...

class SystemSharedMemoryUnregisterRequest(Message):
    name: str
    def __init__(
        self,
        *,
        name: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name"]) -> None: ...

class SystemSharedMemoryUnregisterResponse(Message):
    def __init__(self) -> None: ...

class CudaSharedMemoryStatusRequest(Message):
    name: str
    def __init__(
        self,
        *,
        name: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name"]) -> None: ...

class CudaSharedMemoryStatusResponse(Message):
    class RegionStatus(Message):
        name: str
        device_id: int
        byte_size: int
        def __init__(
            self,
            *,
            name: str | None = ...,
            device_id: int | None = ...,
            byte_size: int | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["name", "device_id", "byte_size"]) -> None: ...
    @property
    def regions(self) -> MessageMap[str, CudaSharedMemoryStatusResponse.RegionStatus]: ...
    def __init__(
        self,
        *,
        regions: Mapping[str, CudaSharedMemoryStatusResponse.RegionStatus] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["regions"]) -> None: ...

class CudaSharedMemoryRegisterRequest(Message):
    name: str
    raw_handle: bytes
    device_id: int
    byte_size: int
    def __init__(
        self,
        *,
        name: str | None = ...,
        raw_handle: bytes | None = ...,
        device_id: int | None = ...,
        byte_size: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "raw_handle", "device_id", "byte_size"]) -> None: ...

class CudaSharedMemoryRegisterResponse(Message):
    def __init__(self) -> None: ...

class CudaSharedMemoryUnregisterRequest(Message):
    name: str
    def __init__(
        self,
        *,
        name: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name"]) -> None: ...

class CudaSharedMemoryUnregisterResponse(Message):
    def __init__(self) -> None: ...

class TraceSettingRequest(Message):
    class SettingValue(Message):
        @property
        def value(self) -> RepeatedScalarFieldContainer[str]: ...
        def __init__(
            self,
            *,
            value: Iterable[str] | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["value"]) -> None: ...
    @property
    def settings(self) -> MessageMap[str, TraceSettingRequest.SettingValue]: ...
    model_name: str
    def __init__(
        self,
        *,
        settings: Mapping[str, TraceSettingRequest.SettingValue] | None = ...,
        model_name: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["settings", "model_name"]) -> None: ...

class TraceSettingResponse(Message):
    class SettingValue(Message):
        @property
        def value(self) -> RepeatedScalarFieldContainer[str]: ...
        def __init__(
            self,
            *,
            value: Iterable[str] | None = ...,
        ) -> None: ...
        def ClearField(self, field_name: Literal["value"]) -> None: ...
    @property
    def settings(self) -> MessageMap[str, TraceSettingResponse.SettingValue]: ...
    def __init__(
        self,
        *,
        settings: Mapping[str, TraceSettingResponse.SettingValue] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["settings"]) -> None: ...

class LogSettingsRequest(Message):
    class SettingValue(Message):
        bool_param: bool
        uint32_param: int
        string_param: str
        def __init__(
            self,
            *,
            bool_param: bool | None = ...,
            uint32_param: int | None = ...,
            string_param: str | None = ...,
        ) -> None: ...
        def HasField(self, field_name: Literal["bool_param", "uint32_param", "string_param", "parameter_choice"]) -> bool: ...
        def ClearField(self, field_name: Literal["bool_param", "uint32_param", "string_param", "parameter_choice"]) -> None: ...
        def WhichOneof(self, oneof_group: Literal["parameter_choice"]) -> Literal["bool_param", "uint32_param", "string_param"] | None: ...
    @property
    def settings(self) -> MessageMap[str, LogSettingsRequest.SettingValue]: ...
    def __init__(
        self,
        *,
        settings: Mapping[str, LogSettingsRequest.SettingValue] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["settings"]) -> None: ...

class LogSettingsResponse(Message):
    class SettingValue(Message):
        bool_param: bool
        uint32_param: int
        string_param: str
        def __init__(
            self,
            *,
            bool_param: bool | None = ...,
            uint32_param: int | None = ...,
            string_param: str | None = ...,
        ) -> None: ...
        def HasField(self, field_name: Literal["bool_param", "uint32_param", "string_param", "parameter_choice"]) -> bool: ...
        def ClearField(self, field_name: Literal["bool_param", "uint32_param", "string_param", "parameter_choice"]) -> None: ...
        def WhichOneof(self, oneof_group: Literal["parameter_choice"]) -> Literal["bool_param", "uint32_param", "string_param"] | None: ...
    @property
    def settings(self) -> MessageMap[str, LogSettingsResponse.SettingValue]: ...
    def __init__(
        self,
        *,
        settings: Mapping[str, LogSettingsResponse.SettingValue] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["settings"]) -> None: ...

class HealthCheckRequest(Message):
    service: str
    def __init__(
        self,
        *,
        service: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["service"]) -> None: ...

class HealthCheckResponse(Message):
    class _ServingStatusWrapper(_EnumTypeWrapper[int]):
        UNKNOWN: Literal[0]
        SERVING: Literal[1]
        NOT_SERVING: Literal[2]
        SERVICE_UNKNOWN: Literal[3]

    ServingStatus: _ServingStatusWrapper

    UNKNOWN: Literal[0]
    SERVING: Literal[1]
    NOT_SERVING: Literal[2]
    SERVICE_UNKNOWN: Literal[3]
    status: int
    def __init__(
        self,
        *,
        status: int | str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["status"]) -> None: ...

class ServerReflectionRequest(Message):
    host: str
    file_by_filename: str
    file_containing_symbol: str
    @property
    def file_containing_extension(self) -> ExtensionRequest: ...
    all_extension_numbers_of_type: str
    list_services: str
    def __init__(
        self,
        *,
        host: str | None = ...,
        file_by_filename: str | None = ...,
        file_containing_symbol: str | None = ...,
        file_containing_extension: ExtensionRequest | _Like | None = ...,
        all_extension_numbers_of_type: str | None = ...,
        list_services: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["file_by_filename", "file_containing_symbol", "file_containing_extension", "all_extension_numbers_of_type", "list_services", "message_request"]) -> bool: ...
    def ClearField(self, field_name: Literal["host", "file_by_filename", "file_containing_symbol", "file_containing_extension", "all_extension_numbers_of_type", "list_services", "message_request"]) -> None: ...
    def WhichOneof(self, oneof_group: Literal["message_request"]) -> Literal["file_by_filename", "file_containing_symbol", "file_containing_extension", "all_extension_numbers_of_type", "list_services"] | None: ...

class ExtensionRequest(Message):
    containing_type: str
    extension_number: int
    def __init__(
        self,
        *,
        containing_type: str | None = ...,
        extension_number: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["containing_type", "extension_number"]) -> None: ...

class ServerReflectionResponse(Message):
    valid_host: str
    @property
    def original_request(self) -> ServerReflectionRequest: ...
    @property
    def file_descriptor_response(self) -> FileDescriptorResponse: ...
    @property
    def all_extension_numbers_response(self) -> ExtensionNumberResponse: ...
    @property
    def list_services_response(self) -> ListServiceResponse: ...
    @property
    def error_response(self) -> ErrorResponse: ...
    def __init__(
        self,
        *,
        valid_host: str | None = ...,
        original_request: ServerReflectionRequest | _Like | None = ...,
        file_descriptor_response: FileDescriptorResponse | _Like | None = ...,
        all_extension_numbers_response: ExtensionNumberResponse | _Like | None = ...,
        list_services_response: ListServiceResponse | _Like | None = ...,
        error_response: ErrorResponse | _Like | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["original_request", "file_descriptor_response", "all_extension_numbers_response", "list_services_response", "error_response", "message_response"]) -> bool: ...
    def ClearField(self, field_name: Literal["valid_host", "original_request", "file_descriptor_response", "all_extension_numbers_response", "list_services_response", "error_response", "message_response"]) -> None: ...
    def WhichOneof(self, oneof_group: Literal["message_response"]) -> Literal["file_descriptor_response", "all_extension_numbers_response", "list_services_response", "error_response"] | None: ...

class FileDescriptorResponse(Message):
    @property
    def file_descriptor_proto(self) -> RepeatedScalarFieldContainer[bytes]: ...
    def __init__(
        self,
        *,
        file_descriptor_proto: Iterable[bytes] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["file_descriptor_proto"]) -> None: ...

class ExtensionNumberResponse(Message):
    base_type_name: str
    @property
    def extension_number(self) -> RepeatedScalarFieldContainer[int]: ...
    def __init__(
        self,
        *,
        base_type_name: str | None = ...,
        extension_number: Iterable[int] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["base_type_name", "extension_number"]) -> None: ...

class ListServiceResponse(Message):
    @property
    def service(self) -> RepeatedCompositeFieldContainer[ServiceResponse]: ...
    def __init__(
        self,
        *,
        service: Iterable[ServiceResponse | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["service"]) -> None: ...

class ServiceResponse(Message):
    name: str
    def __init__(
        self,
        *,
        name: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name"]) -> None: ...

class ErrorResponse(Message):
    error_code: int
    error_message: str
    def __init__(
        self,
        *,
        error_code: int | None = ...,
        error_message: str | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["error_code", "error_message"]) -> None: ...
