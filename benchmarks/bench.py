"""Compare our server with the real tritonserver, side by side on this machine.

    python benchmarks/bench.py [--quick] [--name NAME] [--servers triton ours] [--parts cases conv]

README.md beside this file says what is measured and how to read it. Results go to
`benchmarks/results/<date>-<name>.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import process_tree
import report
from bench_servers import OURS_COMMAND, TRITON_COMMAND, NotStarted, RunningServer, start
from interleaved import Measure, interleaved, report_cases
from load_generator import WINDOWS, Load, measure
from machine_facts import machine_facts

HERE = Path(__file__).resolve().parent
MODELS = HERE / "models"
IDENTITY_MODELS = ("identity_py", "identity_py_batched")
PARTS = ("startup", "cases", "compiled", "python", "grpc", "loading", "conv")
GRPC_LOADS = ("calls", "streamed-calls", "streams", "sequences")
NOT_QUICK = ("compiled", "python", "grpc", "loading")
CONCURRENCY = (1, 8, 32)
IDLE_S = 1.0
Results = dict[str, Any]  # becomes JSON


def main() -> int:
    """Run the chosen parts, print them and write the file."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that the servers stop
    templates = {"triton": options.triton_command, "ours": options.ours_command}
    for transport in ("native", "grpcio"):
        templates[f"ours-{transport}"] = f"{options.ours_command} --grpc-transport={transport}"
    templates = {name: templates[name] for name in report.SERVERS if name in options.servers}
    results: Results = {
        "name": options.name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine_facts(),
        "settings": {key: _portable(value) for key, value in vars(options).items() if key != "name"},
    }
    load = results["machine"]["load_average_at_start"]
    if load > 0.5:
        print(f"The machine is busy (load average {load:.1f}): trust ratios, not rates.\n")
    print(
        f"{options.rounds} interleaved rounds; each measurement is exactly {WINDOWS} windows of"
        f" {options.window_ms} ms (perf_analyzer's search for a stable value is off).\n"
    )
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            scratch = Path(folder)
            if "startup" in options.parts:
                results["startup"] = _measure_startup(templates, scratch, options.startup_rounds)
            if "cases" in options.parts:
                results["cases"] = _measure_cases(templates, scratch, options)
            if "compiled" in options.parts:
                results["compiled"] = _measure_compiled(templates, scratch, options)
            if "python" in options.parts:
                results["python"] = _measure_python(templates, scratch, options)
            if "grpc" in options.parts:
                results["grpc"] = _measure_grpc(templates, scratch, options)
            if "loading" in options.parts:
                results["loading"] = _measure_loading(templates, scratch, options)
            if "conv" in options.parts:
                results["conv"] = _measure_conv(templates, scratch, options)
    except NotStarted as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; both servers are stopped, nothing is written", file=sys.stderr)
        return 130
    results["minutes"] = round(sum(_durations(results)) / 60, 1)
    print(f"\nwritten: {_write(results)}")
    return 0


def _options() -> argparse.Namespace:
    """Read the command line; `--quick` only changes defaults."""
    parser = argparse.ArgumentParser(description="Compare our server with the real tritonserver.")
    parser.add_argument("--quick", action="store_true", help="3 rounds of short windows, under two minutes")
    parser.add_argument("--name", help="end of the result file's name; default bench or quick")
    parser.add_argument("--servers", nargs="+", choices=report.SERVERS, default=["triton", "ours"])
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, help=f"default all; --quick leaves out {NOT_QUICK}"
    )
    parser.add_argument("--rounds", type=int, help="default 5, with --quick 3")
    parser.add_argument("--startup-rounds", type=int, help="default as --rounds, with --quick 1")
    parser.add_argument("--window-ms", type=int, help="default 1000, with --quick 250")
    parser.add_argument("--model", default="identity_py", help="a model of benchmarks/models")
    parser.add_argument("--protocols", nargs="+", choices=("http", "grpc"), default=["http", "grpc"])
    parser.add_argument("--concurrency", nargs="+", type=int, help="default 1 8 32, for the part python 1 8")
    parser.add_argument("--sizes", nargs="+", type=int, default=[64, 1 << 20], help="bytes of the tensor")
    parser.add_argument("--grpc-loads", nargs="+", choices=GRPC_LOADS, default=GRPC_LOADS, help="default all")
    parser.add_argument("--python-models", nargs="+", help="models of the part python; default all")
    parser.add_argument(
        "--ours-command",
        default=OURS_COMMAND,
        help="another server in the place of ours; {repository} {http} {grpc} {metrics} are filled in",
    )
    parser.add_argument(
        "--triton-command",
        default=TRITON_COMMAND,
        help="another server in the place of the real one, such as ours of an earlier commit",
    )
    options = parser.parse_args()
    quick = options.quick
    options.name = options.name or ("quick" if quick else "bench")
    options.parts = options.parts or [part for part in PARTS if not (quick and part in NOT_QUICK)]
    options.rounds = options.rounds or (3 if quick else 5)
    options.startup_rounds = options.startup_rounds or (1 if quick else options.rounds)
    options.window_ms = options.window_ms or (250 if quick else 1000)
    return options


