"""What is asked of a server: the load, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from tritonpy_bench.paces import Concurrency, Pace
from tritonpy_bench.tls import TlsFiles

Protocol: TypeAlias = Literal["http", "grpc"]
"""By what requests are sent."""

Endpoint: TypeAlias = Literal["infer", "stream", "generate", "generate_stream"]
"""To what: `stream` is `ModelStreamInfer` of gRPC, the last two are of HTTP."""


SharedMemory: TypeAlias = Literal["none", "system", "cuda"]
"""Where tensors lie that are not sent."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where the contents of inputs come from.

    Attributes:
        source: `random`, `zero`, or a path or several: a directory with a file for each input, or a
            file of JSON as perf_analyzer reads it.
        shapes: of inputs, without the batch dimension; needed where the model's shape has -1.
        string_length: of each random string.
        string: of all strings instead of random ones.
        seed: of random contents.
    """

    source: str | Path | tuple[Path, ...] = "random"
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    string_length: int = 128
    string: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceShape:
    """What the sequences of a stateful model look like.

    Attributes:
        length: requests of each; None for those of the stream of input data, or 20 where it is made up.
        variation: part of the length by which sequences are longer or shorter.
        count: sequences at a time, where requests are sent at a rate; else each of a concurrency is one.
        first_id: the least correlation id.
        id_count: how many ids follow each other before they begin again.
    """

    length: int | None = None
    variation: float = 0.2
    count: int = 4
    first_id: int = 1
    id_count: int = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A model, and the requests that are sent to it.

    Attributes:
        model: its name.
        url: `host:port`, of HTTP or gRPC as `protocol` says; `https://` and `grpcs://` before it ask for TLS.
        version: of the model; empty for the one that the server chooses.
        pace: when requests are sent.
        batch_size: rows of each request; models without a batch dimension take 1.
        inputs: what is in them.
        http_url: where a server whose `url` is that of gRPC is asked what only HTTP tells, such as why
            batches closed; None for nowhere. Encrypted with files for TLS unless it begins with `http://`.
        headers: of HTTP, or metadata of gRPC, sent with each request.
        parameters: of each request.
        endpoint: to what they are sent; decoupled models need one that streams.
        sequences: for models with sequences.
        shared_memory: where tensors lie that are not sent: in the system's shared memory, or in that of the
            GPU `cuda_device`; the server is on this machine.
        output_byte_size: room for each output there.
        cuda_device: the number of a GPU.
        tokens: an output whose elements are counted, as those of language models; empty to count none.
        tls: files for connections that are encrypted.
        timeout_s: after which a request counts as failed, and connections are given up.
    """

    model: str
    url: str = "localhost:8000"
    protocol: Protocol = "http"
    version: str = ""
    pace: Pace = field(default_factory=lambda: Concurrency(1))
    batch_size: int = 1
    inputs: Inputs = Inputs()
    http_url: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    parameters: Mapping[str, str | int | float | bool] = field(default_factory=lambda: MappingProxyType({}))
    endpoint: Endpoint = "infer"
    sequences: SequenceShape = field(default_factory=lambda: SequenceShape())
    shared_memory: SharedMemory = "none"
    output_byte_size: int = 100 << 10
    cuda_device: int = 0
    tokens: str = ""
    tls: TlsFiles = field(default_factory=TlsFiles)
    timeout_s: float = 60.0

    @property
    def is_generate(self) -> bool:
        """True if requests and responses are flat JSON objects."""
        return self.endpoint in ("generate", "generate_stream")

    @property
    def is_streaming(self) -> bool:
        """True if a request may have several responses."""
        return self.endpoint in ("stream", "generate_stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """How long a load lasts: windows of time, until the last `windows` agree.

    Attributes:
        window_s: length of a window.
        windows: how many in a row must agree; they are merged.
        most_windows: after which the load ends though they do not agree.
        spread: part of their mean by which rates and latencies may differ.
        percentile: of latencies that is compared; None for their mean.
        warmup_s: of the load before the first window.
        request_count: send so many requests in one window instead, and wait for all answers; 0 for windows.
    """

    window_s: float = 5.0
    windows: int = 3
    most_windows: int = 10
    spread: float = 0.1
    percentile: float | None = None
    warmup_s: float = 0.5
    request_count: int = 0
