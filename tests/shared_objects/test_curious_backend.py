"""One backend in C on a real tritonserver and on ours: clients get the same, and it hears the same.

It asks for all there is, also in ways in which nobody should, and answers in all ways.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tritonpy_sdk.testing import ServerProcess

from .conftest import Compiled
from .curious_models import ON_BOTH, WISHES, Asked, requests, streamed, write
from .curious_side import FLAGS, Call, Side, by_subject

pytestmark = pytest.mark.parity

PROTOCOLS = 2
"""All requests are sent over each, but those in streams."""


@dataclass(frozen=True)
class Told:
    """What one server told, and what the backend noted there.

    Attributes:
        http, grpc, stream: the answers, in the order of the requests.
        calls: those of the backend, all of them: the models are unloaded.
    """

    index: list[Any]
    http: list[tuple[int, Any]]
    grpc: list[tuple[str, Any]]
    stream: list[tuple[str, Any]]
    configs: dict[str, Any]
    statistics: dict[str, Any]
    metrics: dict[str, float]
    calls: list[Call]
    log: str


class Difference(NamedTuple):
    """A line that is different on purpose.

    Attributes:
        real, ours: patterns of the two.
        why: for whoever reads this.
    """

    real: str
    ours: str
    why: str


HEARD = (
    Difference(
        r".* bytes of type (CPU_PINNED|GPU): (Internal|Unavailable) .*",
        r".* bytes of type (CPU_PINNED|GPU): Unavailable .*",
        "There is none in either, and each says it in its words.",
    ),
    Difference(
        r"where it will be.*: Unavailable \(4\): \[request id: .*\] Output properties are not available",
        r"(it will be in memory|without a size:) .*of type 0",
        "A warm-up has no allocator in Triton; here the memory is that of the CPU in any case.",
    ),
    Difference(
        r"it will be in memory of type 2",
        r"it will be in memory of type 0",
        "Triton's gRPC port says back what was wished for.",
    ),
    Difference(
        r"buffer of type 2",
        r"buffer of type 0",
        "Triton leaves the wish as it is for an output without bytes.",
    ),
    Difference(
        r"other name: Invalid argument \(3\): unexpected inference output 'ANOTHER' for model '.*'",
        r"other name: taken",
        "Triton keeps half of the output, and ends when such a response is sent.",
    ),
    Difference(
        r"set (.*) of version 1: Invalid argument \(3\): .*",
        r"set (.*) of version 1: done",
        "Here a configuration is read when the model is initialised, and fails the load.",
    ),
    Difference(
        r'configuration of version 1: \{"backend": "curious", "batch_input": \[\].*"name": "empty".*',
        r'configuration of version 1: \{"backend": "curious", "input": .*"name": "empty".*',
        "Likewise it is filled up after that.",
    ),
)

ANSWERED = (
    Difference(
        r"\('INTERNAL', 'response output count mismatch'\)",
        r"\('OK', .*'id': 'dropped response'.*",
        "Triton's gRPC port counts the outputs of a response that was deleted.",
    ),
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, compiled: Compiled) -> Path:
    return compiled("backends/curious.c")


@pytest.fixture(scope="module")
def real(
    library: Path, tmp_path_factory: pytest.TempPathFactory, real_triton: Callable[..., dict[str, int]]
) -> Told:
    root = tmp_path_factory.mktemp("real")
    flags = prepared(root, library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKEND_NOTES", str(root / "notes"))
        ports = real_triton(root / "models", *flags, f"--log-file={root / 'log'}")
    told = tell(Side(root, ports), lambda: (root / "log").read_text())
    real_triton.end(ports)  # type: ignore[attr-defined]
    return told


@pytest.fixture(scope="module")
def ours(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    root = tmp_path_factory.mktemp("ours")
    flags = prepared(root, library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACKEND_NOTES", str(root / "notes"))
        server = ServerProcess(f"--model-repository={root / 'models'}", *flags)
    with server:
        ports = {"http": server.http_port, "grpc": server.grpc_port, "metrics": server.metrics_port}
        yield tell(Side(root, ports), lambda: server.log)


def prepared(root: Path, library: Path) -> list[str]:
    """Put models and the backend where a server finds them; returns its flags."""
    write(root / "models")
    (root / "backends/curious").mkdir(parents=True)
    shutil.copy(library, root / "backends/curious/libtriton_curious.so")
    return [*FLAGS, f"--backend-directory={root / 'backends'}"]


def tell(side: Side, log: Callable[[], str]) -> Told:
    index = side.index()
    http = [side.infer(request) for request in requests()]
    grpc = side.infer_all(requests())
    stream = side.infer_all(streamed(), in_stream=True)
    statistics = side.statistics()
    configs = {model: side.config(model) for model in statistics}
    metrics = side.metrics()
    side.unload_all()
    return Told(index, http, grpc, stream, configs, statistics, metrics, side.calls(), log())


def is_explained(real: str, ours: str, differences: tuple[Difference, ...]) -> bool:
    """Whether a pair of lines is alike, or one of those that are different on purpose."""
    if real == ours:
        return True
    return any(re.fullmatch(each.real, real) and re.fullmatch(each.ours, ours) for each in differences)


def test_models_are_there_or_not_for_the_same_reasons(real: Told, ours: Told) -> None:
    assert ours.index == real.index


@pytest.mark.parametrize("protocol", ["http", "grpc", "stream"])
def test_clients_get_the_same(real: Told, ours: Told, protocol: str) -> None:
    sent: list[Asked] = list(streamed() if protocol == "stream" else requests())
    answers = zip(sent, getattr(real, protocol), getattr(ours, protocol), strict=True)

    left = [
        (request, there, here)
        for request, there, here in answers
        if there != here and not is_explained(str(there), str(here), ANSWERED)
    ]
    assert left == []


def test_configurations_are_the_same(real: Told, ours: Told) -> None:
    for config in ours.configs.values():
        if "ensemble_scheduling" in config:
            del config["ensemble_scheduling"]["max_inflight_requests"]  # of newer servers
    assert ours.configs == real.configs


def test_the_backend_hears_the_same(real: Told, ours: Told) -> None:
    theirs = by_subject(real.calls)
    own = by_subject(ours.calls)
    left = []
    for subject, processes in own.items():
        (expected,) = theirs[subject]
        for calls in processes:
            for here, there in zip(calls, expected, strict=False):  # their order is another test's
                left += unexplained(subject, here, there)

    assert own.keys() == theirs.keys()
    assert left == []


def unexplained(subject: str, here: Call, there: Call) -> list[tuple[str, str, str, str]]:
    heard = [sorted_parameters(call.heard) for call in (there, here)]
    assert len(heard[0]) == len(heard[1]), (subject, there, here)
    return [
        (subject, there.function, real, ours)
        for real, ours in zip(*heard, strict=True)
        if not is_explained(real, ours, HEARD)
    ]


def sorted_parameters(heard: list[str]) -> list[str]:
    """Those of a request have no order."""
    parameters = iter(sorted(line for line in heard if re.match("parameter .*: ", line)))
    return [next(parameters) if re.match("parameter .*: ", line) else line for line in heard]


def test_every_difference_is_there(real: Told, ours: Told) -> None:
    theirs, own = (
        {line for call in told.calls for line in call.heard} | set(map(str, told.grpc))
        for told in (real, ours)
    )
    for difference in HEARD + ANSWERED:
        assert any(re.fullmatch(difference.real, line) for line in theirs), difference
        assert any(re.fullmatch(difference.ours, line) for line in own), difference


def without_ends(functions: list[str]) -> list[str]:
    """What could not be initialised is finalised in Triton, and its process ends here."""
    return [function for function in functions if not function.endswith("Finalize")]


def test_functions_are_called_in_the_same_order(real: Told, ours: Told) -> None:
    theirs = by_subject(real.calls)
    for subject, processes in by_subject(ours.calls).items():
        (expected,) = theirs[subject]
        wanted = [call.function for call in expected]
        for calls in processes:
            found = [call.function for call in calls]
            if subject == "backend":  # opened anew where the last model in the process has gone
                assert {*without_ends(found)} == {*without_ends(wanted)}
                assert all(found[at] == "Finalize" for at in range(1, len(found), 2))
            elif "refused" in subject:
                assert without_ends(found) == without_ends(wanted), subject
            elif "rich 1" not in subject:
                assert found == wanted, subject


def test_an_instance_is_executed_by_one_thread(real: Told, ours: Told) -> None:
    for told, is_begun_there in ((real, False), (ours, True)):
        for subject, processes in by_subject(told.calls).items():
            threads = [
                {call.thread for call in calls if call.function.startswith("ModelInstanceExecute")}
                for calls in processes
            ]
            assert all(len(found) <= 1 for found in threads), subject
            for calls, found in zip(processes, threads, strict=True):
                if found:
                    assert ({calls[0].thread} == found) == is_begun_there, subject


def counted(statistics: Any) -> dict[str, Any]:
    """What is counted, not what is measured."""
    (model, *_) = statistics
    phases = {name: phase["count"] for name, phase in model["inference_stats"].items()}
    sizes = {each["batch_size"]: each["compute_infer"]["count"] for each in model["batch_stats"]}
    return {
        **phases,
        "inference_count": model["inference_count"],
        "execution_count": model["execution_count"],
        "sizes": sizes,
    }


def test_the_same_is_counted(real: Told, ours: Told) -> None:
    for model, statistics in real.statistics.items():
        if model in ON_BOTH or model == "whole":
            continue
        assert (model, counted(ours.statistics[model])) == (model, counted(statistics))
        infer = "compute_infer"  # a backend tells how long that took
        there, here = (each[0]["inference_stats"][infer] for each in (statistics, ours.statistics[model]))
        assert (model, here) == (model, there)


@pytest.mark.parametrize("model", ON_BOTH)
def test_failures_that_a_backend_reports_are_counted(real: Told, ours: Told, model: str) -> None:
    there, here = counted(real.statistics[model]), counted(ours.statistics[model])
    of_ensemble = PROTOCOLS if model == "plain" else 0
    failed = PROTOCOLS * sum(wish.startswith("error") for wish in WISHES) + of_ensemble
    refused = PROTOCOLS * sum(wish.startswith("refuse") for wish in WISHES)

    assert there["fail"] == here["fail"] == failed + refused
    assert here["success"] - there["success"] == PROTOCOLS * WISHES.count("unreported")
    assert here["execution_count"] - there["execution_count"] == refused


def test_metrics_have_the_same_names_labels_and_values(real: Told, ours: Told) -> None:
    left = {}
    for name, value in real.metrics.items():
        if re.search(r"_duration_us|_summary_us|refused|model=\"(plain|threaded|whole)\"", name):
            assert name in ours.metrics or "refused" in name
        elif ours.metrics.get(name) != value:
            left[name] = (value, ours.metrics.get(name))
    assert left == {}
    assert {re.split("[{_]", name)[1] for name in ours.metrics.keys() - real.metrics.keys()} <= {"model"}


LINE = re.compile(r"^([IWEV])\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ curious\.c:7\] (\".*\")(?: model=.*)?$", re.M)


def said(log: str) -> list[tuple[str, str]]:
    """Level and text of what the backend has logged."""
    return [(level, json.loads(text)) for level, text in LINE.findall(log)]


def test_the_log_has_the_same_lines(real: Told, ours: Told) -> None:
    lines = [(level, 'größer "als"\n\tgedacht') for level in "IWE"] * len(ON_BOTH) * PROTOCOLS

    assert said(real.log) == lines
    assert said(ours.log) == lines
