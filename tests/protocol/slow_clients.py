"""Models that offer more than clients read, what is seen of them from outside, and such clients."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.testing import DEADLINE_S, ServerProcess

STREAM_DEADLINE_S = 90  # of all that is done with a stream, some of which takes `SLOW_S`
MEBIBYTE = 1 << 20
SLOW_S = 3  # longer than a machine that has much to do keeps a client that reads from reading
LIMITS = ("--max-stream-bytes=8388608", "--max-stream-responses=200", f"--slow-client-timeout={SLOW_S}")
TOO_SLOW = f"has taken nothing for {SLOW_S} seconds (--slow-client-timeout)"

# Sends COUNT responses of SIZE bytes to each request, on a thread of its own, and says what it saw.
THREADS = """
import json, os, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]
        with open(os.path.join(self.folder, "pid-" + args["model_name"]), "w") as file:
            file.write(str(os.getpid()))

    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.answer, args=(request,)).start()

    def answer(self, request):
        count, size = request.inputs()[0].as_numpy().reshape(-1)
        journal = open(os.path.join(self.folder, request.request_id()), "w", buffering=1)
        sender = request.get_response_sender()
        for number in range(count):
            if request.is_cancelled():
                journal.write("cancelled\\n")
                break
            output = pb_utils.Tensor("OUT", np.full([1, size], number % 256, np.uint8))
            sender.send(pb_utils.InferenceResponse([output]))
            journal.write(f"{number + 1}\\n")
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        journal.write("end\\n")
        journal.close()
"""

# The same, in `execute`, to all requests of the batch in turn.
IN_TURN = """
import json, os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]

    def execute(self, requests):
        senders = {request.request_id(): request.get_response_sender() for request in requests}
        count, size = requests[0].inputs()[0].as_numpy().reshape(-1)
        for number in range(count):
            for id, sender in senders.items():
                if sender.is_cancelled():
                    open(os.path.join(self.folder, id), "a").write("cancelled\\n")
                else:
                    output = pb_utils.Tensor("OUT", np.full([1, size], number % 256, np.uint8))
                    sender.send(pb_utils.InferenceResponse([output]))
        for id, sender in senders.items():
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            open(os.path.join(self.folder, id), "a").write("end\\n")
"""

# Calls the first model and does not read its iterator before it is told to.
CALLER = """
import json, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.folder = json.loads(args["model_config"])["parameters"]["folder"]["string_value"]

    def execute(self, requests):
        responses = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="alone",
                requested_output_names=["OUT"],
                inputs=request.inputs(),
                request_id=request.request_id() + "-call",
            )
            answers = call.exec(decoupled=True)
            while not os.path.exists(os.path.join(self.folder, request.request_id() + "-read")):
                time.sleep(0.005)
            values, error = [], ""
            for answer in answers:
                if answer.has_error():
                    error = answer.error().message()
                elif answer.output_tensors():
                    values.append(answer.output_tensors()[0].as_numpy()[0, 0])
            open(os.path.join(self.folder, request.request_id() + "-got"), "w").write(
                json.dumps([len(values), error])
            )
            response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", request.inputs()[0].as_numpy())])
            responses.append(response)
        return responses
"""


class Served:
    """A server in a process of its own."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.folder = folder
        # The workers of all models are children of the server.
        pid = server.process.pid
        self.processes = [pid, *(child.pid for child in psutil.Process(pid).children())]

    def executions(self, model: str) -> int:
        return int(self._statistics(model)["execution_count"])

    def _statistics(self, model: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.server.http_port}/v2/models/{model}/stats"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            stats: dict[str, Any] = json.load(answer)["model_stats"][0]
        return stats

    def pending(self, model: str) -> int:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.server.metrics_port}/metrics", timeout=DEADLINE_S
        ) as page:
            text = page.read().decode()
        found = re.search(rf'pending_request_count{{model="{model}",.*}} (\d+)', text)
        return int(found[1]) if found else 0

    def counted(self, model: str) -> dict[str, int]:
        """Requests by what became of them."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.server.metrics_port}/metrics", timeout=DEADLINE_S
        ) as page:
            text = page.read().decode()
        rows = re.findall(rf'failure{{model="{model}",reason="(\w+)",version="1"}} (\d+)', text)
        counts = {reason: int(count) for reason, count in rows if int(count)}
        success = self._statistics(model)["inference_stats"]["success"]["count"]
        return {**counts, "success": success} if success else counts

    def journal(self, id: str) -> list[str]:
        path = self.folder / id
        return path.read_text().split() if path.exists() else []

    def sent(self, id: str) -> int:
        """How many responses the model has sent so far."""
        return sum(line.isdigit() for line in self.journal(id))


def memory(pid: int) -> int:
    """The resident memory of a process, in bytes; also begins to look for the highest anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return highest_memory(pid)


def highest_memory(pid: int) -> int:
    """The most resident memory a process has had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def descriptors(pid: int) -> int:
    return psutil.Process(pid).num_fds()


def connections(pid: int) -> int:
    """How many clients a server has."""
    return sum(each.status == psutil.CONN_ESTABLISHED for each in psutil.Process(pid).net_connections("tcp"))


class Stream:
    """A gRPC stream with one request, on a connection of its own, that is read when the test says so."""

    def __init__(
        self, served: Served, model: str, id: str, count: int, size: int = MEBIBYTE, message: Any = None
    ) -> None:
        if message is None:
            message = service_pb2.ModelInferRequest(model_name=model, id=id)
            message.inputs.add(name="IN", datatype="INT32", shape=[1, 2])
            message.raw_input_contents.append(np.array([[count, size]], np.int32).tobytes())
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{served.server.grpc_port}", options)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self.call = stub.ModelStreamInfer(iter([message]), timeout=STREAM_DEADLINE_S)

    def read(self) -> int:
        """Read to the end, and return how many responses there were."""
        return sum(1 for _ in self.call)

    def close(self) -> None:
        self._channel.close()


class EventStream:
    """The same as server-sent events."""

    def __init__(self, served: Served, model: str, id: str, count: int, size: int = MEBIBYTE) -> None:
        body = json.dumps({"IN": [count, size], "id": id}).encode()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect(("127.0.0.1", served.server.http_port))
        head = f"POST /v2/models/{model}/generate_stream HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def read(self) -> int:
        count, rest = 0, b""
        while not rest.endswith(b"0\r\n\r\n"):
            part = self._socket.recv(1 << 20)
            assert part
            count += (rest[-5:] + part).count(b"data: ")
            rest = (rest + part)[-1000:]
        self.last = rest
        return count

    def close(self) -> None:
        self._socket.close()
