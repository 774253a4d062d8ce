"""Programs that die, hang, lose the network or outlive their server: every request is answered once."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import threading
from collections import Counter
from contextlib import suppress

import pytest
import trustme
from tritonpy.errors import InvalidArg, NotFound, TritonError, Unavailable
from tritonpy_sdk import ModelConfig, ModelWarmup, RemoteServer, Server, WarmupInput
from tritonpy_sdk.testing import DEADLINE_S, until

from .given import X, double, options, vector

SHORT_SILENCE = ("silence-ms", str(int(DEADLINE_S * 1000 / 60)))


class Load:
    """Clients that ask one after the other until it is left, and count what they get."""

    def __init__(self, model, count=4):
        self.answers = Counter()
        self._model = model
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]

    @property
    def failures(self):
        return self.answers[NotFound] + self.answers[Unavailable]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._is_over.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def _ask(self):
        while not self._is_over.is_set():
            try:
                answer = self._model.infer({"x": X}, timeout_s=DEADLINE_S)
            except TritonError as error:
                self.answers[type(error)] += 1
                self._is_over.wait(0.005)
            else:
                self.answers["right" if answer["y"].tolist() == [[2, 4]] else "wrong"] += 1


def wait_bound(process):
    assert process.stdout.readline() == b"bound\n"


def counts(model):
    """Requests that a model has answered, and those that it has open."""
    (row,) = model.statistics["model_stats"]
    inference = row["inference_stats"]
    return inference["success"]["count"] + inference["fail"]["count"]


def test_a_program_that_is_killed_fails_what_it_had_and_costs_nobody_else_anything(server, address, program):
    process = program(address, "killed")
    wait_bound(process)
    model, neighbour = server.model("killed"), server.model("neighbour")
    waiting = [server.model("killed_slow").submit({"x": X}) for _ in range(8)]
    with Load(model) as load:
        until(lambda: load.answers["right"] > 50)

        process.send_signal(signal.SIGKILL)
        until(lambda: load.failures > 20)

    assert set(load.answers) <= {"right", NotFound, Unavailable}
    for future in waiting:
        with pytest.raises(Unavailable, match="the program that has bound it is gone"):
            future.result(DEADLINE_S)
    until(lambda: not model.is_ready())
    assert server.is_ready()
    assert neighbour.infer({"INPUT0": X})["OUTPUT0"].tolist() == X.tolist()
    again = program(address, "killed")
    wait_bound(again)
    assert int(model.infer({"x": X})["pid"][0, 0]) == again.pid


def test_a_program_that_is_told_to_end_answers_what_it_has(server, address, program):
    process = program(address, "ended")
    wait_bound(process)
    slow = server.model("ended_slow")
    future = slow.submit({"x": X}, parameters={"seconds": 0.5})
    until(lambda: server.model("ended").infer({"x": X}) is not None)

    process.send_signal(signal.SIGTERM)

    assert future.result(DEADLINE_S)["y"].tolist() == X.tolist()
    assert process.wait(DEADLINE_S) == 0
    assert process.stdout.readline() == b"over\n"
    assert not slow.is_ready()


def test_a_program_that_hangs_is_given_up_and_bound_again_when_it_goes_on(token_file, program):
    with Server(options(token_file, SHORT_SILENCE)) as server:
        process = program(f"127.0.0.1:{server.port('bind')}", "hung")
        wait_bound(process)
        model = server.model("hung")
        assert model.infer({"x": X})["y"].tolist() == [[2, 4]]

        process.send_signal(signal.SIGSTOP)
        with pytest.raises(Unavailable, match=r"is gone: nothing came for \d+ s"):
            model.infer({"x": X}, timeout_s=DEADLINE_S)
        until(lambda: not model.is_ready())

        process.send_signal(signal.SIGCONT)
        until(model.is_ready)
        assert model.infer({"x": X})["y"].tolist() == [[2, 4]]


def test_a_server_that_starts_again_is_found_by_its_programs(token_file, program):
    with Server(options(token_file)) as server:
        port = server.port("bind")
        process = program(f"127.0.0.1:{port}", "outlives")
        wait_bound(process)
        assert server.model("outlives").infer({"x": X})["y"].tolist() == [[2, 4]]
    with Server(options(token_file, ("port", str(port)))) as server:
        until(server.model("outlives").is_ready)
        until(server.model("outlives_slow").is_ready)
        assert int(server.model("outlives").infer({"x": X})["pid"][0, 0]) == process.pid


class Network:
    """A road to a port that can be cut, or lose everything that is sent."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._roads = []
        self.is_lossy = False
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._roads.append((near, far))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source, target):
        try:
            while data := source.recv(65536):
                if not self.is_lossy:
                    target.sendall(data)
        except OSError:
            pass

    def cut(self):
        """Reset every connection."""
        roads, self._roads = self._roads, []
        for end in (end for road in roads for end in road):
            with suppress(OSError):  # the other side has closed it
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self.is_lossy = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut()


