"""The commands `corectl analyze` and `explain`; the rest is imported when they are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from tritonpy.hookspecs import hookimpl  # `tritonpy.plugin` imports numpy, and this runs for `corectl --help`


@hookimpl
def cli_commands(group: click.Group) -> None:
    """See `CliHooks`."""
    group.add_command(analyze)
    group.add_command(explain)


@click.command(short_help="Find the configuration with which models answer best.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option(
    "--model-repository",
    "--model-store",
    "repositories",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where the models are. May be repeated.",
)
@click.option(
    "--file",
    "plan_file",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="YAML with what to try, for what and how; options win over it.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[MODEL.]SETTING=VALUES",
    help="Values to try of a setting, such as instances=1:4 or max_batch_size=1:64:x2. May be repeated. "
    " [default: what suits the model]",
)
@click.option(
    "--concurrency", metavar="VALUES", help="Requests at once, likewise.  [default: 1:32:x2, 1 to 32]"
)
@click.option(
    "--rate", metavar="VALUES", help="Requests in a second, by chance, instead of so many at once; likewise."
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="METRIC[=WEIGHT]",
    help="What is wanted; several are weighted.  [default: throughput]",
)
@click.option(
    "--max",
    "most",
    multiple=True,
    metavar="METRIC=VALUE",
    help="The most that a metric may be, such as latency_p99=20ms or memory=2GiB. May be repeated.",
)
@click.option(
    "--min",
    "least",
    multiple=True,
    metavar="METRIC=VALUE",
    help="The least, such as throughput=500. May be repeated.",
)
@click.option(
    "--search",
    type=click.Choice(("quick", "brute", "optuna")),
    help="How to go through the points.  [default: quick]",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    metavar="N",
    help="The most points to try, unless it is brute.  [default: a quarter of all, or 20 if that is more]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what the search leaves to chance.")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=1, show_default=True, help="Rows of each request."
)
@click.option(
    "--input-data",
    default="random",
    show_default=True,
    metavar="SOURCE",
    help="Contents of inputs: random, zero, or a file or folder as for `corectl bench`.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT:DIMS",
    help="Shape of an input without the batch, such as IMAGE:3,224,224, where the model leaves it open.",
)
@click.option(
    "--tokens",
    default="",
    metavar="OUTPUT",
    help="Count the elements of an output, which each model has, for the metrics of tokens.",
)
@click.option(
    "--window",
    "window_s",
    type=click.FloatRange(min=0.05),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Length of a window.",
)
@click.option(
    "--windows",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="The most windows of a trial; one that is hopeless, or known well enough, ends before.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.99,
    show_default=True,
    help="How sure it must be that a trial is hopeless before it is given up.",
)
@click.option(
    "--composing",
    "composing",
    multiple=True,
    metavar="MODEL",
    help="A model that those call, searched with them. May be repeated.  [default: found by a short "
    "load; with --url none]",
)
@click.option(
    "--trace-file",
    "trace_files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Traces of a server, this one or Triton: what those models call there is searched with them. May be "
    "repeated.",
)
@click.option("--no-discover", is_flag=True, help="Do not look for models that Python models call.")
@click.option("--in-process", is_flag=True, help="Serve in this process instead of one for each trial.")
@click.option(
    "--url",
    default="",
    metavar="HOST:PORT",
    help="Load configurations into a server that runs (HTTP port; model control mode explicit).",
)
@click.option("--grpc-url", default="", metavar="HOST:PORT", help="Its gRPC port, for decoupled models.")
@click.option("--metrics-url", default="", metavar="HOST:PORT", help="Where the metrics of that server are.")
@click.option(
    "--serve-option",
    "serve_options",
    multiple=True,
    metavar="OPTION",
    help="An option of `corectl serve` for the servers of trials, such as --serve-option=--log-verbose=1.",
)
@click.option(
    "--start-timeout",
    "start_timeout_s",
    type=float,
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="How long models may take to load.",
)
@click.option(
    "--work-dir",
    default="analysis",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the report is written, and the checkpoint from which the same command goes on.",
)
@click.option("--fresh", is_flag=True, help="Forget the checkpoint.")
@click.option(
    "--apply", "applies", is_flag=True, help="Write the configuration; the old one is kept as .bak."
)
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of the table.")
@click.option("--json", "as_json", is_flag=True, help="Print all trials and the configurations as JSON.")
def analyze(
    models: Sequence[str],
    repositories: Sequence[Path],
    plan_file: Path | None,
    settings: Sequence[str],
    concurrency: str | None,
    rate: str | None,
    objectives: Sequence[str],
    most: Sequence[str],
    least: Sequence[str],
    search: str | None,
    trials: int | None,
    seed: int,
    batch_size: int,
    input_data: str,
    shapes: Sequence[str],
    tokens: str,
    window_s: float,
    windows: int,
    confidence: float,
    composing: Sequence[str],
    trace_files: Sequence[Path],
    no_discover: bool,
    in_process: bool,
    url: str,
    grpc_url: str,
    metrics_url: str,
    serve_options: Sequence[str],
    start_timeout_s: float,
    work_dir: Path,
    fresh: bool,
    applies: bool,
    top: int,
    as_json: bool,
) -> int:
    """Find the configuration with which models answer best.

    Each point of a search is a configuration and a load. It is tried on a server of its own, with links to
    the files of the models, and measured in windows. Ensembles are searched with their steps, Python models
    with the models that they call, several models at the same time under the same load. Ctrl-C keeps what was
    measured.
    """
    from tritonpy.errors import TritonError
    from tritonpy_bench import Inputs

    from tritonpy_analyze.command import Wishes, run
    from tritonpy_analyze.goal import parse_constraint, parse_weights
    from tritonpy_analyze.plan import Plan, add_setting, read_plan
    from tritonpy_analyze.stopping import Looks

    if not repositories and not url:
        raise click.UsageError(
            "say with --model-repository where the models are, or with --url who serves them"
        )
    if len(set(models)) < len(models):
        raise click.UsageError("a model is named twice")
    try:
        plan = read_plan(plan_file) if plan_file is not None else Plan()
        for text in settings:
            add_setting(plan, text, [*models, *composing, *_names(repositories)])
        if concurrency is not None or rate is not None:
            plan.concurrency, plan.rate = concurrency, rate
        if objectives:
            plan.weights = parse_weights(tuple(objectives))
        plan.constraints += [parse_constraint(text, is_least=False) for text in most]
        plan.constraints += [parse_constraint(text, is_least=True) for text in least]
        plan.search, plan.trials = search or plan.search, trials or plan.trials
        plan.composing += composing
        return run(
            Wishes(
                tuple(models),
                plan,
                tuple(repositories),
                remote=url.removeprefix("http://").rstrip("/"),
                grpc=grpc_url,
                metrics=metrics_url.removeprefix("http://").partition("/")[0],
                in_process=in_process,
                serve_options=tuple(serve_options),
                batch_size=batch_size,
                inputs=Inputs(
                    input_data if input_data in ("random", "zero") else Path(input_data), _shapes(shapes)
                ),
                tokens=tokens,
                looks=Looks(min(2, windows), windows, confidence),
                window_s=window_s,
                warm_up_s=min(0.5, window_s),
                seed=seed,
                discovers=not no_discover,
                trace_files=tuple(trace_files),
                work_dir=work_dir,
                is_fresh=fresh,
                applies=applies,
                as_json=as_json,
                top=top,
                start_timeout_s=start_timeout_s,
            )
        )
    except TritonError as error:
        raise click.ClickException(error.message) from error
    except OSError as exc:
        raise click.ClickException(f"'{exc.filename}': {exc.strerror}") from exc


def _names(repositories: Sequence[Path]) -> list[str]:
    return [path.name for repository in repositories for path in repository.iterdir() if path.is_dir()]


def _shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in texts:
        name, colon, dims = text.rpartition(":")
        if not colon or not all(part.strip().isdecimal() for part in dims.split(",")):
            raise click.UsageError(f"--shape '{text}': expected INPUT:DIMS, such as IMAGE:3,224,224")
        shapes[name] = tuple(int(part) for part in dims.split(","))
    return shapes


@click.command(short_help="Say why a model answers as it does, and what would change it.")
@click.argument("model")
@click.option("--model-version", default="", help="Only this version.  [default: all that are loaded]")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Look twice, so far apart, and tell of what came between.  [default: everything since the load]",
)
@click.option(
    "--load",
    type=click.IntRange(min=1),
    metavar="N",
    help="Send N requests at once between the looks, of random contents.  [default: none]",
)
@click.option(
    "--analysis",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The --work-dir of corectl analyze, whose trials are told of.  [default: analysis, if it is there]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the numbers, and what was found in them.")
@click.option(
    "--url",
    default="http://localhost:8000",
    show_default=True,
    help="Where the HTTP port is, of this server or of Triton.",
)
@click.option(
    "--timeout", "timeout_s", type=float, default=10.0, show_default=True, help="Seconds to wait for it."
)
def explain(
    model: str,
    model_version: str,
    seconds: float,
    load: int | None,
    analysis: Path | None,
    as_json: bool,
    url: str,
    timeout_s: float,
) -> None:
    """Say why a model answers as it does, and what would change it.

    Its batches, queue and instances are described from what the server counts. A queueing model of them says
    what other numbers of instances, batch sizes and delays would come to, at the rate at which requests come.
    """
    from tritonpy_analyze.explaining import explain as run

    run(model, model_version, seconds, as_json, url, timeout_s, load or 0, analysis)
