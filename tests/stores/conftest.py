"""Object stores on this machine: moto's S3 as a process, and servers that do not answer."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from tritonpy_sdk.testing import until

from .models import CONFIG, code, doubling
from .recorder import Recorder

KEY_ID, SECRET, REGION = "AKIATESTTESTTESTTEST", "s3cr3t/of+the+tests", "eu-west-3"
_REQUEST = re.compile(r'"(?:\x1b\[[0-9;]*m)*([A-Z]+) (\S+) HTTP')


class S3Emulator:
    """An S3 store that keeps everything in its memory.

    Attributes:
        port: on 127.0.0.1.
        client: boto3's, for what tests do to the store.
    """

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stderr=subprocess.PIPE,
            text=True,
        )
        self._requests: list[str] = []
        assert self.process.stderr is not None
        lines = iter(self.process.stderr)
        for line in lines:
            if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                break
        self._reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._reader.start()
        self.client: Any = boto3.client(  # Any: boto3 makes its methods while it runs
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )
        self._bucket_count = 0

    def bucket(self) -> str:
        """Make a bucket."""
        self._bucket_count += 1
        name = f"bucket{self._bucket_count}"  # Google's client writes a dash as %2D, which moto does not read
        self.client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return name

    def root(self, bucket: str, path: str = "models") -> str:
        """How the server is told of it."""
        return f"s3://127.0.0.1:{self.port}/{bucket}/{path}"

    def put(self, bucket: str, key: str, content: bytes, **settings: str) -> None:
        """Make an object; one whose key ends in a slash is a directory's marker."""
        self.client.put_object(Bucket=bucket, Key=key, Body=content, **settings)

    def delete(self, bucket: str, prefix: str) -> None:
        """Remove an object, or all that lie below it."""
        for found in self.client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ()):
            if found["Key"] == prefix or found["Key"].startswith(f"{prefix}/"):
                self.client.delete_object(Bucket=bucket, Key=found["Key"])

    def requests(self) -> list[str]:
        """What was asked of it since the last call: method and path."""
        mark = f"/moto-api/?mark={time.monotonic_ns()}"
        urllib.request.urlopen(f"http://127.0.0.1:{self.port}{mark}").close()
        until(lambda: any(mark in line for line in self._requests))
        end = next(i for i, line in enumerate(self._requests) if mark in line)
        found, self._requests[: end + 1] = self._requests[:end], []
        return found

    def downloads(self) -> list[str]:
        """The keys of the objects that were read since the last call of `requests` or this."""
        gets = [line.removeprefix("GET /") for line in self.requests() if line.startswith("GET /")]
        return sorted(path.partition("/")[2] for path in gets if "list-type=" not in path)

    def check_signatures(self, is_checked: bool) -> None:
        """Whether requests must be signed with a key that the store knows."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/moto-api/reset-auth",
            data=b"0" if is_checked else b"inf",
            headers={"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(request).close()

    def user(self) -> tuple[str, str]:
        """Make a user who may read everything; returns id and secret of a key."""
        iam: Any = boto3.client(  # Any: see `client`
            "iam",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )
        name = f"user-{time.monotonic_ns()}"
        iam.create_user(UserName=name)
        policy = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'
        iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return key["AccessKeyId"], key["SecretAccessKey"]

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _read(self, lines: Iterator[str]) -> None:
        for line in lines:
            if match := _REQUEST.search(line):
                self._requests.append(f"{match[1]} {match[2]}")


@pytest.fixture(scope="session")
def emulator() -> Iterator[S3Emulator]:
    emulator = S3Emulator()
    yield emulator
    emulator.stop()


@pytest.fixture
def s3(emulator: S3Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Emulator:
    """The store, with credentials for it in the environment and no others."""
    (tmp_path / "home").mkdir()
    (tmp_path / "copies").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRITON_AWS_MOUNT_DIRECTORY", str(tmp_path / "copies"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    emulator.requests()
    return emulator


@pytest.fixture
def bucket(s3: S3Emulator) -> str:
    """A bucket with a Python and an ONNX model."""
    bucket = s3.bucket()
    s3.put(bucket, "models/adds/config.pbtxt", CONFIG.encode())
    s3.put(bucket, "models/adds/1/model.py", code(1))
    s3.put(bucket, "models/adds/1/notes.txt", b"these do not change")
    s3.put(bucket, "models/doubles/1/model.onnx", doubling())
    s3.requests()
    return bucket


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on; it is taken all the same, so that nobody begins to."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.stop()