def test_a_program_comes_back_when_the_network_does(token_file, token, tmp_path):
    numbers = tmp_path / "numbers"
    X.tofile(numbers)
    warm = WarmupInput(shape=X.shape[1:], dtype=X.dtype, input_data_file=numbers)
    warmed = ModelConfig(model_warmup=[ModelWarmup(name="numbers", inputs={"x": warm})])
    with Server(options(token_file, SHORT_SILENCE)) as server:
        network = Network(server.port("bind"))
        model = server.model("far")
        try:
            with RemoteServer(f"127.0.0.1:{network.port}", token=token, most_retry_s=0.5) as remote:
                remote.bind("far", double, [vector("x")], [vector("y")])
                remote.bind("warmed", double, [vector("x")], [vector("y")], config=warmed)
                numbers.unlink()  # as temporary files are; it was read
                with Load(model, count=2) as load:
                    until(lambda: load.answers["right"] > 20)

                    network.cut()
                    until(lambda: load.failures > 0)
                    before = load.answers["right"]
                    until(lambda: load.answers["right"] > before + 20)

                    network.is_lossy = True  # neither side hears that the other is gone
                    failed = load.failures
                    until(lambda: load.failures > failed)
                    until(lambda: not remote.is_connected)
                    network.cut()
                    network.is_lossy = False
                    before = load.answers["right"]
                    until(lambda: load.answers["right"] > before + 20)
                    until(lambda: remote.is_served("warmed"))
                assert set(load.answers) <= {"right", NotFound, Unavailable}
        finally:
            network.close()


def test_a_socket_of_this_machine_needs_no_token_and_is_its_user_s(tmp_path, program, token_file):
    path = tmp_path / "bind.sock"
    given = options(token_file, ("port", ""), ("token-file", ""), ("unix", str(path)))
    with Server(given) as server, RemoteServer(f"unix:{path}") as remote:
        remote.bind("near", double, [vector("x")], [vector("y")])

        assert server.model("near").infer({"x": X})["y"].tolist() == [[2, 4]]
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not path.exists()


def test_an_encrypted_connection(tmp_path, token_file, token, program):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(tmp_path / "cert.pem", append=number > 0)
    given = options(
        token_file,
        ("tls-certificate", str(tmp_path / "cert.pem")),
        ("tls-key", str(tmp_path / "key.pem")),
        ("address", "localhost"),
    )
    with Server(given) as server:
        port = server.port("bind")
        trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        with RemoteServer(f"tls://localhost:{port}", token=token, tls=trusting) as remote:
            remote.bind("secret", double, [vector("x")], [vector("y")])
            large = {"x": X.repeat(100_000, axis=1)}
            assert server.model("secret").infer(large)["y"].shape == (1, 200_000)

        with pytest.raises(Unavailable, match="certificate verify failed"):
            RemoteServer(f"tls://localhost:{port}", token=token).start()
        with pytest.raises(Unavailable, match="no server at"):
            RemoteServer(f"tcp://localhost:{port}", token=token, connect_timeout_s=0.1).start()
        for address in (f"localhost:{port}", f"tcp://localhost:{port}", "unix:/tmp/x"):
            with pytest.raises(InvalidArg, match="expected tls://HOST:PORT: nothing would be encrypted"):
                RemoteServer(address, token=token, tls=trusting)


def test_a_program_that_hangs_does_not_hold_up_the_stop_of_its_server(token_file, token):
    go_on = threading.Event()
    begun = threading.Event()

    def hanging(requests):
        begun.set()
        go_on.wait(DEADLINE_S)
        return [{"y": request["x"]} for request in requests]

    server = Server(options(token_file, exit_timeout_s=0)).start()
    with RemoteServer(f"127.0.0.1:{server.port('bind')}", token=token, stop_timeout_s=DEADLINE_S) as remote:
        remote.bind("hanging", hanging, [vector("x")], [vector("y")])
        future = server.model("hanging").submit({"x": X})
        assert begun.wait(DEADLINE_S)

        server.stop()

        with pytest.raises(Unavailable):
            future.result(DEADLINE_S)
        go_on.set()
