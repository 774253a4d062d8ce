"""Numbered requests at a fixed rate over HTTP and gRPC, and what became of each of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import numpy as np
from tritonclient.grpc import service_pb2

NUMBERS_VARIABLE = "NUMBERS_DIRECTORY"
MEMBER_VARIABLE = "NUMBERS_MEMBER"
MODEL = f"""
import os
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.member = os.environ["{MEMBER_VARIABLE}"]
        path = os.path.join(os.environ["{NUMBERS_VARIABLE}"], args["model_name"] + "." + self.member)
        self.numbers = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def execute(self, requests):
        numbers = [pb_utils.get_input_tensor_by_name(request, "NUMBER").as_numpy() for request in requests]
        os.write(self.numbers, b"".join(b"%d\\n" % number.ravel()[0] for number in numbers))
        time.sleep(0.05)
        member = np.array([[self.member]], dtype=object)
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("NUMBER", number), pb_utils.Tensor("MEMBER", member)])
            for number in numbers
        ]
"""
CONFIG = {
    "backend": "python",
    "max_batch_size": 64,
    "dynamic_batching": {},
    "input": [{"name": "NUMBER", "data_type": "TYPE_INT64", "dims": [1]}],
    "output": [
        {"name": "NUMBER", "data_type": "TYPE_INT64", "dims": [1]},
        {"name": "MEMBER", "data_type": "TYPE_STRING", "dims": [1]},
    ],
}
"""A model that notes the number of each request in a file, and answers 50 ms later with number and member."""
ANSWERED = "answered"
TIMEOUT_S = 60.0


@dataclass(slots=True)
class Sent:
    """One request.

    Attributes:
        number: of it.
        protocol: `http` or `grpc`.
        sent_s, ended_s: when, on the monotonic clock.
        outcome: `ANSWERED`, or what the client was told instead.
        member: who has answered.
        is_other: the answer has another number.
    """

    number: int
    protocol: str
    sent_s: float
    ended_s: float = 0.0
    outcome: str = ""
    member: str = ""
    is_other: bool = False


@dataclass(slots=True)
class Outcome:
    """What became of a row's traffic.

    Attributes:
        sent: all requests.
        executions: by number, how often a model has begun it.
    """

    sent: Sequence[Sent]
    executions: Mapping[int, int] = field(default_factory=dict)

    @property
    def failed(self) -> list[Sent]:
        """Those that were not answered."""
        return [each for each in self.sent if each.outcome != ANSWERED]

    @property
    def errors(self) -> dict[str, int]:
        """Their texts, without names and numbers, and how often each was told."""
        return dict(Counter(f"{each.protocol}: {each.outcome}" for each in self.failed).most_common())

    @property
    def members(self) -> dict[str, int]:
        """How many each member has answered."""
        return dict(sorted(Counter(each.member for each in self.sent if each.outcome == ANSWERED).items()))

    @property
    def twice(self) -> list[int]:
        """Requests that were executed more than once."""
        return [number for number, count in self.executions.items() if count > 1]

    @property
    def longest_gap_s(self) -> float:
        """The longest time in which nobody was answered."""
        ends = sorted(each.ended_s for each in self.sent if each.outcome == ANSWERED)
        return max((later - earlier for earlier, later in itertools.pairwise(ends)), default=0.0)

    @property
    def longest_s(self) -> float:
        """The longest time that one request took, with an answer or an error."""
        return max((each.ended_s - each.sent_s for each in self.sent), default=0.0)

    def open_at(self, begin_s: float, end_s: float) -> int:
        """How many were sent before `end_s` and had not ended at `begin_s`."""
        return sum(each.sent_s <= end_s and each.ended_s >= begin_s for each in self.sent)


def read_executions(directory: Path, model: str, numbers: Sequence[int]) -> dict[int, int]:
    """How often a model has begun each request of a row."""
    wanted = set(numbers)
    found: Counter[int] = Counter()
    for path in directory.glob(f"{model}.*"):
        found.update(number for number in map(int, path.read_text().split()) if number in wanted)
    return dict(found)


class Client:
    """Sends numbered requests; each protocol as its clients do: connections are kept.

    Args:
        http, grpc_address: of whom is asked.
        model: that is asked.
        grpc_connections: over how many connections gRPC goes, in turns.
    """

    def __init__(self, http: str, grpc_address: str, model: str, grpc_connections: int = 4) -> None:
        self._url = f"http://{http}/v2/models/{model}/infer"
        self._grpc_address = grpc_address
        self._model = model
        self._channel_count = grpc_connections

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(TIMEOUT_S)
        )
        self._channels = [
            grpc.aio.insecure_channel(
                self._grpc_address,
                options=[("grpc.channel_id", number), ("grpc.enable_retries", 0)],
            )
            for number in range(self._channel_count)
        ]
        self._calls = [
            channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer",
                request_serializer=service_pb2.ModelInferRequest.SerializeToString,
                response_deserializer=service_pb2.ModelInferResponse.FromString,
            )
            for channel in self._channels
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        for channel in self._channels:
            await channel.close()

    async def send(self, number: int, protocol: str) -> Sent:
        """Send one request and wait for its end, whatever that is."""
        sent = Sent(number, protocol, time.monotonic())
        try:
            found = await (self._http(number) if protocol == "http" else self._grpc(number))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            sent.outcome = plain(f"{type(error).__name__}: {error}".rstrip(": "))
        except grpc.aio.AioRpcError as error:
            sent.outcome = plain(f"{error.code().name}: {error.details()}")
        else:
            if isinstance(found, str):
                sent.outcome = plain(found)
            else:
                sent.outcome, sent.is_other, sent.member = ANSWERED, found[0] != number, found[1]
        sent.ended_s = time.monotonic()
        return sent

    async def _http(self, number: int) -> str | tuple[int, str]:
        tensor = {"name": "NUMBER", "datatype": "INT64", "shape": [1, 1], "data": [number]}
        async with self._session.post(self._url, json={"inputs": [tensor]}) as answer:
            body = await answer.read()
            document: Any = json.loads(body) if body else {}  # Any: JSON
            if answer.status != 200:
                return f"{answer.status} {document.get('error', '')}"
        outputs = {each["name"]: each["data"][0] for each in document["outputs"]}
        return outputs["NUMBER"], outputs["MEMBER"]

    async def _grpc(self, number: int) -> tuple[int, str]:
        request = service_pb2.ModelInferRequest(model_name=self._model)
        request.inputs.add(name="NUMBER", datatype="INT64", shape=[1, 1])
        request.raw_input_contents.append(np.int64(number).tobytes())
        answer = await self._calls[number // 2 % len(self._calls)](request, timeout=TIMEOUT_S)
        names = [output.name for output in answer.outputs]
        raw = dict(zip(names, answer.raw_output_contents, strict=True))
        return int(np.frombuffer(raw["NUMBER"], np.int64)[0]), raw["MEMBER"][4:].decode()


async def open_loop(client: Client, first: int, rate_per_s: float, duration_s: float) -> list[Sent]:
    """Send a request each `1 / rate_per_s` seconds, whatever became of those before, by HTTP and gRPC."""
    begin_s = time.monotonic()
    tasks = []
    for turn in range(int(rate_per_s * duration_s)):
        await asyncio.sleep(max(0.0, begin_s + turn / rate_per_s - time.monotonic()))
        protocol = ("http", "grpc")[turn % 2]
        tasks.append(asyncio.create_task(client.send(first + turn, protocol)))
    return list(await asyncio.gather(*tasks))


def plain(text: str) -> str:
    """An error without what differs from one to the next: addresses, ports, sequences, names of replicas."""
    text = re.sub(r"\d+\.\d+\.\d+\.\d+:\d+|127\.0\.0\.1|'10\.[\d.]+'", "ADDRESS", text)
    text = re.sub(r"replica '[^']*'", "replica '…'", text)
    text = re.sub(r"before it answered \([^)]*\)", "before it answered (…)", text)
    return re.sub(r"sequence \d+", "sequence …", text)
