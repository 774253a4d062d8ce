"""Names, paths and sizes in load requests and repositories: each a clear error, in time, and nothing outside.

A tree of canaries stands beside the repository; it is the same after every test, and so is the repository.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.repository import source
from tritonpy.server import Server
from tritonpy.temporary import TemporaryDirectories
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until

from ..servers import local_options

CONFIG: dict[str, Any] = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}
SECRET = "a secret that no answer tells"

# As they stand in an HTTP path; none may mean more than one directory below the repository.
HTTP_NAMES = [
    "..",
    ".",
    ".hidden",
    "%2e%2e",
    "..%2foutside",
    "..%2F..%2Fetc",
    "%2Fetc%2Fpasswd",
    "..%5coutside",
    "..\\outside",
    "a%00b",
    "%ff%fe",
    "~",
    "$HOME",
    "n" * 300,
    "n" * 20_000,
]
GRPC_NAMES = [
    "",
    "..",
    ".",
    ".hidden",
    "../outside",
    "echo/../../outside",
    "/etc",
    "//etc",
    "..\\outside",
    "%2e%2e",
    "a\0b",
    "echo\0",
    "a\nb",
    "~",
    "n" * 300,
    "n" * 1_000_000,
]
# In a key of a load request, after `file:`.
DIRECTORY_NAMES = ("~", "%2e%2e", "a\nb")
"""Those that a directory in a repository may have."""
OUTSIDE_PATHS = [
    "../evil",
    "1/../../evil",
    "1/../../../outside/canary",
    "/../evil",
    "//../evil",
    "..",
    ".",
    "",
    "1/",
    "1/..",
    "1/a\0b",
    "n" * 300,
    "/".join(["d"] * 102),
    "/".join(["d"] * 3000),
    "/".join(["d" * 200] * 50),
]


@dataclass
class Place:
    """A server with a repository, and what stands around it.

    Attributes:
        root: everything: `models`, `outside` and `temporary`, where the server may write.
    """

    root: Path
    http: int
    grpc: int

    def send(self, path: str, body: object = None, method: str = "POST") -> tuple[int, str]:
        """Status and text of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=DEADLINE_S)
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        try:
            # Not `request`, which refuses what this test is about.
            connection.connect()
            assert connection.sock is not None
            head = f"{method} {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(content)}\r\n\r\n"
            connection.sock.sendall(head.encode("latin-1"))
            connection.sock.sendall(content)
            response = http.client.HTTPResponse(connection.sock, method=method)
            response.begin()
            text = response.read().decode()
        finally:
            connection.close()
        assert SECRET not in text
        return response.status, text

    def load(self, name: str, **parameters: object) -> tuple[int, str]:
        """Status and error of a load over HTTP."""
        status, text = self.send(f"/v2/repository/models/{name}/load", {"parameters": parameters})
        return status, json.loads(text)["error"] if text else ""

    def call(self, method: str, **fields: Any) -> tuple[str, str]:
        """Code and details of a call over gRPC that came back in time; OK and "" if it succeeded."""
        options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        request = getattr(service_pb2, f"{method}Request")(**fields)
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc}", options) as channel:
            try:
                getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), method)(
                    request, timeout=DEADLINE_S
                )
            except grpc.RpcError as error:
                code, details = error.code().name, error.details() or ""
            else:
                return "OK", ""
        assert code != "DEADLINE_EXCEEDED"
        assert SECRET not in details
        return code, details

    def grpc_load(self, name: str, config: str | None = None, **files: bytes) -> tuple[str, str]:
        """Code and details of a load over gRPC."""
        parameters: dict[str, Any] = {
            key: service_pb2.ModelRepositoryParameter(bytes_param=content) for key, content in files.items()
        }
        if config is not None:
            parameters["config"] = service_pb2.ModelRepositoryParameter(string_param=config)
        return self.call("RepositoryModelLoad", model_name=name, parameters=parameters)

    def is_well(self) -> bool:
        """Whether the server is there and its model answers."""
        tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [7]}
        status, text = self.send("/v2/models/echo/infer", {"inputs": [tensor]})
        return status == 200 and json.loads(text)["outputs"][0]["data"] == [7]


