"""Servers for trials: a process of its own each time, this process, or one that runs elsewhere."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from tritonpy.cli.http_client import HttpClient, model_path, repository_path
from tritonpy.config.read import config_from_dict
from tritonpy.config.write import write_config
from tritonpy.errors import InvalidArg, TritonError, Unavailable
from tritonpy.options import ServerOptions
from tritonpy.server import Server

from tritonpy_analyze.measurement import Window
from tritonpy_analyze.models import AnalyzedModel, configurations, model_of
from tritonpy_analyze.space import Choice, Value
from tritonpy_analyze.usage import MetricsMeter, ProcessMeter, UsageMeter
from tritonpy_analyze.workload import Workload

JsonObject = dict[str, Any]  # Any: JSON

_STARTED = re.compile(r"Started (HTTPService|GRPCInferenceService|Metrics Service) at 127\.0\.0\.1:(\d+)\D")
_STOP_S = 15.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ServedTarget:
    """Models of a server that is ready; satisfies `Target`."""

    url: str
    workload: Workload
    meter: UsageMeter
    grpc_url: str = ""

    def measure(self, load: Mapping[str, Value], seconds: float) -> Window:
        """See `Target`."""
        return self.workload.measure(self.url, load, seconds, self.meter, self.grpc_url)


@dataclass(frozen=True, slots=True)
class OwnServers:
    """Starts a server for each configuration; satisfies `Launcher`.

    Models are not copied: the server's repository has links to their files, beside the other configuration.

    Attributes:
        models: by name, all that are served.
        workload: that is put on them.
        arguments: further ones of `corectl serve`.
        in_process: on a thread of this process instead; then memory is that of this process.
        start_timeout_s: how long models may take to load.
    """

    models: Mapping[str, AnalyzedModel]
    workload: Workload
    arguments: Sequence[str] = ()
    in_process: bool = False
    start_timeout_s: float = 300.0

    @contextmanager
    def open(self, choice: Choice) -> Iterator[ServedTarget]:
        """See `Launcher`."""
        with tempfile.TemporaryDirectory(prefix="tritonpy-analyze-") as folder:
            repository = Path(folder) / "models"
            for name, config in configurations(self.models, choice).items():
                link_model(self.models[name], config, repository)
            serve = self._here if self.in_process else self._process
            with serve(repository) as (http_port, grpc_port, meter):
                places = (f"127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}")
                yield ServedTarget(places[0], self.workload, meter, places[1])

    @contextmanager
    def _here(self, repository: Path) -> Iterator[tuple[int, int, UsageMeter]]:
        options = ServerOptions(
            (str(repository),),
            http_address="127.0.0.1",
            http_port=0,
            grpc_address="127.0.0.1",
            grpc_port=0,
            metrics_address="127.0.0.1",
            metrics_port=0,
        )
        with Server(options) as server:
            yield (
                server.http_port,
                server.grpc_port,
                ProcessMeter(os.getpid(), metrics_of(server.metrics_port)),
            )

    @contextmanager
    def _process(self, repository: Path) -> Iterator[tuple[int, int, UsageMeter]]:
        log = repository.parent / "server.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tritonpy.cli.main", "serve"),
                    f"--model-repository={repository}",
                    *("--http-address=127.0.0.1", "--http-port=0"),
                    *("--grpc-address=127.0.0.1", "--grpc-port=0"),
                    *("--metrics-address=127.0.0.1", "--metrics-port=0"),
                    *self.arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C is for this process, which stops the server then
            )
        guard = _guard(process.pid)
        try:
            ports = _await_start(process, log, self.start_timeout_s)
            meter = ProcessMeter(process.pid, metrics_of(ports["Metrics Service"]))
            yield ports["HTTPService"], ports["GRPCInferenceService"], meter
        finally:
            _stop(process)
            if guard is not None:
                guard.kill()
                guard.wait()
                assert guard.stdin is not None
                guard.stdin.close()


def _guard(pid: int) -> subprocess.Popen[bytes] | None:
    """A process that ends the server when this one has ended, however that was."""
    if os.name != "posix":
        return None
    return subprocess.Popen(
        ["sh", "-c", f"read _; kill -9 {pid}"], stdin=subprocess.PIPE, start_new_session=True
    )


def _await_start(process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> dict[str, int]:
    deadline = time.monotonic() + timeout_s
    while True:
        has_ended = process.poll() is not None
        text = log.read_text(errors="replace")
        ports = {service: int(port) for service, port in _STARTED.findall(text)}
        if len(ports) == 3 and not has_ended:
            return ports
        if has_ended:
            raise Unavailable(f"the server ended with status {process.returncode}: {_last_error(text)}")
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the models were not ready within {timeout_s:g} s (--start-timeout): {_last_error(text)}"
            )
        time.sleep(_POLL_S)


def _last_error(log: str) -> str:
    """The first error of a log, or its last line."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E", "error"))]
    line = (errors or lines[-1:] or ["it has said nothing"])[0]
    return re.sub(r"^[EIW]\d{4} \S+ +\d+ [^\]]*\] *", "", line)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def link_model(model: AnalyzedModel, config: JsonObject, repository: Path) -> None:
    """Make a model of the same files with another configuration."""
    assert model.path is not None
    target = repository / model.name
    target.mkdir(parents=True)
    for entry in model.path.iterdir():
        if entry.stem != "config" or entry.is_dir():
            (target / entry.name).symlink_to(entry, target_is_directory=entry.is_dir())
    (target / "config.pbtxt").write_text(write_config(config_from_dict(config, model.name), "pbtxt"))


