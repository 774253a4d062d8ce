"""Fetch and run the real tritonserver and perf_analyzer, so that we can be compared with them.

Run as a program; nothing imports it and it needs the standard library only:

    python benchmarks/real_triton.py fetch
    python benchmarks/real_triton.py serve --model-repository DIR [--http-port 0 …] [-- SERVER OPTIONS]
    python benchmarks/real_triton.py perf -- -m identity_py -u localhost:8000 …

Both programs are development tools taken from wheels on the package index and kept under
`.cache/real-triton/` (or `$REAL_TRITON_CACHE`). tritonserver 2.51 with its Python backend lies in
`nvidia-pytriton`; perf_analyzer lies in some Linux wheels of `tritonclient`. Neither wheel is installed: we
unpack them and set the search paths ourselves, so their dependencies never touch the project's environment.

The server's Python models run on the interpreter that runs this script: its version picks the stub, and its
shared library is what the stub loads. The stub takes its packages from the environment of the first
`python3` on PATH and ignores PYTHONPATH; so we make one in the cache, with a numpy older than 2: the stub was
built before that, takes newer arrays for empty ones, and answers without data instead of complaining.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

SERVER_WHEEL = "nvidia-pytriton==0.7.0"
CLIENT_WHEEL = "tritonclient==2.51.0"  # from 2.53 on its perf_analyzer asks for glibc 2.38
NUMPY = "numpy<2"  # what the stub's binding understands
CLIENT_PLATFORM = "manylinux1_x86_64"  # the wheel for "any" platform carries no perf_analyzer
LAYOUT = f"{SERVER_WHEEL} {CLIENT_WHEEL}"  # written last; a cache without it is laid out again
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
DEFAULT_CACHE = Path(__file__).resolve().parent.parent / ".cache" / "real-triton"
PR_SET_PDEATHSIG = 1
PORT_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 10.0
PAUSES_S = (3, 15)  # between the attempts to fetch something


def main(argv: list[str]) -> int:
    """Read the command line and run one of the three commands."""
    own, extra = _split_at_dashes(argv)
    parser = argparse.ArgumentParser(description="Fetch and run the real tritonserver and perf_analyzer.")
    default_cache = Path(os.environ.get("REAL_TRITON_CACHE", DEFAULT_CACHE))
    parser.add_argument("--cache", type=Path, default=default_cache)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="download and unpack both wheels; print the paths as JSON")
    serve_parser = commands.add_parser("serve", help="run tritonserver; what follows -- goes to it")
    serve_parser.add_argument("--model-repository", type=Path, required=True, action="append")
    for name in ("http", "grpc", "metrics"):
        serve_parser.add_argument(f"--{name}-port", type=int, default=0, help="0 picks a free port")
    serve_parser.add_argument("--ready-timeout-s", type=float, default=60.0)
    commands.add_parser("perf", help="run perf_analyzer with the arguments after --")
    options = parser.parse_args(own)

    cache: Path = options.cache.resolve()
    paths = fetch(cache)
    if options.command == "fetch":
        print(json.dumps(paths, indent=2))
        return 0
    if options.command == "perf":
        program = paths["perf_analyzer"]
        os.execve(program, [program, *extra], _environment(paths))
    names = ("http", "grpc", "metrics")
    free = zip(names, _free_ports(len(names)), strict=True)
    ports = {name: getattr(options, f"{name}_port") or port for name, port in free}
    return serve(paths, options.model_repository, ports, extra, options.ready_timeout_s)


def fetch(cache: Path) -> dict[str, str]:
    """Make sure both wheels lie unpacked in `cache` and return where the programs and libraries are."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:  # several test processes may ask at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        unpacked = cache / "unpacked"
        stamp = unpacked / "complete"
        if not stamp.exists() or stamp.read_text() != LAYOUT:
            wheels = cache / "wheels"
            _download(wheels, SERVER_WHEEL)
            _download(wheels, CLIENT_WHEEL, "--platform", CLIENT_PLATFORM)
            shutil.rmtree(unpacked, ignore_errors=True)
            for requirement in (SERVER_WHEEL, CLIENT_WHEEL):
                _unpack(_wheel_file(wheels, requirement), unpacked)
            stamp.write_text(LAYOUT)
        return _lay_out(cache, unpacked)