def snapshot(root: Path) -> dict[str, tuple[int, int, int, bytes | str]]:
    """Everything below a directory: kind and rights, size, time of the last change, content."""
    seen: dict[str, tuple[int, int, int, bytes | str]] = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            status = path.lstat()
            content: bytes | str = os.readlink(path) if path.is_symlink() else b""
            if not path.is_symlink() and path.is_file() and os.access(path, os.R_OK):
                content = path.read_bytes()
            seen[str(path.relative_to(root))] = (status.st_mode, status.st_size, status.st_mtime_ns, content)
    return seen


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("safety")
    models = ModelRepository(root / "models")
    models.model("echo", CONFIG)
    models.model("linked", CONFIG)
    models.model(".hidden", CONFIG)
    outside = root / "outside"
    (outside / "1").mkdir(parents=True)
    for name in ("canary", "labels.txt", "evil", "1/model.py", "config.pbtxt"):
        (outside / name).write_text(SECRET)
    for base in ("linked", "linked/1", "linked/warmup", "linked/initial_state"):
        (root / "models" / base).mkdir(exist_ok=True)
        (root / "models" / base / "out").symlink_to(outside)
        (root / "models" / base / "out.txt").symlink_to(outside / "canary")
    (root / "temporary").mkdir()
    options = local_options(
        root / "models", allow_metrics=False, model_control_mode="explicit", load_models=("echo", "linked")
    )
    with pytest.MonkeyPatch.context() as patch, Server(options) as running:
        patch.setattr(source, "OF_THIS_PROCESS", TemporaryDirectories(root / "temporary"))
        yield Place(root, running.http_port, running.grpc_port)


@pytest.fixture(autouse=True)
def _untouched(place: Place) -> Iterator[None]:
    before = snapshot(place.root / "models"), snapshot(place.root / "outside")
    yield
    assert (snapshot(place.root / "models"), snapshot(place.root / "outside")) == before
    # Models of sent files are taken down in the background.
    until(lambda: not any((place.root / "temporary").glob("*/model-*")))
    assert sorted(os.listdir(place.root)) == ["models", "outside", "temporary"]
    assert place.is_well()


# Names.


@pytest.mark.parametrize("name", HTTP_NAMES, ids=lambda name: name[:20])
def test_a_name_over_http_is_one_directory_or_none(place: Place, name: str) -> None:
    for path in (f"/v2/repository/models/{name}/load", f"/v2/models/{name}/infer"):
        status, text = place.send(path, {"inputs": []})
        assert 400 <= status <= 505, text
        assert json.loads(text)["error"]
    for path in (
        "",
        "/config",
        "/ready",
        "/stats",
        "/versions/1",
        "/versions/1/stats",
        "/versions/../config",
    ):
        status, text = place.send(f"/v2/models/{name}{path}", method="GET")
        assert 400 <= status <= 505, text
        assert json.loads(text)["error"]
    for path in (f"/v2/repository/models/{name}/unload", f"/v2/models/{name}/trace/setting"):
        status, text = place.send(path, {})
        assert (status, text) == (200, "") or json.loads(text)["error"]


@pytest.mark.parametrize("name", GRPC_NAMES, ids=lambda name: ascii(name[:20]))
def test_a_name_over_grpc_is_one_directory_or_none(place: Place, name: str) -> None:
    refused = "INTERNAL" if name in DIRECTORY_NAMES else "INVALID_ARGUMENT"
    code, details = place.grpc_load(name)
    assert code == refused
    assert len(details) < 10_000
    assert place.grpc_load(name, json.dumps(CONFIG))[0] == refused
    assert place.grpc_load(name, json.dumps(CONFIG), **{"file:1/model.bin": b"x"})[0] == (
        "OK" if name in DIRECTORY_NAMES else refused
    )
    assert place.call("RepositoryModelUnload", model_name=name) == ("OK", "")
    for method in ("ModelInfer",):
        code, details = place.call(method, model_name=name)
        assert code in ("NOT_FOUND", "INVALID_ARGUMENT")
        assert len(details) < 10_000
    for method in ("ModelMetadata", "ModelConfig"):
        code, details = place.call(method, name=name)
        assert code in ("NOT_FOUND", "INVALID_ARGUMENT")
        assert len(details) < 10_000
    assert place.call("ModelReady", name=name)[0] in ("OK", "INVALID_ARGUMENT")
    code, details = place.call("ModelStatistics", name=name)
    assert code == "INVALID_ARGUMENT" or name == ""
    assert len(details) < 10_000


# Files of a load request.


@pytest.mark.parametrize("path", OUTSIDE_PATHS, ids=lambda path: ascii(path[:30]))
def test_a_sent_file_stays_inside_the_model(place: Place, path: str) -> None:
    content = base64.b64encode(b"evil").decode()
    key = f"file:{path}"

    status, error = place.load("sent", config=json.dumps(CONFIG), **{"file:1/m": content, key: content})
    assert (status, len(error) < 10_000) == (500, True), error
    assert error.startswith("failed to load 'sent', failed to poll from model repository: ")
    code, details = place.grpc_load("sent", json.dumps(CONFIG), **{"file:1/m": b"x", key: b"evil"})
    assert (code, len(details) < 10_000) == ("INTERNAL", True), details


