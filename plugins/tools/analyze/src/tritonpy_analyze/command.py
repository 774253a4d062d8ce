"""`corectl analyze` from its options to what it prints and writes."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from tritonpy.errors import InvalidArg, TritonError, Unavailable
from tritonpy.tracing.summary import read_trace
from tritonpy_bench import Inputs

from tritonpy_analyze import searches
from tritonpy_analyze.analysis import Analysis, Analyzer, Trial
from tritonpy_analyze.applying import apply, config_text
from tritonpy_analyze.checkpoint import Checkpoint, choice_json
from tritonpy_analyze.composing import called_by, called_models, calls_in, trace_options, traced_models
from tritonpy_analyze.measured import CHECKPOINT
from tritonpy_analyze.measurement import METRICS
from tritonpy_analyze.models import (
    AnalyzedModel,
    config_path,
    configurations,
    dimensions,
    is_as_now,
    load_dimension,
    read_models,
    start_of,
    streaming,
)
from tritonpy_analyze.plan import Plan
from tritonpy_analyze.progress import progress
from tritonpy_analyze.ranking import gain, ranking, summary
from tritonpy_analyze.report import html_report
from tritonpy_analyze.searches import Search
from tritonpy_analyze.servers import OwnServers, RemoteServer
from tritonpy_analyze.space import LOAD_SETTINGS, Choice, Point, Space, shown_choice
from tritonpy_analyze.stopping import Looks
from tritonpy_analyze.trial import Launcher
from tritonpy_analyze.workload import Workload

JsonObject = dict[str, Any]  # Any: JSON

SEARCHES = ("quick", "brute", "optuna")
_DISCOVERY_S = 1.0


@dataclass(slots=True)
class Wishes:
    """Everything that the command was told.

    Attributes:
        names: of the models that are asked.
        plan: of the search.
        repositories: directories of models.
        remote, metrics, grpc: `host:port` of a server that runs, of its metrics and of its gRPC port; "" for
            servers of our own.
        in_process: serve in this process.
        serve_options: further options of `corectl serve`.
        batch_size, inputs: of requests.
        tokens: the output whose elements are counted; "" to count none.
        looks, window_s, warm_up_s: how a trial goes.
        seed: of the search.
        discovers: look for models that are called, on servers of our own.
        trace_files: of a server, which say which models are called.
        work_dir: for files; None writes none.
        is_fresh: forget the checkpoint.
        applies: write the configuration of the best one.
        as_json: print JSON.
        top: rows of the table.
        start_timeout_s: for models to load.
    """

    names: Sequence[str]
    plan: Plan
    repositories: Sequence[Path] = ()
    remote: str = ""
    metrics: str = ""
    grpc: str = ""
    in_process: bool = False
    serve_options: Sequence[str] = ()
    batch_size: int = 1
    inputs: Inputs = field(default_factory=Inputs)
    tokens: str = ""
    looks: Looks = field(default_factory=Looks)
    window_s: float = 1.0
    warm_up_s: float = 0.5
    seed: int = 0
    discovers: bool = True
    trace_files: Sequence[Path] = ()
    work_dir: Path | None = None
    is_fresh: bool = False
    applies: bool = False
    as_json: bool = False
    top: int = 10
    start_timeout_s: float = 300.0


def run(wishes: Wishes) -> int:
    """Search, print and write; returns the exit status.

    Raises:
        TritonError: what was asked for makes no sense, or nothing could be measured.
        OSError: a file cannot be written.
    """
    if wishes.remote and wishes.applies:
        raise InvalidArg(
            "--apply writes into a local repository; of a remote server only the text is printed"
        )
    with _launcher(wishes) as (launcher, models):
        found = dimensions(models, wishes.plan.settings)
        load = load_dimension(wishes.plan.concurrency, wishes.plan.rate)
        space = Space([*found, load])
        start = start_of(models, found) | {load.name: load.values[(len(load.values) - 1) // 2]}
        checkpoint = _checkpoint(wishes, models)
        try:
            analysis, baseline = _search(wishes, space, start, launcher, checkpoint, models)
        finally:
            if checkpoint is not None:
                checkpoint.close()
    return _tell(wishes, models, analysis, baseline)


@contextmanager
def _launcher(wishes: Wishes) -> Iterator[tuple[Launcher, dict[str, AnalyzedModel]]]:
    if wishes.remote:
        asked = _workload(wishes, {})
        remote = RemoteServer(wishes.remote, asked, wishes.metrics, wishes.grpc, wishes.start_timeout_s)
        traced = traced_models(wishes.trace_files, wishes.names)
        models = remote.read_models([*wishes.names, *wishes.plan.composing, *traced])
        try:
            remote.workload = _workload(wishes, models)
            if remote.workload.streaming and not wishes.grpc:
                raise InvalidArg(
                    f"model '{min(remote.workload.streaming)}' is decoupled and is asked over gRPC: say with "
                    f"--grpc-url where that server's gRPC port is"
                )
            # Models that those call are not looked for by a load: others may ask that server meanwhile.
            yield remote, models
        finally:
            remote.restore()
        return
    traced = traced_models(wishes.trace_files, wishes.names)
    models = read_models(wishes.repositories, [*wishes.names, *wishes.plan.composing, *traced])
    workload = _workload(wishes, models)
    if _may_call(wishes, models):
        models = read_models(wishes.repositories, [*models, *_called(wishes, workload, models)])
    yield (
        OwnServers(models, workload, wishes.serve_options, wishes.in_process, wishes.start_timeout_s),
        models,
    )


def _workload(wishes: Wishes, models: dict[str, AnalyzedModel]) -> Workload:
    names = tuple(wishes.names)
    streams = streaming(models, names) if models else frozenset[str]()
    if wishes.tokens and models:
        _check_tokens(wishes.tokens, [models[name] for name in names])
    return Workload(names, wishes.batch_size, wishes.inputs, streaming=streams, tokens=wishes.tokens)


def _check_tokens(tokens: str, asked: Sequence[AnalyzedModel]) -> None:
    """Refuse an output that a model does not have, before a server is started for it."""
    for model in asked:
        outputs = [each["name"] for each in (model.settled or model.config).get("output", ())]
        if outputs and tokens not in outputs:  # without any, only a load tells them
            raise InvalidArg(
                f"--tokens '{tokens}': model '{model.name}' has the outputs {', '.join(outputs)}"
            )


def _may_call(wishes: Wishes, models: dict[str, AnalyzedModel]) -> bool:
    return (
        wishes.discovers
        and not wishes.plan.composing
        and not wishes.trace_files
        and any(model.backend == "python" for model in models.values())
    )


def _called(wishes: Wishes, workload: Workload, models: dict[str, AnalyzedModel]) -> list[str]:
    """The models that Python models call, if the repository has any that could be."""
    others = [
        path.name
        for repository in wishes.repositories
        for path in sorted(repository.iterdir())
        if path.is_dir() and not path.name.startswith(".") and path.name not in models
    ]
    if not others:
        return []
    every = models | _readable(wishes.repositories, others)
    with (
        tempfile.TemporaryDirectory(prefix="tritonpy-analyze-") as folder,
        progress("looking for models that are called", None) as say,
    ):
        say("looking for models that are called")
        traces = Path(folder) / "traces.json"
        options = (*wishes.serve_options, "--exit-on-error=false", *trace_options(traces))
        servers = OwnServers(every, workload, options, False, wishes.start_timeout_s)
        with servers.open({}) as target:
            found = {*called_models(target, list(models), _DISCOVERY_S)}
        # The server has ended, so that all traces are in their file. They say who calls whom, where calls
        # hand their trace on; the statistics know of all calls.
        # Of as many traces as were asked for, the file has a number.
        files = [file for file in (traces, traces.with_name(f"{traces.name}.0")) if file.exists()]
        calls = calls_in(*(read_trace(file.read_bytes(), str(file)) for file in files))
        found.update(called_by(list(models), calls))
    for name in sorted(found):
        callers = sorted(caller for caller, called in calls.items() if name in called)
        why = f"{' and '.join(callers)} called it" if callers else "it was executed while those were asked"
        click.echo(f"corectl analyze: model '{name}' is searched, too: {why}", err=True)
    return sorted(found)


def _readable(repositories: Sequence[Path], names: Sequence[str]) -> dict[str, AnalyzedModel]:
    """Models that may be called; one that is broken, or made of what is not there, is not."""
    found: dict[str, AnalyzedModel] = {}
    for name in names:
        with suppress(TritonError, OSError):
            found |= read_models(repositories, [name], asks_backends=False)
    return found


def _checkpoint(wishes: Wishes, models: dict[str, AnalyzedModel]) -> Checkpoint | None:
    if wishes.work_dir is None:
        return None
    path = wishes.work_dir / CHECKPOINT
    if wishes.is_fresh:
        path.unlink(missing_ok=True)
    place = wishes.remote or ("in process" if wishes.in_process else "processes")
    subject = {
        "models": {name: model.config for name, model in models.items()},
        # What a load makes of those: not what is searched, but by it what is served later can be recognized.
        "settled": {name: model.settled for name, model in models.items() if model.settled},
        "asked": list(wishes.names),
        "server": [place, *wishes.serve_options],
        "batch_size": wishes.batch_size,
        "inputs": repr(wishes.inputs),
        "window_s": wishes.window_s,
        **({"tokens": wishes.tokens} if wishes.tokens else {}),
    }
    return Checkpoint(path, subject)


def _search(
    wishes: Wishes,
    space: Space,
    start: Choice,
    launcher: Launcher,
    checkpoint: Checkpoint | None,
    models: dict[str, AnalyzedModel],
) -> tuple[Analysis, Trial | None]:
    goal = wishes.plan.goal(wishes.names)
    begin = space.point(start)
    name = wishes.plan.search or SEARCHES[0]
    trials = min(
        space.size,
        wishes.plan.trials or (space.size if name == "brute" else max(20, searches.quarter_of(space))),
    )
    search = _named(name, space, begin, trials, wishes.seed)
    with progress(f"analyze {', '.join(wishes.names)}", trials) as say:

        def on_trial(trial: Trial, count: int) -> None:
            best = analyzer.analysis.best
            if best is not None:
                say(f"best: {shown_choice(best.choice, without_model=True)}", count)

        analyzer = Analyzer(
            space,
            goal,
            launcher,
            looks=wishes.looks,
            window_s=wishes.window_s,
            warm_up_s=wishes.warm_up_s,
            checkpoint=checkpoint,
            on_trial=on_trial,
        )
        analysis = analyzer.run(search)
        if analysis.best is None:
            reasons = list(dict.fromkeys(trial.error for trial in analysis.trials if trial.error))
            if analysis.was_interrupted and not reasons:
                raise Unavailable("interrupted before anything was measured")
            raise Unavailable("no configuration could be measured: " + "; ".join(reasons[:3]))
        return analysis, _baseline(analyzer, start, models)


def _baseline(analyzer: Analyzer, start: Choice, models: dict[str, AnalyzedModel]) -> Trial | None:
    """The configuration of now, under the load of the best one; measured if no point is the same."""
    best = analyzer.analysis.best
    assert best is not None
    load = {name: value for name, value in best.choice.items() if name in LOAD_SETTINGS}
    choice = {name: load.get(name, start.get(name)) for name in best.choice}
    if is_as_now(models, choice):
        for trial in analyzer.analysis.trials:
            if trial.choice == choice:
                return trial
    if analyzer.analysis.was_interrupted:
        return None
    try:
        return analyzer.try_now(choice)
    except KeyboardInterrupt:
        analyzer.analysis.was_interrupted = True
        return None


def _named(name: str, space: Space, begin: Point, trials: int, seed: int) -> Search:
    if name == "brute":
        return searches.brute(space)
    kinds: dict[str, Callable[..., Search]] = {"quick": searches.quick, "optuna": searches.optuna}
    if name not in kinds:
        raise InvalidArg(f"there is no search '{name}'; expected one of {', '.join(SEARCHES)}")
    return kinds[name](space, begin, trials, seed=seed)


def _tell(
    wishes: Wishes, models: dict[str, AnalyzedModel], analysis: Analysis, baseline: Trial | None
) -> int:
    best = analysis.best
    assert best is not None
    configs = configurations(models, {} if best.is_now else best.choice)
    changed = {name: config for name, config in configs.items() if config != models[name].config}
    texts = {name: config_text(config, name) for name, config in changed.items()}
    lines = [line] if (line := gain(analysis, baseline)) else []
    if wishes.as_json:
        click.echo(json.dumps(_document(analysis, configs), indent=2))
    else:
        _print(wishes, analysis, texts, lines)
    if wishes.work_dir is not None:
        page = html_report(analysis, wishes.names, texts, lines)
        path = wishes.work_dir / "report.html"
        path.write_text(page, encoding="utf-8")
        click.echo(f"wrote {path}", err=wishes.as_json)
    if wishes.applies:
        if not best.is_within:
            raise InvalidArg(
                "no point keeps the constraints, so nothing is applied; the table has the nearest"
            )
        for name, config in changed.items():
            path = config_path(models[name])
            kept = apply(config_text(config, name, path), path)
            click.echo(
                f"wrote {path}{f', kept the old one as {kept.name}' if kept else ''}", err=wishes.as_json
            )
    return 130 if analysis.was_interrupted else 0


def _print(wishes: Wishes, analysis: Analysis, texts: dict[str, str], lines: Sequence[str]) -> None:
    best = analysis.best
    assert best is not None
    click.echo(ranking(analysis, wishes.top))
    click.echo()
    for line in summary(analysis):
        click.echo(line)
    if not best.is_within:
        click.echo("no point keeps the constraints; the first ones miss them by the least")
    for line in lines:
        click.echo(line)
    for name, text in texts.items():
        click.echo(f"\nconfig.pbtxt of {name}:\n{text}")
    if not texts:
        click.echo("\nthe configuration of now is the best that was found")


def _document(analysis: Analysis, configs: dict[str, JsonObject]) -> JsonObject:
    def number(value: float) -> float | None:
        return None if math.isnan(value) else value

    def trial(each: Trial) -> JsonObject:
        metrics = {} if each.error else {name: number(each.window.metric(name)) for name in METRICS}
        verdict = each.verdict
        return {
            "choice": choice_json(each.choice),
            "metrics": metrics,
            "batch_sizes": {} if each.error else {str(k): v for k, v in each.window.batch_sizes.items()},
            "keeps_constraints": each.is_within,
            "is_now": each.is_now,
            "stopped": None
            if verdict is None
            else {
                "is_hopeless": verdict.is_hopeless,
                "confidence": verdict.confidence,
                "reason": verdict.reason,
            },
            "error": each.error,
        }

    assert analysis.best is not None
    return {
        "goal": str(analysis.goal),
        "points": analysis.space.size,
        "was_interrupted": analysis.was_interrupted,
        "best": trial(analysis.best),
        "trials": [trial(each) for each in analysis.ranked],
        "configurations": configs,
    }