def serve(
    paths: dict[str, str],
    repositories: list[Path],
    ports: dict[str, int],
    extra: list[str],
    ready_timeout_s: float,
) -> int:
    """Run tritonserver until it ends; print one JSON line on standard output once it answers.

    The line is `{"http": …, "grpc": …, "metrics": …, "pid": …, "ready": …, "ready_s": …}`: the ports, the
    server's own process, and the seconds from its start to the answer. `ready` is false when the server
    answers but is not ready for a whole second: so stays one with a broken model that was told not to exit.
    Its own log goes to standard error. SIGTERM and SIGINT are passed on, and the server ends with us.
    """
    command = [
        paths["tritonserver"],
        *(f"--model-repository={repository.resolve()}" for repository in repositories),
        f"--backend-directory={paths['backends']}",
        f"--cache-directory={paths['caches']}",
        *(f"--{name}-port={port}" for name, port in ports.items()),
        *(f"--{name}-address=127.0.0.1" for name in ports),
        "--allow-gpu-metrics=false",
        *extra,
    ]
    started = time.monotonic()
    libc = ctypes.CDLL(None)  # found here: the child between fork and exec should only make the call
    server = subprocess.Popen(
        command,
        env=_environment(paths),
        stdout=sys.stderr,
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda caught, _frame: server.send_signal(caught))
    ready = _wait_until_answering(server, ports["http"], ready_timeout_s)
    if ready is not None:
        for name in ("grpc", "metrics"):
            if f"--allow-{name}=false" not in extra:
                _wait_until_listening(server, ports[name])
        ready_s = round(time.monotonic() - started, 3)
        print(json.dumps({**ports, "pid": server.pid, "ready": ready, "ready_s": ready_s}), flush=True)
    return server.wait()


def _wait_until_answering(server: subprocess.Popen[bytes], port: int, timeout_s: float) -> bool | None:
    """Wait for the server's first answers: True is ready, False is up but not ready, None is ended."""
    give_up = time.monotonic() + timeout_s
    unready_since = None
    while server.poll() is None:
        now = time.monotonic()
        if now > give_up:
            print(f"tritonserver gave no answer on port {port} in {timeout_s:g} s; stopped", file=sys.stderr)
            _stop(server)
            return None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5):
                return True
        except urllib.error.HTTPError:
            unready_since = unready_since or now
            if now - unready_since > 1.0:
                return False
        except OSError:
            pass  # not listening yet
        time.sleep(0.01)
    return None


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End a server that does not start; it need not end when it is told to."""
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()


def _wait_until_listening(server: subprocess.Popen[bytes], port: int) -> None:
    """Wait until connections are taken on a port that may be opened after that of HTTP, as is metrics'."""
    give_up = time.monotonic() + PORT_TIMEOUT_S
    while server.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.01)


def _environment(paths: dict[str, str]) -> dict[str, str]:
    """Return the environment both programs need: where libraries are, and which Python the stub takes."""
    environment = dict(os.environ)
    first = {
        "LD_LIBRARY_PATH": [paths["lib"], paths["libs"], paths["libpython_dir"]],
        "PATH": [str(Path(paths["environment"]) / "bin")],
    }
    for name, folders in first.items():
        inherited = environment.get(name)
        environment[name] = ":".join([*folders, inherited] if inherited else folders)
    return environment


