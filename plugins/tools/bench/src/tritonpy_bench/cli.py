"""The command `corectl bench`; the rest of the distribution is imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from tritonpy.hookspecs import hookimpl  # `tritonpy.plugin` imports numpy, and this runs for `corectl --help`


@hookimpl
def cli_commands(group: click.Group) -> None:
    """See `CliHooks`."""
    group.add_command(bench)


class _Range(click.ParamType[Any]):
    """Numbers as START, START:END or START:END:STEP."""

    name = "range"

    def __init__(self, number: type[int] | type[float]) -> None:
        self._number = number

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click."""
        from tritonpy_bench.ranges import parse_range

        if not isinstance(value, str):
            return value
        try:
            return parse_range(value, self._number, self._number(1))
        except ValueError:
            self.fail(
                f"'{value}': expected START, START:END or START:END:STEP, such as 1:8 or 4:16:4", param, ctx
            )


@click.command(short_help="Measure how quickly a model answers, and where its time goes.")
@click.argument("model")
@click.option("-x", "--model-version", default="", metavar="VERSION", help="The version that is asked.")
@click.option(
    "-i",
    "--protocol",
    type=click.Choice(("http", "grpc"), case_sensitive=False),
    default="http",
    show_default=True,
    help="By what requests are sent.",
)
@click.option(
    "-u",
    "--url",
    metavar="HOST:PORT",
    help="Where the server is; https:// or grpcs:// before it for TLS.  "
    "[default: localhost:8000, for gRPC localhost:8001]",
)
@click.option(
    "--tls-ca",
    "--ssl-https-ca-certificates-file",
    "--ssl-grpc-root-certifications-file",
    "ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Certificates that the server's may be signed with, in PEM.  [default: those the system trusts]",
)
@click.option(
    "--tls-cert",
    "--ssl-https-client-certificate-file",
    "--ssl-grpc-certificate-chain-file",
    "certificate",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Certificate of this client, for servers that want one.",
)
@click.option(
    "--tls-key",
    "--ssl-https-private-key-file",
    "--ssl-grpc-private-key-file",
    "key",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Key of it, if it is not in the same file.",
)
@click.option(
    "--http-url",
    metavar="HOST:PORT",
    help="With gRPC: where HTTP is, which alone tells why batches closed; with files for TLS it is "
    "encrypted, too, unless this begins with http://.",
)
@click.option(
    "--concurrency-range",
    "concurrencies",
    type=_Range(int),
    default="1",
    show_default=True,
    metavar="START:END:STEP",
    help="Requests in flight at any time: a load for each number.",
)
@click.option(
    "--periodic-concurrency-range",
    "growing",
    type=_Range(int),
    metavar="START:END:STEP",
    help="Instead: requests in flight that grow by STEP each --request-period answers, in one load.",
)
@click.option(
    "--request-period",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Answers between two steps of it.",
)
@click.option(
    "--request-rate-range",
    "rates",
    type=_Range(float),
    metavar="START:END:STEP",
    help="Instead: requests in a second, sent whether or not others are answered: a load for each number.",
)
@click.option(
    "--request-distribution",
    "distribution",
    type=click.Choice(("constant", "poisson")),
    default="constant",
    show_default=True,
    help="Of the times between the requests of a rate.",
)
@click.option(
    "--request-intervals",
    "intervals",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Instead: times between requests, in microseconds, one on each line; again and again.",
)
@click.option(
    "--replay",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Instead: the times of the requests to the model in a trace file, or times in seconds, one on each "
    "line.",
)
@click.option(
    "--replay-speed",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="2 to send them in half of the time.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Client processes that share each load.",
)
@click.option(
    "-b", "--batch-size", type=click.IntRange(1), default=1, show_default=True, help="Rows of a request."
)
@click.option(
    "--input-data",
    "sources",
    multiple=True,
    default=("random",),
    show_default=True,
    metavar="random|zero|PATH",
    help="What inputs hold. A path is a directory with a file for each input, or a file of JSON as "
    "perf_analyzer reads it. May be repeated.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME:SIZES",
    help="Shape of an input without the batch dimension, as INPUT0:3,224,224. May be repeated.",
)
@click.option(
    "--string-length",
    type=click.IntRange(0),
    default=128,
    show_default=True,
    help="Characters of each random string.",
)
@click.option("--string-data", metavar="TEXT", help="All strings instead of random ones.")
@click.option(
    "-p",
    "--measurement-interval",
    "window_ms",
    type=click.IntRange(1),
    default=5000,
    show_default=True,
    help="Milliseconds of a window.",
)
@click.option(
    "-s",
    "--stability-percentage",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="By how much the rates and latencies of three windows in a row may differ from their means.",
)
@click.option(
    "-r",
    "--max-trials",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Windows after which a load ends that is not stable.",
)
@click.option(
    "--percentile",
    type=click.FloatRange(0, 100, min_open=True),
    help="The percentile of latencies that has to be stable.  [default: their mean]",
)
@click.option(
    "--warmup",
    "warmup_s",
    type=click.FloatRange(0),
    default=0.5,
    show_default=True,
    help="Seconds before windows.",
)
@click.option(
    "--request-count",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Send N requests and wait for the answers, instead of windows.",
)
@click.option(
    "-l",
    "--latency-threshold",
    "threshold_ms",
    type=click.FloatRange(0, min_open=True),
    metavar="MS",
    help="End a range at the first load that is slower, by the percentile or the mean.",
)
@click.option(
    "--binary-search",
    is_flag=True,
    help="Find the last load of a range within --latency-threshold by halves.",
)
@click.option("--streaming", is_flag=True, help="With gRPC: send over streams, as decoupled models need it.")
@click.option(
    "--endpoint",
    type=click.Choice(("infer", "generate", "generate_stream")),
    default="infer",
    show_default=True,
    help="With HTTP: to what requests are sent.",
)
@click.option(
    "--shared-memory",
    type=click.Choice(("none", "system", "cuda")),
    default="none",
    show_default=True,
    help="Put tensors into shared memory, or that of a GPU; the server is on this machine.",
)
@click.option(
    "--cuda-device",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="The number of that GPU.",
)
@click.option(
    "--output-shared-memory-size",
    "output_byte_size",
    type=click.IntRange(1),
    default=102400,
    show_default=True,
    help="Bytes for each output there.",
)
@click.option(
    "--tokens",
    default="",
    metavar="OUTPUT",
    help="Count the elements of an output, as those of language models: in a second, and the time between "
    "them.",
)
@click.option(
    "--sequence-length",
    type=click.IntRange(1),
    help="Requests of a sequence.  [default: those of its input data, or 20]",
)
@click.option(
    "--sequence-length-variation",
    "sequence_variation",
    type=click.FloatRange(0, 100),
    default=20.0,
    show_default=True,
    help="By how many percent sequences are longer or shorter.",
)
@click.option(
    "--num-of-sequences",
    "sequence_count",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Sequences at a time, where requests are sent at a rate.",
)
@click.option(
    "--start-sequence-id",
    "first_id",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="The least correlation id.",
)
@click.option(
    "--sequence-id-range",
    "id_count",
    type=click.IntRange(1),
    default=1 << 30,
    show_default=True,
    help="Correlation ids before they begin again.",
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Sent with each request."
)
@click.option(
    "--request-parameter",
    "parameters",
    multiple=True,
    metavar="NAME:VALUE:TYPE",
    help="A parameter of each request; the type is bool, int, double or string. May be repeated.",
)
@click.option(
    "--timeout", "timeout_s", type=float, default=60.0, show_default=True, help="Seconds for an answer."
)
@click.option(
    "-f",
    "--latency-report-file",
    "csv",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the table as CSV, with columns named as perf_analyzer names them.",
)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write a page with plots, which opens without a network.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bench(**options: Any) -> int:
    """Send requests to a model, and tell how quickly they are answered and where the time goes.

    Windows are measured until three in a row agree. A load for each number of a range; a row for each load.
    """
    from tritonpy_bench.command import run

    return run(**options)
