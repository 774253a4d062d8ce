"""The five functions of a shared object as hooks: when they are called, and what becomes of their errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.plugin import ErrorCode, Internal, InvalidArg, NotFound, TritonError, Unavailable
from tritonpy.plugin_manager import bind_object
from tritonpy_abi import load_shared_object
from tritonpy_abi.serving import connect
from tritonpy_abi.shim import open_shim
from tritonpy_abi.strategies import open_strategy

from ..conftest import Compiled
from .conftest import Opener, make_model, make_request

ALL_FIVE = ("-DWITH_1", "-DWITH_2", "-DWITH_3", "-DWITH_4", "-DWITH_5")
FUNCTIONS = (
    "TRITONBACKEND_ModelBatcherInitialize",
    "TRITONBACKEND_ModelBatcherFinalize",
    "TRITONBACKEND_ModelBatchInitialize",
    "TRITONBACKEND_ModelBatchIncludeRequest",
    "TRITONBACKEND_ModelBatchFinalize",
)


def test_every_initialize_has_its_finalize_and_each_request_is_asked_once(
    opened: Opener, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    strategy = opened("recorder.c", JOURNAL=str(journal), ROOM="2")
    requests = [make_request(id=name) for name in "abc"]
    strategy.admit(*requests)

    strategy.begin()
    first = strategy.include(requests[:1])
    rest = strategy.include(requests[1:])
    strategy.end()
    strategy.begin()
    last = strategy.include(requests[2:])
    strategy.close()

    assert (first, rest, last) == (1, 1, 1)
    assert journal.read_text().splitlines() == [
        "batcher initialize",
        "1 initialize",
        "1 include a yes",
        "1 include b yes",
        "1 include c no",
        "1 finalize",
        "2 initialize",
        "2 include c yes",
        "2 finalize",
        "batcher finalize",
    ]


def test_an_attempt_that_asks_for_nothing_never_reaches_the_library(opened: Opener, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    strategy = opened("recorder.c", JOURNAL=str(journal))

    strategy.begin()
    strategy.end()

    assert journal.read_text().splitlines() == ["batcher initialize"]


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_library_is_opened_with_and_without_the_server_among_what_it_needs(
    opened: Opener, compiled: Compiled, tmp_path: Path, is_linked: bool
) -> None:
    flags: tuple[str, ...] = ()
    if is_linked:
        # Empty, and found by no search path: only its name counts, since the library is loaded before.
        built = compiled("strategies/single.c", "-Wl,-soname,libtritonserver.so")
        stub = shutil.copy(built, tmp_path / "libtritonserver.so")
        flags = ("-Wl,--no-as-needed", str(stub))

    strategy = opened("volume.c", *flags, MAX_BATCH_VOLUME_BYTES="40")

    assert strategy.run(make_request(), make_request(), make_request()) == 2


def test_two_models_share_a_library_and_nothing_else(opened: Opener, compiled: Compiled) -> None:
    small = opened("volume.c", model=make_model("small", MAX_BATCH_VOLUME_BYTES="16"))
    large = opened("volume.c", model=make_model("large", MAX_BATCH_VOLUME_BYTES="48"))
    other = opened("volume.c", model=make_model("large", 2, MAX_BATCH_VOLUME_BYTES="32"))
    requests = [make_request() for _ in range(3)]

    for strategy in (small, large, other):
        strategy.admit(*requests)  # a block has nothing of a strategy in it
        strategy.begin()
    taken = [strategy.include(requests) for strategy in (small, large, other)]
    small.close()
    large.end()
    large.begin()

    assert taken == [1, 3, 2]
    assert large.include(requests) == 3


def test_hooks_are_those_of_a_batching_plugin(compiled: Compiled) -> None:
    plugin = load_shared_object("batching", str(compiled("strategies/volume.c")))

    bind = bind_object("batching", plugin, "volume.c")

    assert all(
        bind(hook) is not None
        for hook in (
            "model_batcher_initialize",
            "model_batcher_finalize",
            "model_batcher_admit_request",
            "model_batch_initialize",
            "model_batch_include_request",
            "model_batch_include_requests",
            "model_batch_finalize",
        )
    )


def test_more_requests_than_the_largest_batch_has_rows_can_be_asked_for(opened: Opener) -> None:
    strategy = opened("volume.c", MAX_BATCH_VOLUME_BYTES="100000")

    assert strategy.run(*(make_request(1) for _ in range(100))) == 100


def test_one_request_can_be_asked_for_alone(opened: Opener) -> None:
    strategy = opened("volume.c", MAX_BATCH_VOLUME_BYTES="20")
    first, second = make_request(), make_request()
    strategy.admit(first, second)

    strategy.begin()

    assert strategy.include_one(first)
    assert not strategy.include_one(second)


def test_an_error_fails_the_request_it_came_for_and_those_before_it_join(opened: Opener) -> None:
    strategy = opened("faulty.cc", FAULT="ModelBatchIncludeRequest error")
    requests = [make_request(id=name) for name in ("a", "b", "bad", "c")]

    answer = strategy.run(*requests)

    assert isinstance(answer, tuple)
    count, error = answer
    assert count == 2
    assert isinstance(error, Unavailable)
    assert error.message == "ModelBatchIncludeRequest had no wish to"


def test_an_error_for_a_request_that_is_asked_for_alone_is_raised(opened: Opener) -> None:
    strategy = opened("faulty.cc", FAULT="ModelBatchIncludeRequest error")
    request = make_request(id="bad")
    strategy.admit(request)
    strategy.begin()

    with pytest.raises(Unavailable, match=r"^ModelBatchIncludeRequest had no wish to$"):
        strategy.include_one(request)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("digits", "TRITONBACKEND_ModelBatchIncludeRequest threw a C++ exception: stoull"),
        ("throw", "TRITONBACKEND_ModelBatchIncludeRequest threw a C++ exception that is no std::exception"),
    ],
)
def test_a_cpp_exception_fails_the_request_it_was_thrown_for(opened: Opener, fault: str, text: str) -> None:
    strategy = opened("faulty.cc", FAULT=f"ModelBatchIncludeRequest {fault}")

    answer = strategy.run(make_request(id="good"), make_request(id="bad"))

    assert isinstance(answer, tuple)
    assert answer[0] == 1
    assert isinstance(answer[1], Internal)
    assert str(answer[1]) == text


@pytest.mark.usefixtures("library")
def test_a_request_that_joins_in_spite_of_an_error_joins_and_the_log_has_it(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    connect()
    strategy = opened("faulty.cc", FAULT="ModelBatchIncludeRequest error and yes")

    taken = strategy.run(make_request(id="bad"), make_request(id="good"))

    assert open_shim().lib.TRITONPY_LogFlush(20_000)
    assert taken == 2
    assert caplog.messages == [
        "[request id: bad] included in spite of an error of its strategy: "
        "ModelBatchIncludeRequest had no wish to"
    ]


def test_an_attempt_that_cannot_begin_fails_its_first_request_and_the_next_asks_again(opened: Opener) -> None:
    strategy = opened(
        "faulty.cc", FAULT="ModelBatchInitialize error once"
    )  # it ends the process on a NULL batch

    refused = strategy.run(make_request(), make_request())
    taken = strategy.run(make_request(), make_request())

    assert isinstance(refused, tuple)
    assert refused[0] == 0
    assert str(refused[1]) == "ModelBatchInitialize had no wish to"
    assert taken == 2


@pytest.mark.parametrize("fault", ["error", "throw"])
def test_an_attempt_is_over_also_if_it_cannot_be_finalised(opened: Opener, fault: str) -> None:
    strategy = opened("faulty.cc", FAULT=f"ModelBatchFinalize {fault}")
    request = make_request()
    strategy.admit(request)
    strategy.begin()
    strategy.include([request])

    with pytest.raises(TritonError, match="ModelBatchFinalize"):
        strategy.end()

    strategy.end()  # there is none
    strategy.begin()
    assert strategy.include([request]) == 1
    with pytest.raises(TritonError, match="ModelBatchFinalize"):
        strategy.close()


def test_a_refused_model_gets_code_and_text_and_nothing_is_finalised(compiled: Compiled) -> None:
    strategy = open_strategy(compiled("strategies/faulty.cc"))  # it ends the process if it is

    with pytest.raises(Unavailable, match=r"^ModelBatcherInitialize had no wish to$"):
        strategy.model_batcher_initialize(make_model(FAULT="ModelBatcherInitialize error"))
    with pytest.raises(Internal, match="threw a C"):
        strategy.model_batcher_initialize(make_model(FAULT="ModelBatcherInitialize digits"))


@pytest.mark.parametrize("missing", range(1, 6))
def test_a_library_with_four_of_the_functions_is_refused_in_tritons_words(
    compiled: Compiled, missing: int
) -> None:
    path = compiled("strategies/partial.c", *(flag for flag in ALL_FIVE if not flag.endswith(str(missing))))

    with pytest.raises(InvalidArg) as caught:
        open_strategy(path).model_batcher_initialize(make_model("resnet"))

    assert str(caught.value) == (
        f"{path} does not define all required custom batching functions for model resnet: "
        f"{FUNCTIONS[missing - 1]} missing"
    )


def test_a_library_with_none_of_the_functions_is_told_which_they_are(compiled: Compiled) -> None:
    path = compiled("strategies/partial.c")

    with pytest.raises(InvalidArg) as caught:
        open_strategy(path).model_batcher_initialize(make_model("resnet"))

    assert all(name in str(caught.value) for name in (str(path), "resnet", *FUNCTIONS))


@pytest.mark.usefixtures("library")
def test_a_file_that_is_no_library_is_refused_in_the_linkers_words(tmp_path: Path) -> None:
    path = tmp_path / "batchstrategy.so"
    path.write_text("no library")

    with pytest.raises(NotFound, match=r"unable to load shared library: .*batchstrategy\.so"):
        open_strategy(path).model_batcher_initialize(make_model())


def test_a_strategy_is_tried_in_a_child_before_it_gets_into_the_server(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITONPY_ABI_PROBE_S")
    strategy = open_strategy(compiled("strategies/faulty.cc"))

    with pytest.raises(TritonError, match="ended the process it was tried in"):
        strategy.model_batcher_initialize(make_model(FAULT="ModelBatcherInitialize segfault"))


def test_what_a_strategy_is_told_of_its_model(observe: Callable[..., Any]) -> None:
    told = {line["what"]: line for line in reversed(observe(input=[{"name": "X", "dims": ["8"]}]).lines())}

    assert told["model"] == {
        "what": "model",
        "name": "m",
        "version": 1,
        "artifacts": 0,
        "location": "/models/m",
        "completes": True,
    }
    assert told["backend"]["name"] == "identity"
    assert set(told["config"]["json"]) == {"name", "max_batch_size", "parameters", "input", "optimization"}


def test_only_version_one_of_the_configuration_is_there(observe: Callable[..., Any]) -> None:
    refused = observe().lines()[2]

    assert refused == {
        "what": "config",
        "code": "Invalid argument",
        "error": "model configuration version 2 not supported, supported versions are: 1",
    }


def test_text_in_the_configuration_is_handed_on_as_it_is(observe: Callable[..., Any]) -> None:
    told = observe(input=[{"name": 'gr\u00fc\u00dfe "\u4e16"\n'}]).lines()[1]

    assert told["json"]["input"] == [{"name": 'gr\u00fc\u00dfe "\u4e16"\n'}]


def test_an_error_has_one_of_tritons_codes(opened: Opener) -> None:
    strategy = opened("faulty.cc", FAULT="ModelBatchIncludeRequest error")

    answer = strategy.run(make_request(id="bad"))

    assert isinstance(answer, tuple)
    assert isinstance(answer[1], TritonError)
    assert answer[1].code is ErrorCode.UNAVAILABLE
