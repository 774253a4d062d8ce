"""Warmup: executions that an instance runs before it takes requests, so that the first client does not wait.

What `model_warmup` lists is read once per load. Each sample is one batch of `batch_size` equal requests, run
`count` times, and counted in the statistics like any other execution, as in Triton.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from tritonpy.buffers import HostBuffer, byte_view
from tritonpy.config.named_files import check_named_file
from tritonpy.datatypes import CONFIG_DATATYPES, DataType
from tritonpy.errors import Internal, InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.model.execution import Execution, Instance
from tritonpy.model.signature import Signature
from tritonpy.request import InferRequest
from tritonpy.reshape import read_reshape
from tritonpy.response import InferResponse
from tritonpy.states import StateSpecs
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor

_log = logging.getLogger("tritonpy.model")

DIRECTORY = "warmup"
"""Where the files of samples lie, in the model's directory."""

MOST_ROWS = 65_536
"""Of a sample. Each is a request of its own, which the loop makes."""

_LABEL = "[request id: <id_unknown>] "


@dataclass(frozen=True, slots=True)
class WarmupSample:
    """One entry of `model_warmup`.

    Attributes:
        name: as configured; perhaps "".
        batch_size: requests of one row each that go together.
        count: how often they do.
        inputs: the tensors of each request.
    """

    name: str
    batch_size: int
    count: int
    inputs: Mapping[str, Tensor]


def read_warmup(config: JsonObject, signature: Signature, directory: Path) -> tuple[WarmupSample, ...]:
    """Make the samples that a configuration asks for; blocking.

    A sample of batch size 0 is none, as in Triton.

    Args:
        config: of the model.
        signature: its check of requests; samples have to pass it.
        directory: of the model.

    Raises:
        InvalidArg: a sample does not fit the model, or its data does not fit the sample; in Triton's words.
        Internal: a file cannot be read.
    """
    samples = []
    reshape = read_reshape(config)
    for entry in config.get("model_warmup", ()):
        if not entry.get("batch_size"):
            continue
        sample = _read_sample(entry, signature, directory / DIRECTORY)
        known = {name: tensor for name, tensor in sample.inputs.items() if name in signature.inputs}
        # Others are given to the model unchecked: the tensors that a sequence batcher would add.
        signature.check(InferRequest(signature.model_name, known))
        if reshape is not None:
            sample = replace(sample, inputs=reshape.to_model(sample.inputs))
        samples.append(sample)
    return tuple(samples)


class Warmup:
    """Runs samples on instances; on the loop only.

    Args:
        samples: what to run.
        model_name: of the model.
        version: its version, as requests carry it.
        max_batch_size: of the model; 0 for one that does not batch.
        stats: where the executions are counted.
        states: those of the model; every request begins a sequence.
    """

    def __init__(
        self,
        samples: Iterable[WarmupSample],
        model_name: str,
        version: str,
        max_batch_size: int,
        stats: ModelStats,
        states: StateSpecs | None = None,
    ) -> None:
        self._samples = tuple(samples)
        self._model_name = model_name
        self._version = version
        self._most_requests = min(max(1, max_batch_size), MOST_ROWS)
        self._max_batch_size = min(max_batch_size, MOST_ROWS)
        self._stats = stats
        self._states = states

    async def run(self, instance: Instance) -> None:
        """Run every sample on an instance that takes no requests yet.

        Cancelled, it leaves an execution behind that the instance still has to finish or be closed over.

        Raises:
            InvalidArg: a sample failed; says why, in Triton's words.
        """
        for sample in self._samples:
            if sample.batch_size > self._most_requests:
                raise InvalidArg(
                    f"failed to run warmup sample '{sample.name}': batch size {sample.batch_size} for "
                    f"'{instance.name}', max allowed is {self._max_batch_size}"
                )
            for iteration in range(1, sample.count + 1):
                _log.debug(
                    "model '%s' instance %s is running warmup sample '%s' for iteration %d",
                    self._model_name,
                    instance.name,
                    sample.name,
                    iteration,
                )
                failures = await self._execute(sample, instance)
                if failures:
                    reasons = "; ".join(dict.fromkeys(failures))
                    raise InvalidArg(f"failed to run warmup sample '{sample.name}': {reasons}")

    async def _execute(self, sample: WarmupSample, instance: Instance) -> list[str]:
        """Run one batch; the messages of those requests that failed."""
        answers = _Answers(sample.batch_size)
        requests = []
        for _ in range(sample.batch_size):
            request = InferRequest(self._model_name, dict(sample.inputs), model_version=self._version)
            request.arrival_ns = request.queue_start_ns = time.monotonic_ns()
            request.ticket.sink = answers
            request.ticket.states = self._states.fresh() if self._states is not None else None
            requests.append(request)
        instance.submit(Execution(requests, sample.batch_size, self._stats))
        del request, requests  # one that the model drops without an answer has to become garbage
        await answers.complete
        return answers.failures


