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

class WatchRequest(Message):
    interval_ms: int
    def __init__(
        self,
        *,
        interval_ms: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["interval_ms"]) -> None: ...

class WatchResponse(Message):
    server_id: str
    is_taking: bool
    is_draining: bool
    unready_reason: str
    inflight_count: int
    pending_count: int
    queue_ms: float
    revision: int
    has_index: bool
    @property
    def index(self) -> RepeatedCompositeFieldContainer[IndexEntry]: ...
    @property
    def activity(self) -> RepeatedCompositeFieldContainer[Activity]: ...
    def __init__(
        self,
        *,
        server_id: str | None = ...,
        is_taking: bool | None = ...,
        is_draining: bool | None = ...,
        unready_reason: str | None = ...,
        inflight_count: int | None = ...,
        pending_count: int | None = ...,
        queue_ms: float | None = ...,
        revision: int | None = ...,
        has_index: bool | None = ...,
        index: Iterable[IndexEntry | _Like] | None = ...,
        activity: Iterable[Activity | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["server_id", "is_taking", "is_draining", "unready_reason", "inflight_count", "pending_count", "queue_ms", "revision", "has_index", "index", "activity"]) -> None: ...

class IndexEntry(Message):
    name: str
    version: str
    state: str
    reason: str
    is_sequence: bool
    max_sequence_idle_us: int
    retry_on_replica_loss: bool
    instance_count: int
    @property
    def steps(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        version: str | None = ...,
        state: str | None = ...,
        reason: str | None = ...,
        is_sequence: bool | None = ...,
        max_sequence_idle_us: int | None = ...,
        retry_on_replica_loss: bool | None = ...,
        instance_count: int | None = ...,
        steps: Iterable[str] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "version", "state", "reason", "is_sequence", "max_sequence_idle_us", "retry_on_replica_loss", "instance_count", "steps"]) -> None: ...

class Activity(Message):
    name: str
    inflight_count: int
    pending_count: int
    queue_ms: float
    service_rate: float
    def __init__(
        self,
        *,
        name: str | None = ...,
        inflight_count: int | None = ...,
        pending_count: int | None = ...,
        queue_ms: float | None = ...,
        service_rate: float | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "inflight_count", "pending_count", "queue_ms", "service_rate"]) -> None: ...

class ApplyRequest(Message):
    @property
    def models(self) -> RepeatedCompositeFieldContainer[DesiredModel]: ...
    def __init__(
        self,
        *,
        models: Iterable[DesiredModel | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["models"]) -> None: ...

class DesiredModel(Message):
    class _ActionWrapper(_EnumTypeWrapper[int]):
        LOAD: Literal[0]
        UNLOAD: Literal[1]

    Action: _ActionWrapper

    LOAD: Literal[0]
    UNLOAD: Literal[1]
    name: str
    action: int
    revision: int
    config: str
    @property
    def files(self) -> ScalarMap[str, bytes]: ...
    force: bool
    unload_dependents: bool
    def __init__(
        self,
        *,
        name: str | None = ...,
        action: int | str | None = ...,
        revision: int | None = ...,
        config: str | None = ...,
        files: Mapping[str, bytes] | None = ...,
        force: bool | None = ...,
        unload_dependents: bool | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal["config", "_config"]) -> bool: ...
    def ClearField(self, field_name: Literal["name", "action", "revision", "config", "files", "force", "unload_dependents", "_config"]) -> None: ...
    def WhichOneof(self, oneof_group: Literal["_config"]) -> Literal["config"] | None: ...

class ApplyResponse(Message):
    @property
    def models(self) -> RepeatedCompositeFieldContainer[AppliedModel]: ...
    def __init__(
        self,
        *,
        models: Iterable[AppliedModel | _Like] | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["models"]) -> None: ...

class AppliedModel(Message):
    name: str
    code: int
    message: str
    revision: int
    def __init__(
        self,
        *,
        name: str | None = ...,
        code: int | None = ...,
        message: str | None = ...,
        revision: int | None = ...,
    ) -> None: ...
    def ClearField(self, field_name: Literal["name", "code", "message", "revision"]) -> None: ...