def _lay_out(cache: Path, unpacked: Path) -> dict[str, str]:
    """Put this Python's stub beside the Python backend and give hashed libraries their plain names."""
    triton = unpacked / "pytriton" / "tritonserver"
    libs = unpacked / "nvidia_pytriton.libs"
    perf_analyzer = next(unpacked.glob("tritonclient-*.data/data/bin/perf_analyzer"))
    stub = triton / "python_backend_stubs" / PYTHON / "triton_python_backend_stub"
    if not stub.exists():
        found = sorted(entry.name for entry in stub.parent.parent.iterdir())
        raise SystemExit(f"no Python backend stub for Python {PYTHON}; {SERVER_WHEEL} has {', '.join(found)}")
    for program in (triton / "bin" / "tritonserver", stub, perf_analyzer):
        program.chmod(0o755)  # zipfile drops the mode bits

    backend = cache / f"backends-{PYTHON}" / "python"
    backend.mkdir(parents=True, exist_ok=True)
    for source in (triton / "backends" / "python").iterdir():
        _link(backend / source.name, source)
    _link(backend / stub.name, stub)

    lib = cache / "lib"
    lib.mkdir(exist_ok=True)
    # perf_analyzer asks for these by the names they had before the wheel's repair tool hashed them.
    for plain, pattern in {
        "libb64.so.0d": "libb64-*.so.0d",
        "libcudart.so.12": "libcudart-*.so.12*",
        "libssl.so.3": "libssl-*.so.3",
        "libcrypto.so.3": "libcrypto-*.so.3",
    }.items():
        _link(lib / plain, next(libs.glob(pattern)))
    return {
        "tritonserver": str(triton / "bin" / "tritonserver"),
        "perf_analyzer": str(perf_analyzer),
        "backends": str(backend.parent),
        "caches": str(triton / "caches"),
        "libs": str(libs),
        "lib": str(lib),
        "libpython_dir": str(_libpython_dir()),
        "environment": str(_python_environment(cache)),
    }


def _libpython_dir() -> Path:
    """Find the folder of this interpreter's shared library, which the stub is linked to."""
    name = f"libpython{PYTHON}.so.1.0"
    candidates = [Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib"), Path(sys.base_prefix) / "lib"]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    if multiarch:
        candidates.append(Path("/usr/lib") / multiarch)
    for folder in candidates:
        if (folder / name).exists():
            return folder
    looked = ", ".join(str(folder) for folder in candidates)
    raise SystemExit(f"{name} not found in {looked}: the real server's Python models need a shared libpython")


def _python_environment(cache: Path) -> Path:
    """Return the virtual environment that Python models run in, with a numpy that the stub understands."""
    folder = cache / f"environment-{PYTHON}"
    site_packages = Path("lib") / f"python{PYTHON}" / "site-packages"
    if not (folder / site_packages / "numpy").exists():
        # The folder is whole or not there, also where this is ended meanwhile.
        partial = folder.with_name(f"{folder.name}.new")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(partial)], check=True)
        to_environment = ("--only-binary=:all:", "--upgrade", "--target", str(partial / site_packages))
        _pip("install", "--quiet", "--no-deps", *to_environment, NUMPY)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    return folder


def _download(wheels: Path, requirement: str, *options: str) -> None:
    """Download the wheel of `requirement` unless it is already there."""
    if _wheel_file(wheels, requirement) is None:
        to_wheels = ("--only-binary=:all:", "--dest", str(wheels))
        _pip("download", "--quiet", "--no-deps", *to_wheels, *options, requirement)


def _pip(*arguments: str) -> None:
    """Run pip of this interpreter, again if it fails: it goes on after some faults of a network only.

    Its messages go to standard error, so that our JSON stays alone.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    for pause_s in (*PAUSES_S, None):
        status = subprocess.run(command, stdout=sys.stderr).returncode
        if status == 0:
            return
        if pause_s is None:
            attempts = len(PAUSES_S) + 1
            raise SystemExit(f"failed {attempts} times, the last time with {status}: {' '.join(command)}")
        print(f"pip ended with {status}, it is run again in {pause_s} s", file=sys.stderr)
        time.sleep(pause_s)


def _wheel_file(wheels: Path, requirement: str) -> Path | None:
    """Return the downloaded wheel of `name==version`, if there is one."""
    name, _, version = requirement.partition("==")
    return next(iter(sorted(wheels.glob(f"{name.replace('-', '_')}-{version}-*manylinux*.whl"))), None)


def _unpack(wheel: Path | None, target: Path) -> None:
    """Unpack one wheel into `target`."""
    if wheel is None:
        raise SystemExit("pip left no manylinux wheel: is this x86-64 Linux with glibc 2.35 or newer?")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)


def _link(link: Path, target: Path) -> None:
    """Make `link` point to `target`, replacing what stood there."""
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _free_ports(count: int) -> list[int]:
    """Ask the kernel for ports nobody listens on; that one is taken before the server binds it is rare.

    All are held until the last one is there: otherwise one may come twice.
    """
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _split_at_dashes(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments at the first `--`: ours, and those for the program we run."""
    position = argv.index("--") if "--" in argv else len(argv)
    return argv[:position], argv[position + 1 :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