def _measure_startup(templates: dict[str, str], scratch: Path, rounds: int) -> Results:
    """Start each server on its own several times; note when it was ready and what it holds while idle."""
    rows: dict[str, list[Results]] = {name: [] for name in templates}
    started = time.monotonic()
    for _ in range(rounds):
        for name, template in templates.items():
            with _running({name: template}, scratch) as servers:
                server = servers[name]
                before_us = process_tree.cpu_time_us(server.root_pid)
                time.sleep(IDLE_S)
                idle_us = process_tree.cpu_time_us(server.root_pid) - before_us
                memory = asdict(process_tree.memory(server.root_pid))
            percent = round(idle_us / IDLE_S / 1e4, 1)
            rows[name].append({"ready_s": server.ready_s, **memory, "idle_cpu_percent": percent})
    print(f"start to ready, and idle afterwards (2 models, medians of {rounds})")
    for name, found in rows.items():
        ready, rss, pss, cpu = (
            report.median(found, field) for field in ("ready_s", "rss_mib", "pss_mib", "idle_cpu_percent")
        )
        processes = found[0]["processes"]
        print(f"  {name:<7} {ready} s, {processes} processes, RSS {rss} MiB, PSS {pss} MiB, CPU {cpu} %")
    pairs = [dict(zip(rows, pair, strict=True)) for pair in zip(*rows.values(), strict=True)]
    ratio = {field: report.median_ratio(pairs, field) for field in ("ready_s", "rss_mib", "pss_mib")}
    if {"triton", "ours"} <= rows.keys():
        print("  ours/Triton: " + ", ".join(f"{field} {report.times(ratio[field])}" for field in ratio))
    print()
    return {**rows, "ratio": ratio, "duration_s": round(time.monotonic() - started, 1)}