@pytest.mark.parametrize("other", ["1/./m", "1//m", "./1/m", "1/x/../m"])
def test_one_file_is_not_sent_under_two_spellings(place: Place, other: str) -> None:
    content = base64.b64encode(b"x").decode()

    status, error = place.load(
        "sent", config=json.dumps(CONFIG), **{"file:1/m": content, f"file:{other}": content}
    )
    assert (status, error.rpartition(": ")[2]) == (500, "File exists")
    code, details = place.grpc_load("sent", json.dumps(CONFIG), **{"file:1/m": b"x", f"file:{other}": b"y"})
    assert (code, details.rpartition(": ")[2]) == ("INTERNAL", "File exists")


def test_a_sent_file_is_no_directory_of_another_one(place: Place) -> None:
    code, details = place.grpc_load("sent", json.dumps(CONFIG), **{"file:1/m": b"x", "file:1/m/n": b"y"})

    assert code == "INTERNAL"
    assert "cannot be written: " in details


def test_sent_files_that_look_like_links_are_files(place: Place) -> None:
    """A request cannot make a link: what it sends is content."""
    files = {
        "file:1/model.bin": str(place.root / "outside").encode(),
        "file:labels.txt": b"../../outside/canary",
    }
    config = {**CONFIG, "output": [{**CONFIG["output"][0], "label_filename": "labels.txt"}]}

    assert place.grpc_load("sent", json.dumps(config), **files) == ("OK", "")

    (directory,) = (place.root / "temporary").glob("*/*/sent")
    assert not any(path.is_symlink() for path in directory.rglob("*"))
    assert place.call("RepositoryModelUnload", model_name="sent") == ("OK", "")


# Files that the configuration of a load request names.