def metrics_of(port: int, host: str = "127.0.0.1") -> Callable[[], str]:
    """Reads the metrics page of a server; "" where there is none."""

    def read() -> str:
        client = HttpClient(f"http://{host}:{port}", 5.0)
        try:
            answer = client.send("GET", "/metrics")
            return answer.body.decode(errors="replace") if answer.status == 200 else ""
        except click.ClickException:
            return ""
        finally:
            client.close()

    return read


@dataclass(slots=True)
class RemoteServer:
    """Loads each configuration into a server that runs, Triton or this one; satisfies `Launcher`.

    It has to be in model control mode `explicit`. `restore` loads what its repository has.

    Attributes:
        url: `host:port` of HTTP.
        workload: that is put on it.
        metrics_url: where its metrics are, "" for nowhere.
        grpc_url: `host:port` of gRPC, for models that stream.
        timeout_s: of a load.
    """

    url: str
    workload: Workload
    metrics_url: str = ""
    grpc_url: str = ""
    timeout_s: float = 300.0
    models: Mapping[str, AnalyzedModel] = field(default_factory=dict)

    def read_models(self, names: Sequence[str]) -> dict[str, AnalyzedModel]:
        """Load models as they are, and read their configurations, with those of the steps of ensembles.

        Raises:
            Unavailable: a model cannot be loaded.
        """
        found: dict[str, AnalyzedModel] = {}
        wanted = list(names)
        while wanted:
            name = wanted.pop(0)
            if name not in found:
                if name in names:
                    self._load(name, None)
                config = self._get(f"{model_path(name)}/config")
                found[name] = model_of(config, config.get("backend", ""))
                wanted += found[name].steps
        self.models = found
        return found

    @contextmanager
    def open(self, choice: Choice) -> Iterator[ServedTarget]:
        """See `Launcher`."""
        configs = configurations(self.models, choice)
        for name in sorted(configs, key=lambda each: self.models[each].is_ensemble):  # steps first
            self._load(name, configs[name])
        port_host = self.metrics_url.rpartition(":")
        meter = MetricsMeter(metrics_of(int(port_host[2]), port_host[0]) if self.metrics_url else lambda: "")
        yield ServedTarget(self.url, self.workload, meter, self.grpc_url)

    def restore(self) -> None:
        """Load all models as the repository of the server has them.

        They are unloaded first: a server may keep what an override has said while the files are the same. One
        that fails keeps none of the others from it.

        Raises:
            Unavailable: a model could not be unloaded or loaded; says which and why.
        """
        steps_first = sorted(self.models, key=lambda each: self.models[each].is_ensemble)
        asked = [
            *((name, "unload") for name in reversed(steps_first)),
            *((name, "load") for name in steps_first),
        ]
        failures = []
        for name, action in asked:
            try:
                self._ask(name, action, {})
            except TritonError as exc:
                failures.append(exc.message)
        if failures:
            raise Unavailable(f"models are not as they were: {'; '.join(failures)}")

    def _load(self, name: str, config: JsonObject | None) -> None:
        self._ask(name, "load", {} if config is None else {"parameters": {"config": json.dumps(config)}})

    def _ask(self, name: str, action: str, body: JsonObject) -> None:
        client = HttpClient(f"http://{self.url}", self.timeout_s)
        try:
            answer = client.send("POST", repository_path(name, action), json.dumps(body).encode())
        except click.ClickException as exc:
            raise Unavailable(exc.message) from exc
        finally:
            client.close()
        if answer.status != 200:
            raise InvalidArg(f"{answer.error} ({action} of '{name}' by {self.url})")

    def _get(self, path: str) -> JsonObject:
        client = HttpClient(f"http://{self.url}", self.timeout_s)
        try:
            found: JsonObject = client.get_json(path)
            return found
        except click.ClickException as exc:
            raise Unavailable(exc.message) from exc
        finally:
            client.close()