class _Answers:
    """Collects the answers to the requests of one batch; a `ResponseSink`."""

    def __init__(self, request_count: int) -> None:
        self.failures: list[str] = []
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_count = request_count

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if response is not None and response.error is not None:
            self.failures.append(response.error.message)
        if final:
            self._open_count -= 1
            if self._open_count == 0 and not self.complete.done():
                self.complete.set_result(None)


def _read_sample(entry: JsonObject, signature: Signature, directory: Path) -> WarmupSample:
    name: str = entry.get("name", "")
    _log.debug("Generating warmup sample data for '%s'", name)
    lead = (1,) if signature.max_batch_size > 0 else ()
    inputs = {}
    for input_name, given in entry.get("inputs", {}).items():
        datatype = CONFIG_DATATYPES.get(given.get("data_type", ""))
        if datatype is None:
            expected = signature.inputs[input_name].datatype if input_name in signature.inputs else "another"
            raise InvalidArg(
                f"{_LABEL}inference input '{input_name}' data-type is '<invalid>', but model "
                f"'{signature.model_name}' expects '{expected}'"
            )
        shape = tuple(int(dim) for dim in given.get("dims", ()))
        if input_name not in signature.inputs or not signature.inputs[input_name].is_shape_tensor:
            shape = (*lead, *shape)
        try:
            buffer = _data(given, datatype, prod(shape), directory)
        except (MemoryError, OverflowError) as exc:
            raise InvalidArg(
                f"warmup setting expects input '{input_name}' to fit into memory, got dims "
                f"[{','.join(map(str, shape))}]"
            ) from exc
        inputs[input_name] = Tensor(input_name, datatype.name, shape, buffer)
    return WarmupSample(name, int(entry["batch_size"]), int(entry.get("count", 0)) or 1, inputs)


def _data(given: JsonObject, datatype: DataType, element_count: int, directory: Path) -> HostBuffer:
    """The bytes of one input, in wire form."""
    size = element_count * datatype.byte_size if datatype.byte_size else 4 * element_count
    if "input_data_file" in given:
        return _file_data(given["input_data_file"], size, datatype, directory)
    if "random_data" in given and datatype.byte_size:
        return byte_view(_random_array(datatype, element_count))
    return bytes(size)  # zeros, or empty strings; Triton has no random strings either


def _random_array(datatype: DataType, element_count: int) -> npt.NDArray[np.generic]:
    """Random numbers that are valid inputs: floats from -1 to 1, booleans that are 0 or 1."""
    random = np.random.default_rng()
    if datatype.name == "BF16":  # raw bits: the upper half of a 32-bit float
        floats = random.uniform(-1, 1, element_count).astype(np.float32)
        return (floats.view(np.uint32) >> 16).astype(np.uint16)
    dtype = np.dtype(datatype.numpy)
    if dtype.kind == "b":
        return random.integers(0, 2, element_count).astype(np.bool_)
    if dtype.kind == "f":
        return random.uniform(-1, 1, element_count).astype(dtype)
    return np.frombuffer(random.bytes(element_count * datatype.byte_size), dtype)


def _file_data(name: str, size: int, datatype: DataType, directory: Path) -> bytes:
    relative = PurePosixPath(name)
    if not relative.name or "\0" in name or relative.is_absolute() or ".." in relative.parts:
        raise InvalidArg(
            f"warmup setting expects 'input_data_file' to name a file below '{directory}', got '{name}'"
        )
    path = directory / relative
    check_named_file(path)
    try:
        with path.open("rb") as file:
            data = file.read(size) if datatype.byte_size else file.read()
    except OSError as exc:
        raise Internal(f"failed to open text file for read {path}: {exc.strerror}") from exc
    if len(data) < size and datatype.byte_size:
        raise InvalidArg(
            f"{_LABEL}warmup setting expects {size} bytes, but the data provided from {name} only has "
            f"{len(data)} bytes"
        )
    return data