OUTSIDE = [
    "../outside/canary",
    "out/canary",
    "out.txt",
    "1/out/canary",
    "1/../../outside/canary",
    "{root}/outside/canary",
]
FIELDS: dict[str, Any] = {
    "default_model_filename": lambda path: {"default_model_filename": path},
    "cc_model_filenames": lambda path: {"cc_model_filenames": {"8.0": path}},
    "label_filename": lambda path: {"output": [{**CONFIG["output"][0], "label_filename": path}]},
    "op_library_filename": lambda path: {"model_operations": {"op_library_filename": [path]}},
    "input_data_file": lambda path: {
        "model_warmup": [
            {
                "name": "w",
                "batch_size": 1,
                "inputs": {"INPUT0": {"data_type": "TYPE_FP32", "dims": [1], "input_data_file": path}},
            }
        ]
    },
    "data_file": lambda path: {
        "sequence_batching": {
            "state": [
                {
                    "input_name": "s",
                    "output_name": "t",
                    "data_type": "TYPE_FP32",
                    "dims": [1],
                    "initial_state": [
                        {"name": "i", "data_type": "TYPE_FP32", "dims": [1], "data_file": path}
                    ],
                }
            ]
        }
    },
    "EXECUTION_ENV_PATH": lambda path: {"parameters": {"EXECUTION_ENV_PATH": {"string_value": path}}},
    "TRITON_BATCH_STRATEGY_PATH": lambda path: {
        "parameters": {"TRITON_BATCH_STRATEGY_PATH": {"string_value": path}}
    },
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("path", OUTSIDE)
def test_a_configuration_that_was_sent_names_no_file_outside(place: Place, field: str, path: str) -> None:
    path = path.format(root=place.root)
    if field == "TRITON_BATCH_STRATEGY_PATH" and "/" not in path:
        path = f"./{path}"  # else it is the name of a strategy
    if path.startswith("1/out") and field not in (
        "label_filename",
        "op_library_filename",
        "EXECUTION_ENV_PATH",
    ):
        path = path.removeprefix("1/")  # these begin in a directory of the model
    config = json.dumps({**CONFIG, **FIELDS[field](path)})

    status, error = place.load("linked", config=config)
    assert status == 500
    assert f"{field}' of model 'linked' is '{path}': " in error
    assert "a load request names files inside the model's" in error or "inside the version directory" in error
    code, details = place.grpc_load("linked", config)
    assert (code, details) == ("INTERNAL", error)
    code, details = place.grpc_load("sent", config, **{"file:1/model.bin": b"x"})
    place.call("RepositoryModelUnload", model_name="sent")
    if ".." in path or path.startswith("/"):
        assert code == "INTERNAL"
        assert f"{field}' of model 'sent' is '{path}'" in details
    # else the path goes through links, and a model of sent files has none
    index = json.loads(place.send("/v2/repository/index", {"ready": True})[1])
    assert {"name": "linked", "version": "1", "state": "READY"} in index  # as it was before


# Sizes.


def test_a_configuration_of_five_megabytes_is_refused(place: Place) -> None:
    for filler in ("x" * 5_000_000, "[" * 5_000_000):
        config = json.dumps({**CONFIG, "parameters": {"a": {"string_value": filler}}})

        status, error = place.load("echo", config=config)
        assert status in (400, 500)
        assert len(error) < 10_000
        code, details = place.grpc_load("echo", config)
        assert code in ("INTERNAL", "INVALID_ARGUMENT")
        assert len(details) < 10_000


def test_a_request_with_many_files_is_laid_out_or_refused(place: Place) -> None:
    files = {f"file:1/{number}": b"" for number in range(1_000)}

    assert place.grpc_load("sent", json.dumps(CONFIG), **files) == ("OK", "")
    assert place.call("RepositoryModelUnload", model_name="sent") == ("OK", "")


def test_a_request_of_eight_megabytes_is_laid_out(place: Place) -> None:
    content = bytes(8_000_000)  # twice what gRPC takes by default

    assert place.grpc_load("sent", json.dumps(CONFIG), **{"file:1/model.bin": content}) == ("OK", "")
    assert place.call("RepositoryModelUnload", model_name="sent") == ("OK", "")


@pytest.mark.stress
@pytest.mark.timeout(300)
def test_a_request_with_a_hundred_thousand_files_is_laid_out(place: Place) -> None:
    files = {f"file:1/{number}": b"" for number in range(100_000)}

    assert place.grpc_load("sent", json.dumps(CONFIG), **files) == ("OK", "")
    assert place.call("RepositoryModelUnload", model_name="sent") == ("OK", "")


# Repositories that hold what nobody expects.


def strange_models(root: Path) -> dict[str, str]:
    """Fill a repository; returns the models that cannot be loaded, with a part of the reason."""
    models = ModelRepository(root)
    labelled = {**CONFIG, "output": [{**CONFIG["output"][0], "label_filename": "labels.txt"}]}
    python = {**CONFIG, "backend": "python"}
    for name in ("good", "pipes", "loop", "Case", "case", "many"):
        models.model(name, CONFIG)
    for name in ("label_pipe", "label_device", "label_directory", "label_unreadable", "label_loop"):
        models.model(name, labelled)
    for name in ("code_pipe", "code_directory", "code_socket"):
        models.model(name, python)
    models.model("config_pipe.identity", CONFIG)
    models.model("config_large", CONFIG)
    (root / "config_large/config.pbtxt").write_text("#" * 10_000_000)
    (root / "config_pipe.identity/config.pbtxt").unlink()
    for path in (
        "pipe",
        "pipes/pipe",
        "pipes/1/pipe",
        "label_pipe/labels.txt",
        "config_pipe.identity/config.pbtxt",
        "code_pipe/1/model.py",
    ):
        os.mkfifo(root / path)
    (root / "label_device/labels.txt").symlink_to("/dev/zero")
    (root / "label_directory/labels.txt").mkdir()
    (root / "label_loop/labels.txt").symlink_to("labels.txt")
    (root / "label_unreadable/labels.txt").symlink_to("/proc/1/mem" if os.geteuid() else "/proc/self/attr")
    (root / "code_directory/1/model.py").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(root / "code_socket/1")  # the path of a socket must be short
        try:
            listener.bind("model.py")
        finally:
            os.chdir(here)
    (root / "loop/1/again").symlink_to(root / "loop")
    (root / "loop/circle").symlink_to("circle")
    for number in range(2_000):
        (root / f"many/1/{number}").touch()
    return {
        "label_pipe": "it is no regular file",
        "label_device": "it is no regular file",
        "label_directory": "it is no regular file",
        "label_loop": "Too many levels of symbolic links",
        "label_unreadable": "failed to open text file for read",
        "code_pipe": "which is no file",
        "code_directory": "which is no file",
        "code_socket": "which is no file",
        "config_large": "config.pbtxt",
        "config_pipe.identity": "it is no regular file",
    }


def test_pipes_devices_and_circles_in_a_repository_hold_nobody_up(tmp_path: Path) -> None:
    reasons = strange_models(tmp_path / "models")
    options = local_options(tmp_path / "models", allow_grpc=False, allow_metrics=False, exit_on_error=False)

    with Server(options) as running:  # whatever opens a pipe or follows a circle is held up for ever
        index = json.loads(Place(tmp_path, running.http_port, 0).send("/v2/repository/index")[1])

    rows = {row["name"]: row for row in index}
    assert {name for name, row in rows.items() if row.get("state") != "READY"} == set(reasons)
    for name, reason in reasons.items():
        assert reason in rows[name]["reason"], name
        assert len(rows[name]["reason"]) < 1000
