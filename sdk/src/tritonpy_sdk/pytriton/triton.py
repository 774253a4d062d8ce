"""`pytriton.triton`."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tritonpy.cli.serve import options_of
from tritonpy.frontends.restriction import CATEGORIES
from tritonpy.options import ServerOptions

from tritonpy_sdk.clients.connection import TOKEN_HEADER
from tritonpy_sdk.clients.server_url import ServerUrl
from tritonpy_sdk.functions.bound import name_fault
from tritonpy_sdk.functions.config import ModelConfig
from tritonpy_sdk.functions.tensors import Tensor
from tritonpy_sdk.pytriton.exceptions import PyTritonValidationError
from tritonpy_sdk.remote.address import DEFAULT_PORT
from tritonpy_sdk.remote.remote_server import RemoteServer
from tritonpy_sdk.server import Server

_PREFIX = "PYTRITON_TRITON_CONFIG_"
_BIND_ADDRESS = "TRITONPY_BIND_ADDRESS"
_CONNECT_S = 120.0
_NUMBERED = re.compile(r"(.+)_(\d+)")
_PROTECTED = ("shared-memory", "model-repository", "statistics", "trace", "logging")


@dataclass(kw_only=True)
class TritonConfig:
    """Flags of the server: a field for each, None for the default; lists are flags that stand several times.

    What a field says wins over the variable `PYTRITON_TRITON_CONFIG_<FIELD>`, and that over the default.
    """

    model_repository: Path | None = None
    id: str | None = None
    log_verbose: int | None = None
    log_file: Path | None = None
    exit_timeout_secs: int | None = None
    exit_on_error: bool | None = None
    strict_readiness: bool | None = None
    allow_http: bool | None = None
    http_address: str | None = None
    http_port: int | None = None
    http_header_forward_pattern: str | None = None
    http_thread_count: int | None = None
    http_restricted_api: str | None = None
    allow_grpc: bool | None = None
    grpc_address: str | None = None
    grpc_port: int | None = None
    grpc_header_forward_pattern: str | None = None
    grpc_infer_allocation_pool_size: int | None = None
    grpc_use_ssl: bool | None = None
    grpc_use_ssl_mutual: bool | None = None
    grpc_server_cert: Path | None = None
    grpc_server_key: Path | None = None
    grpc_root_cert: Path | None = None
    grpc_infer_response_compression_level: str | None = None
    grpc_keepalive_time: int | None = None
    grpc_keepalive_timeout: int | None = None
    grpc_keepalive_permit_without_calls: bool | None = None
    grpc_http2_max_pings_without_data: int | None = None
    grpc_http2_min_recv_ping_interval_without_data: int | None = None
    grpc_http2_max_ping_strikes: int | None = None
    grpc_restricted_protocol: str | None = None
    allow_metrics: bool | None = None
    allow_gpu_metrics: bool | None = None
    allow_cpu_metrics: bool | None = None
    metrics_interval_ms: int | None = None
    metrics_port: int | None = None
    metrics_address: str | None = None
    allow_sagemaker: bool | None = None
    sagemaker_port: int | None = None
    sagemaker_safe_port_range: str | None = None
    sagemaker_thread_count: int | None = None
    allow_vertex_ai: bool | None = None
    vertex_ai_port: int | None = None
    vertex_ai_thread_count: int | None = None
    vertex_ai_default_model: str | None = None
    metrics_config: list[str] | None = None
    trace_config: list[str] | None = None
    cache_config: list[str] | None = None
    cache_directory: str | None = None
    buffer_manager_thread_count: int | None = None

    def __post_init__(self) -> None:
        if self.allow_http is False and self.allow_grpc is False:
            raise PyTritonValidationError(
                "The `http` or `grpc` endpoint has to be allowed: allow_http and allow_grpc are both False"
            )

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> TritonConfig:
        """Read fields by name; text becomes what the field holds, and unknown names are passed over."""
        kinds = {field.name: str(field.type) for field in fields(cls)}
        return cls(**{name: _typed(value, kinds[name]) for name, value in config.items() if name in kinds})

    @classmethod
    def from_env(cls) -> TritonConfig:
        """Read the variables `PYTRITON_TRITON_CONFIG_<FIELD>`, and `…_<FIELD>_<NUMBER>` for lists."""
        found: dict[str, Any] = {}
        lists: dict[str, dict[int, str]] = {}
        for variable, value in os.environ.items():
            if not variable.startswith(_PREFIX):
                continue
            name = variable.removeprefix(_PREFIX).lower()
            if match := _NUMBERED.fullmatch(name):
                lists.setdefault(match[1], {})[int(match[2])] = value
            else:
                found[name] = value
        found |= {name: [values[index] for index in sorted(values)] for name, values in lists.items()}
        return cls.from_dict(found)

    def flags(self) -> list[str]:
        """The flags of a command line that mean the same."""
        words = []
        for name, value in self.to_dict().items():
            if value is None:
                continue
            for each in value if isinstance(value, list) else [value]:
                text = str(each).lower() if isinstance(each, bool) else str(each)
                words.append(f"--{name.replace('_', '-')}={text}")
        return words


def _typed(value: Any, kind: str) -> Any:  # Any: of the field
    if not isinstance(value, str):
        return value
    if kind.startswith("bool"):
        if value.lower() in ("true", "1", "yes", "on"):
            return True
        if value.lower() in ("false", "0", "no", "off"):
            return False
        raise PyTritonValidationError(f"got '{value}', expected true or false")
    if kind.startswith("int"):
        return int(value)
    if kind.startswith("list"):
        return [value]
    return Path(value) if kind.startswith("Path") else value


@dataclass
class TritonLifecyclePolicy:
    """When the server starts.

    Attributes:
        launch_triton_on_startup: with the context manager; else with `run` or `serve`.
        local_model_store: has no effect: there is one process.
    """

    launch_triton_on_startup: bool = True
    local_model_store: bool = False


DefaultTritonLifecyclePolicy = TritonLifecyclePolicy()
VertextAILifecyclePolicy = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)


@dataclass
class TritonSecurityConfig:
    """Calls that need a token, in the header `triton-access-token`.

    Attributes:
        access_token: None makes one, if anything is restricted.
        restricted_endpoints: kinds of calls; None for those that change or disclose something, [] for none.
    """

    access_token: str | None = None
    restricted_endpoints: list[str] | None = None

    def __post_init__(self) -> None:
        if self.restricted_endpoints is None:
            self.restricted_endpoints = list(_PROTECTED)
        if unknown := sorted(set(self.restricted_endpoints) - set(CATEGORIES)):
            raise PyTritonValidationError(
                f"Invalid endpoint names: {', '.join(unknown)}. Valid endpoints are: "
                f"{', '.join(sorted(CATEGORIES))}"
            )
        if self.access_token is None and self.restricted_endpoints:
            self.access_token = secrets.token_urlsafe(32)


class TritonBase:
    """A server with bound functions, here or elsewhere.

    Args:
        server: that they are bound into.
        triton_lifecycle_policy: when it starts.
    """

    def __init__(self, server: Server | RemoteServer, triton_lifecycle_policy: TritonLifecyclePolicy) -> None:
        self._server = server
        self._policy = triton_lifecycle_policy

    def bind(
        self,
        model_name: str,
        infer_func: Callable[..., Any] | Sequence[Callable[..., Any]],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        model_version: int = 1,
        config: ModelConfig | None = None,
        strict: bool = False,
        trace_config: list[str] | None = None,
    ) -> None:
        """Serve a function as a model; see `tritonpy_sdk.Server.bind`. It may write to its inputs.

        Args:
            model_name: letters, digits, `.`, `_` and `-`.
            infer_func: or several, one for each instance.
            inputs: of the function.
            outputs: of the function.
            model_version: of the model.
            config: batching and other settings.
            strict: compare outputs with what is bound.
            trace_config: has no effect; a server has one configuration of traces, that of `TritonConfig`.

        Raises:
            PyTritonValidationError: a model cannot have this name.
            TritonError: what is given cannot be served.
        """
        if fault := name_fault(model_name):
            raise PyTritonValidationError(fault)
        more = {} if isinstance(self._server, RemoteServer) else {"writable": True}
        self._server.bind(
            model_name,
            infer_func,
            inputs,
            outputs,
            version=model_version,
            config=config,
            strict=strict,
            **more,
        )

    def connect(self) -> None:
        """Start in the background, or connect."""
        self._server.start()

    def serve(self, monitoring_period_s: float = 10.0) -> None:
        """Start, and serve until SIGINT or SIGTERM.

        Args:
            monitoring_period_s: has no effect: the end of the server is noticed at once.
        """
        self._server.serve()

    def stop(self) -> bool:
        """Answer what was accepted, and stop; False where nothing runs."""
        was_running = self._server.is_running
        self._server.stop()
        return was_running

    def is_alive(self) -> bool:
        """True while the server runs."""
        return self._server.is_running

    def is_connected(self) -> bool:
        """True while the server runs."""
        return self._server.is_running

    def __enter__(self) -> Self:
        if self._policy.launch_triton_on_startup:
            self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Triton(TritonBase):
    """A server in this process with bound functions; see `tritonpy_sdk.Server`.

    Args:
        config: flags of the server.
        workspace: has no effect: nothing but configurations is written, to a temporary directory.
        triton_lifecycle_policy: when the server starts.
        security_config: calls that need a token; by default those that change or disclose something.
    """

    def __init__(
        self,
        *,
        config: TritonConfig | None = None,
        workspace: Path | str | None = None,
        triton_lifecycle_policy: TritonLifecyclePolicy | None = None,
        security_config: TritonSecurityConfig | None = None,
    ) -> None:
        given = {
            name: value for name, value in (config.to_dict() if config else {}).items() if value is not None
        }
        from_env = {
            name: value for name, value in TritonConfig.from_env().to_dict().items() if value is not None
        }
        self._config = TritonConfig(**{**from_env, **given})
        policy = VertextAILifecyclePolicy if self._config.allow_vertex_ai else DefaultTritonLifecyclePolicy
        self._security = security_config or TritonSecurityConfig()
        super().__init__(Server(self._options()), triton_lifecycle_policy or policy)

    def run(self) -> None:
        """Start in the background."""
        self._server.start()

    def get_access_token(self) -> str | None:
        """What restricted calls have to send in the header `triton-access-token`."""
        return self._security.access_token

    def _options(self) -> ServerOptions:
        flags = self._config.flags()
        restricted, token = self._security.restricted_endpoints, self._security.access_token
        if restricted and token:
            rule = f"{','.join(restricted)}:{TOKEN_HEADER}={token}"
            flags += [f"--http-restricted-api={rule}", f"--grpc-restricted-protocol={rule}"]
        if self._config.model_repository is not None:
            return options_of(flags)
        return replace(options_of(["--model-repository=none", *flags]), model_repositories=())


class RemoteTriton(TritonBase):
    """A server that runs elsewhere, with `--frontend-config bind,…`; see `tritonpy_sdk.RemoteServer`.

    Args:
        url: of the server. Of `http://` and `grpc://` addresses, or those without a scheme, only the host
            counts, and the port of the frontend `bind` is 8003; `tcp://HOST:PORT`, `tls://HOST:PORT` and
            `unix:PATH` are addresses of that frontend. The variable `TRITONPY_BIND_ADDRESS` has one that
            stands in for them all.
        workspace: has no effect: nothing is written.
        access_token: what the frontend has in its `token-file`.
    """

    def __init__(
        self, url: str, workspace: Path | str | None = None, access_token: str | None = None
    ) -> None:
        address = os.environ.get(_BIND_ADDRESS) or _bind_address(url)
        remote = RemoteServer(address, token=access_token, connect_timeout_s=_CONNECT_S)
        super().__init__(remote, DefaultTritonLifecyclePolicy)
        self._remote = remote

    def is_alive(self) -> bool:
        """True while it runs, connected or not."""
        return self._remote.is_running

    def is_connected(self) -> bool:
        """True while the server is there."""
        return self._remote.is_connected


def _bind_address(url: str) -> str:
    if url.startswith(("tcp://", "tls://", "unix:")):
        return url
    host = ServerUrl.parse(url).address.rpartition(":")[0]
    return f"tcp://{host}:{DEFAULT_PORT}"