def _measure_cases(templates: dict[str, str], scratch: Path, options: argparse.Namespace) -> Results:
    """Measure every combination of protocol, concurrency and size, alternating between the servers."""
    loads = [
        Load(options.model, protocol, concurrency, "INPUT0", str(byte_size // 4), byte_size)
        for byte_size, protocol, concurrency in itertools.product(
            options.sizes, options.protocols, options.concurrency or CONCURRENCY
        )
    ]
    started = time.monotonic()
    with _running(templates, scratch, (*IDENTITY_MODELS, options.model)) as servers:
        for server in servers.values():
            _check_answers(server, loads)
        found = interleaved(servers, loads, options.rounds, _unary(options))
    print(report.header())
    return {"cases": report_cases(found), "duration_s": round(time.monotonic() - started, 1)}


def _measure_compiled(templates: dict[str, str], scratch: Path, options: argparse.Namespace) -> Results:
    """Measure a backend in C++, the same file on both servers; on ours in a worker and on a thread."""
    import compiled_models

    concurrency = options.concurrency or CONCURRENCY
    loads = compiled_models.loads(options.protocols, concurrency, options.sizes)
    started = time.monotonic()
    library = compiled_models.build(scratch)
    with _running(templates, scratch, compiled_models.MODELS, library) as servers:
        for server in servers.values():
            for model in compiled_models.MODELS:
                _check_answers(server, [load for load in loads if load.model_name == model])
        found = interleaved(servers, loads, options.rounds, _unary(options))
    print(f"\n{report.header()}")
    return {"cases": report_cases(found), "duration_s": round(time.monotonic() - started, 1)}


def _measure_python(templates: dict[str, str], scratch: Path, options: argparse.Namespace) -> Results:
    """Measure Python models that do more than return their input, and one that streams responses."""
    import python_models
    from stream_load import FIELDS, measure_stream

    concurrency = options.concurrency or python_models.CONCURRENCY
    chosen = options.python_models or python_models.MODELS
    loads = python_models.python_loads(options.protocols, concurrency)
    loads = [load for load in loads if load.model_name in chosen]
    streams = python_models.stream_loads(concurrency) if "grpc" in options.protocols else []
    streams = [load for load in streams if load.model_name in chosen]
    stream_s = WINDOWS * options.window_ms / 1000
    started = time.monotonic()
    with _running(templates, scratch, python_models.MODELS) as servers:
        for server in servers.values():
            python_models.check_answers(server, loads, streams)
        found = interleaved(servers, loads, options.rounds, _unary(options))
        streamed = interleaved(
            servers, streams, options.rounds, lambda server, load, _: measure_stream(server, load, stream_s)
        )
    results: Results = {}
    if loads:
        print(f"\n{report.header()}")
        results["cases"] = report_cases(found)
    if streams:
        print("\nresponses over the gRPC stream; p50 and p99 of a request's first response")
        print(report.header("resp/s", "CPU µs/resp"))
        results["streams"] = report_cases(streamed, FIELDS)
    return {**results, "duration_s": round(time.monotonic() - started, 1)}


def _measure_grpc(templates: dict[str, str], scratch: Path, options: argparse.Namespace) -> Results:
    """Measure what transports of gRPC differ in: single calls, streams, sequences and shared memory."""
    import grpc_loads
    from stream_load import FIELDS, check_stream, measure_stream

    chosen = options.grpc_loads
    loads = [
        load
        for load in grpc_loads.unary_loads(options.protocols)
        if ("streamed-calls" if load.is_streaming else "calls") in chosen
    ]
    streams = grpc_loads.STREAMS if "streams" in chosen else []
    sequences = grpc_loads.SEQUENCES if "sequences" in chosen else []
    seconds = WINDOWS * options.window_ms / 1000
    started = time.monotonic()
    with _running(templates, scratch, grpc_loads.MODELS) as servers:
        for server in servers.values():
            _check_answers(server, [load for load in loads if load.model_name == "identity_py"])
            check_stream(server, "repeat_py")
            grpc_loads.check_sequence(server)
        found = interleaved(servers, loads, options.rounds, _unary(options))
        streamed = interleaved(
            servers,
            streams,
            options.rounds,
            lambda server, load, _: measure_stream(server, load, seconds),
        )
        summed = interleaved(
            servers,
            sequences,
            options.rounds,
            lambda server, load, _: grpc_loads.measure_sequences(server, load, seconds),
        )
    results: Results = {}
    if loads:
        print(f"\n{report.header()}")
        results["cases"] = report_cases(found)
    if streams:
        print("\nresponses over the gRPC stream; p50 and p99 of a request's first response")
        print(report.header("resp/s", "CPU µs/resp"))
        results["streams"] = report_cases(streamed, FIELDS)
    if sequences:
        print("\nsequences that share one stream of tritonclient")
        print(report.header())
        results["sequences"] = report_cases(summed)
    return {**results, "duration_s": round(time.monotonic() - started, 1)}


def _unary(options: argparse.Namespace) -> Measure[Load]:
    """Return what measures one load once, with the chosen windows."""
    return lambda server, load, idle: measure(server, load, options.window_ms, idle)


def _measure_loading(templates: dict[str, str], scratch: Path, options: argparse.Namespace) -> Results:
    """Measure the identity model's p99 while another model loads."""
    from model_loading import measure_while_loading

    started = time.monotonic()
    print(f"\np99 of {options.model}, one request at a time over HTTP, while another model loads and unloads")
    found: Results = {}
    for name, template in templates.items():
        found[name] = measure_while_loading(name, template, scratch, options.window_ms, options.rounds)
        if "not_measured" in found[name]:
            print(f"  {name:<7} not measured: {found[name]['not_measured']}")
            continue
        alone = report.median(found[name]["alone"], "p99_us")
        beside = report.median(found[name]["while_loading"], "p99_us")
        print(f"  {name:<7} {beside:,.0f} µs, undisturbed {alone:,.0f} µs ({found[name]['loads']} loads)")
        for failure in found[name]["failures"]:
            print(f"  {name:<7} one round failed: {failure}")
    return {**found, "duration_s": round(time.monotonic() - started, 1)}


def _measure_conv(templates: dict[str, str], scratch: Path, options: argparse.Namespace) -> Results:
    """Measure our server with a model that computes, against the framework alone."""
    started = time.monotonic()
    print("\nconvolutional network: served end to end / ONNX Runtime in a bare loop on the same batches")
    if "ours" not in templates:
        found: Results = {"not_measured": "ours is not among --servers"}
    else:
        from conv_model import measure_conv_model

        found = measure_conv_model(templates["ours"], scratch, options.window_ms, options.rounds)
    if "not_measured" in found:
        print(f"  not measured: {found['not_measured']}")
    else:
        for title, case in found.items():
            last = case["rounds"][-1]
            print(f"  {title}: {case['ratio']:.3f}; batches {last['batches']}, ms {last['bare_batch_ms']}")
    return {**found, "duration_s": round(time.monotonic() - started, 1)}


@contextlib.contextmanager
def _running(
    templates: dict[str, str],
    scratch: Path,
    models: Iterable[str] = IDENTITY_MODELS,
    library: Path | None = None,
) -> Iterator[dict[str, RunningServer]]:
    """Run the servers on some of `benchmarks/models` for as long as the `with` block lasts.

    `library`, a compiled backend, is put beside each of them.
    """
    with contextlib.ExitStack() as stack:
        repository = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        for model in dict.fromkeys(models):
            shutil.copytree(MODELS / model, repository / model, ignore=shutil.ignore_patterns("__pycache__"))
            if library is not None:
                shutil.copy(library, repository / model)
        servers = {}
        for name, template in templates.items():
            servers[name] = start(name, template, repository, scratch / f"{name}.log")
            stack.callback(servers[name].stop)
        yield servers


def _check_answers(server: RunningServer, loads: list[Load]) -> None:
    """Refuse to measure a server whose identity answers with something else than its input.

    perf_analyzer does not look at answers, and one without data is a fast answer.
    """
    server.wait_for(loads[0].model_name)
    for byte_size in {load.byte_size for load in loads}:
        values = bytes(itertools.islice(itertools.cycle(range(64)), byte_size))
        shape = [1, byte_size // 4] if loads[0].model_name.endswith("_batched") else [byte_size // 4]
        answer = server.infer_binary(loads[0].model_name, "INPUT0", shape, values)
        if not answer.endswith(values):
            raise NotStarted(
                f"{server.name} answered {byte_size} bytes with something else: {answer[:300]!r}"
            )


def _portable(setting: object) -> object:
    """A setting without the directory in which this checkout is."""
    return setting.replace(f"{HERE.parent}/", "") if isinstance(setting, str) else setting


def _durations(results: Results) -> Iterator[float]:
    """Yield the seconds each part took."""
    for part in PARTS:
        if part in results:
            yield results[part]["duration_s"]


def _write(results: Results) -> Path:
    """Write the result file, beside an older one of the same day and name."""
    stem = f"{results['date'][:10]}-{results['name']}"
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    numbered = (folder / f"{stem}{'' if n == 1 else f'-{n}'}.json" for n in itertools.count(1))
    path = next(path for path in numbered if not path.exists())
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
