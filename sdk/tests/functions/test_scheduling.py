"""Typed settings of schedulers: the configurations that they come to, and functions served with them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.config.read import config_from_dict
from tritonpy.errors import Internal, InvalidArg, TritonError
from tritonpy.hookspecs import hookimpl
from tritonpy.protos import ModelConfig as ModelConfigMessage
from tritonpy_sdk import (
    LOCAL,
    Control,
    ControlKind,
    DirectStrategy,
    DynamicBatcher,
    InitialState,
    ModelConfig,
    ModelWarmup,
    OldestStrategy,
    QueuePolicy,
    RateLimiter,
    Request,
    Resource,
    SequenceBatcher,
    Server,
    State,
    Tensor,
    TimeoutAction,
    WarmupInput,
    batch,
)
from tritonpy_sdk.functions.bound import bound
from tritonpy_sdk.testing import DEADLINE_S

ROW = np.array([[1.0]], np.float32)
WITHOUT_A_BATCHER = ModelConfig(batcher=None)


def number(name: str, dtype: Any = np.float32) -> Tensor:
    return Tensor((1,), dtype, name)


def same(requests: list[Request]) -> Any:
    return [{"y": request["x"]} for request in requests]


def message(config: ModelConfig) -> ModelConfigMessage:
    """The configuration of a function that is bound so."""
    return config_from_dict(bound("m", same, [number("x")], [number("y")], config=config).config(), "m")


SETTINGS = {
    "dynamic": (
        ModelConfig(
            max_batch_size=8,
            batcher=DynamicBatcher(
                max_queue_delay_microseconds=5,
                preferred_batch_size=[4, 8],
                priority_levels=2,
                default_priority_level=1,
                default_queue_policy=QueuePolicy(
                    timeout_action=TimeoutAction.DELAY,
                    default_timeout_microseconds=6,
                    allow_timeout_override=True,
                    max_queue_size=7,
                ),
                priority_queue_policy={
                    2: QueuePolicy(
                        timeout_action=TimeoutAction.DELAY,
                        default_timeout_microseconds=9,
                        allow_timeout_override=True,
                        max_queue_size=3,
                    )
                },
                strategy="volume",
            ),
            parameters={"more": "1"},
        ),
        """
        max_batch_size: 8
        dynamic_batching {
          preferred_batch_size: [ 4, 8 ]
          max_queue_delay_microseconds: 5
          priority_levels: 2
          default_priority_level: 1
          default_queue_policy {
            timeout_action: DELAY
            default_timeout_microseconds: 6
            allow_timeout_override: true
            max_queue_size: 7
          }
          priority_queue_policy {
            key: 2
            value {
              timeout_action: DELAY
              default_timeout_microseconds: 9
              allow_timeout_override: true
              max_queue_size: 3
            }
          }
        }
        parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "volume" } }
        parameters { key: "more" value { string_value: "1" } }
        """,
    ),
    "in order": (
        ModelConfig(batcher=DynamicBatcher(preserve_ordering=True), response_cache=True),
        "max_batch_size: 4 dynamic_batching { preserve_ordering: true } response_cache { enable: true }",
    ),
    "direct": (
        ModelConfig(
            batcher=SequenceBatcher(
                strategy=DirectStrategy(max_queue_delay_microseconds=5, minimum_slot_utilization=0.5),
                max_sequence_idle_microseconds=7,
                controls=[
                    Control("START", ControlKind.START),
                    Control("END", ControlKind.END, np.int32, (3, 4)),
                    Control("READY", ControlKind.READY, np.float32, (0.5, 1.5)),
                    Control("ID", ControlKind.CORRID, bytes),
                ],
            )
        ),
        """
        max_batch_size: 4
        sequence_batching {
          direct { max_queue_delay_microseconds: 5 minimum_slot_utilization: 0.5 }
          max_sequence_idle_microseconds: 7
          control_input {
            name: "START" control { kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] }
          }
          control_input { name: "END" control { kind: CONTROL_SEQUENCE_END int32_false_true: [ 3, 4 ] } }
          control_input {
            name: "READY" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0.5, 1.5 ] }
          }
          control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
        }
        """,
    ),
    "oldest": (
        ModelConfig(
            batcher=SequenceBatcher(
                strategy=OldestStrategy(
                    max_candidate_sequences=9,
                    max_queue_delay_microseconds=5,
                    preferred_batch_size=[2],
                    preserve_ordering=True,
                ),
                states=[
                    State("IN", "OUT", (-1, 2), np.float32, InitialState(np.ones((3, 2)), name="ones")),
                    State("TEXT", "NEXT", (1,), bytes, InitialState()),
                    State("LATE", "LATER", (4,), np.int64, use_same_buffer=True, use_growable_memory=True),
                ],
                iterative=True,
            )
        ),
        """
        max_batch_size: 4
        sequence_batching {
          oldest {
            max_candidate_sequences: 9
            preferred_batch_size: 2
            max_queue_delay_microseconds: 5
            preserve_ordering: true
          }
          max_sequence_idle_microseconds: 1000000
          state {
            input_name: "IN" output_name: "OUT" data_type: TYPE_FP32 dims: [ -1, 2 ]
            initial_state { name: "ones" data_type: TYPE_FP32 dims: [ 3, 2 ] data_file: "0-IN" }
          }
          state {
            input_name: "TEXT" output_name: "NEXT" data_type: TYPE_STRING dims: [ 1 ]
            initial_state { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] zero_data: true }
          }
          state {
            input_name: "LATE" output_name: "LATER" data_type: TYPE_INT64 dims: [ 4 ]
            use_same_buffer_for_input_output: true use_growable_memory: true
          }
          iterative_sequence: true
        }
        """,
    ),
    "resources": (
        ModelConfig(
            batcher=None,
            instances=2,
            rate_limiter=RateLimiter(
                resources=[Resource("memory", 3), Resource("license", is_global=True)], priority=2
            ),
        ),
        """
        max_batch_size: 4
        instance_group {
          kind: KIND_CPU count: 2
          rate_limiter {
            resources { name: "memory" count: 3 }
            resources { name: "license" count: 1 global: true }
            priority: 2
          }
        }
        """,
    ),
    "warm-up": (
        ModelConfig(
            batcher=None,
            model_warmup=[
                ModelWarmup(
                    name="first",
                    batch_size=2,
                    count=3,
                    inputs={
                        "a": WarmupInput(shape=(1,), dtype=np.float32, zero_data=True),
                        "b": WarmupInput(shape=(2,), dtype=np.int8, random_data=True),
                        "c": WarmupInput(shape=(3,), dtype=bytes, input_data_file="some/where"),
                    },
                )
            ],
        ),
        """
        max_batch_size: 4
        model_warmup {
          name: "first" batch_size: 2 count: 3
          inputs { key: "a" value { data_type: TYPE_FP32 dims: 1 zero_data: true } }
          inputs { key: "b" value { data_type: TYPE_INT8 dims: 2 random_data: true } }
          inputs { key: "c" value { data_type: TYPE_STRING dims: 3 input_data_file: "where" } }
        }
        """,
    ),
}
SCHEDULING = (
    "dynamic_batching",
    "sequence_batching",
    "response_cache",
    "model_warmup",
    "instance_group.rate_limiter",
)
"""Parts of a configuration of which each field has a typed setting."""


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_come_to_the_configuration_that_would_be_written_by_hand(case: str) -> None:
    config, text = SETTINGS[case]
    expected = ModelConfigMessage(name="m", backend="function")
    expected.version_policy.specific.versions.append(1)
    expected.input.add(name="x", data_type="TYPE_FP32", dims=[1])
    expected.output.add(name="y", data_type="TYPE_FP32", dims=[1])
    text_format.Parse(text, expected)
    if not expected.instance_group:
        expected.instance_group.add(kind="KIND_CPU", count=1)

    assert message(config) == expected


def test_every_field_of_the_schedulers_has_a_typed_setting() -> None:
    given = [message(config) for config, _ in SETTINGS.values()]

    missing = {
        f"{part}.{field}"
        for part in SCHEDULING
        for field in _fields(_at(ModelConfigMessage.DESCRIPTOR, part.split(".")))
        if not any(_is_set(each, [*part.split("."), *field.split(".")]) for each in given)
    }

    assert missing == set()


def _at(descriptor: Descriptor, steps: list[str]) -> Descriptor:
    for step in steps:
        descriptor = next(f.message_type for f in descriptor.fields if f.name == step)
    return descriptor


def _fields(descriptor: Descriptor) -> list[str]:
    """The fields that have values, with the way to them."""
    if descriptor.GetOptions().map_entry:
        kind = descriptor.fields_by_name["value"].message_type
        return [f"value.{name}" for name in _fields(kind)]
    return [
        name
        for field in descriptor.fields
        for name in (
            [f"{field.name}.{below}" for below in _fields(field.message_type)]
            if field.type == FieldDescriptor.TYPE_MESSAGE
            else [field.name]
        )
    ]


def _is_set(found: Any, steps: list[str]) -> bool:
    if not steps:
        return True
    if isinstance(found, Message):
        listed = {field.name: value for field, value in found.ListFields()}
        return steps[0] in listed and _is_set(listed[steps[0]], steps[1:])
    if steps[0] == "value":  # of a map
        return any(_is_set(value, steps[1:]) for value in found.values())
    return any(_is_set(each, steps) for each in found)


COUNTS = st.integers(0, 2**31 - 1)
POLICIES = st.builds(
    QueuePolicy,
    timeout_action=st.sampled_from(TimeoutAction),
    default_timeout_microseconds=COUNTS,
    allow_timeout_override=st.booleans(),
    max_queue_size=COUNTS,
)


@given(
    st.builds(
        DynamicBatcher,
        max_queue_delay_microseconds=COUNTS,
        preferred_batch_size=st.lists(COUNTS),
        preserve_ordering=st.booleans(),
        priority_levels=st.integers(1, 5),
        default_priority_level=COUNTS,
        default_queue_policy=POLICIES,
        priority_queue_policy=st.dictionaries(st.integers(1, 5), POLICIES),
    )
)
def test_what_a_dynamic_batcher_is_given_is_in_the_configuration(batcher: DynamicBatcher) -> None:
    read = message(ModelConfig(batcher=batcher)).dynamic_batching

    assert read.max_queue_delay_microseconds == batcher.max_queue_delay_microseconds
    assert list(read.preferred_batch_size) == batcher.preferred_batch_size
    assert read.preserve_ordering == batcher.preserve_ordering
    assert read.priority_levels == batcher.priority_levels
    assert read.default_priority_level == batcher.default_priority_level
    assert batcher.default_queue_policy is not None
    assert batcher.priority_queue_policy is not None
    _check_policy(read.default_queue_policy, batcher.default_queue_policy)
    assert set(read.priority_queue_policy) == set(batcher.priority_queue_policy)
    for level, policy in batcher.priority_queue_policy.items():
        _check_policy(read.priority_queue_policy[level], policy)


def _check_policy(read: Any, policy: QueuePolicy) -> None:
    assert read.TimeoutAction.Name(read.timeout_action) == policy.timeout_action.value
    for field in ("default_timeout_microseconds", "allow_timeout_override", "max_queue_size"):
        assert getattr(read, field) == getattr(policy, field)


def control(kind: ControlKind, dtype: Any, false_true: Any = (0, 1)) -> ModelConfig:
    return ModelConfig(batcher=SequenceBatcher(controls=[Control("C", kind, dtype, false_true)]))


def state(*shape: int, dtype: Any = np.float32, **initial: Any) -> ModelConfig:
    begin = InitialState(**initial)
    return ModelConfig(batcher=SequenceBatcher(states=[State("S", "T", shape, dtype, begin)]))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            control(ControlKind.START, np.int64),
            r"control 'C': got dtype INT64, expected one of INT32, FP32, BOOL for CONTROL_SEQUENCE_START",
        ),
        (
            control(ControlKind.CORRID, np.float32),
            "control 'C': got dtype FP32, expected one of UINT64, INT64, UINT32, INT32, BYTES",
        ),
        (control(ControlKind.END, None, (0, 2)), r"got false_true=\(0, 2\), expected two values of BOOL"),
        (control(ControlKind.END, np.int32, (0, 1.5)), "expected two values of INT32"),
        (control(ControlKind.END, np.int32, (0, 1, 2)), "expected two values of INT32"),
        (state(2, data=np.ones(3)), r"initial state of 'S': got .*shape \[3\], expected .*\[2\]"),
        (state(2, dtype=np.int32, data=[0.5, 1]), "initial state of 'S': got dtype float64"),
        (
            ModelConfig(batcher=SequenceBatcher(controls=[Control("x", ControlKind.START)])),
            "model 'm': got control 'x' and an input of that name, expected different names",
        ),
        (
            ModelConfig(
                batcher=SequenceBatcher(
                    controls=[Control("S", ControlKind.START)], states=[State("S", "T", (1,), np.float32)]
                )
            ),
            "got state 'S' and an input of a control of that name",
        ),
        (
            ModelConfig(rate_limiter=RateLimiter(resources=[Resource("memory", -1)])),
            "resource 'memory': got count -1, expected 0 or more",
        ),
        (state(2, data=Path("nowhere/at/all")), "initial state of 'S': cannot read 'nowhere/at/all'"),
    ],
)
def test_settings_that_cannot_be_are_refused_where_a_function_is_bound(config: Any, text: str) -> None:
    server = Server(LOCAL)

    with pytest.raises(InvalidArg, match=text):
        server.bind("m", same, [number("x")], [number("y")], config=config)


# Served


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    options = replace(LOCAL, rate_limit="execution_count", rate_limit_resources=(("memory", 1, None),))
    with Server(options) as running:
        yield running


def sequence(server: Server, name: str, values: list[float], sequence_id: int | str = 7) -> list[Any]:
    """The answers to the requests of a sequence, one after the other."""
    last = len(values) - 1
    return [
        server.model(name)
        .infer(
            {"x": ROW * value},
            sequence_id=sequence_id,
            sequence_start=step == 0,
            sequence_end=step == last,
        )["y"]
        .tolist()
        for step, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("dtype", "false_true", "id_dtype", "sequence_id"),
    [
        (None, (0, 1), None, 7),
        (np.int32, (-1, 5), np.int32, 7),
        (np.float32, (0.5, 1.5), bytes, "seven"),
    ],
)
def test_a_function_is_given_the_controls_of_its_requests(
    server: Server, dtype: Any, false_true: Any, id_dtype: Any, sequence_id: int | str
) -> None:
    seen: list[Any] = []

    @batch
    def noted(x: Any, START: Any, END: Any, READY: Any, ID: Any) -> Any:
        for row in zip(START, END, READY, ID, strict=True):
            seen.append([array.item() for array in row])
            assert all(array.shape == (1,) for array in row)
        assert ID.dtype == (object if id_dtype is bytes else np.dtype(id_dtype or np.uint64))
        return {"y": x}

    controls = [Control(kind.name, kind, dtype, false_true) for kind in ControlKind if kind.name != "CORRID"]
    batcher = SequenceBatcher(controls=[*controls, Control("ID", ControlKind.CORRID, id_dtype)])
    server.bind("noted", noted, [number("x")], [number("y")], config=ModelConfig(batcher=batcher))

    assert sequence(server, "noted", [1, 2, 3], sequence_id) == [[[1]], [[2]], [[3]]]

    false, true = false_true
    expected_id = sequence_id.encode() if isinstance(sequence_id, str) else sequence_id
    assert seen == [
        [true, false, true, expected_id],
        [false, false, true, expected_id],
        [false, true, true, expected_id],
    ]


def test_a_place_in_a_batch_that_has_no_request_is_not_ready(server: Server) -> None:
    seen: list[Any] = []

    @batch
    def noted(x: Any, READY: Any) -> Any:
        seen.append(READY[:, 0].tolist())
        return {"y": x}

    batcher = SequenceBatcher(controls=[Control("READY", ControlKind.READY)])
    server.bind("places", noted, [number("x")], [number("y")], config=ModelConfig(batcher=batcher))
    model = server.model("places")
    for sequence_id in (1, 2):
        model.infer({"x": ROW}, sequence_id=sequence_id, sequence_start=True)

    model.infer({"x": ROW}, sequence_id=2, sequence_end=True)

    assert seen[-1] == [False, True]


@pytest.mark.parametrize("strategy", [DirectStrategy(), OldestStrategy(max_candidate_sequences=4)])
@pytest.mark.parametrize("returns_names", [True, False])
def test_the_server_keeps_the_state_of_a_sequence(server: Server, strategy: Any, returns_names: bool) -> None:
    @batch
    def add(x: Any, so_far: Any) -> Any:
        total = x + so_far
        return {"y": total, "next": total} if returns_names else [total, total]

    begin = InitialState([100.0])
    batcher = SequenceBatcher(strategy=strategy, states=[State("so_far", "next", (1,), np.float32, begin)])
    server.bind("sums", add, [number("x")], [number("y")], config=ModelConfig(batcher=batcher))

    first = [sequence(server, "sums", [1, 20, 300], sequence_id) for sequence_id in (1, 2)]

    assert first == [[[[101]], [[121]], [[421]]]] * 2
    assert [output["name"] for output in server.model("sums").metadata["outputs"]] == ["y"]


def test_a_state_may_begin_with_a_file_or_strings(server: Server, tmp_path: Path) -> None:
    (tmp_path / "begin").write_bytes(np.array([5, 6], np.int64).tobytes())

    texts: list[Any] = []

    @batch
    def noted(x: Any, count: Any, text: Any) -> Any:
        texts.append(text.item())
        longer = np.array([[text.item() + b"!"]], object)
        return {"y": x + count.sum(axis=1, keepdims=True), "more": count + 1, "longer": longer}

    states = [
        State("count", "more", (2,), np.int64, InitialState(tmp_path / "begin")),
        State("text", "longer", (1,), bytes, InitialState(np.array(["ü".encode()], object))),
    ]
    config = ModelConfig(batcher=SequenceBatcher(states=states))
    server.bind("files", noted, [number("x")], [number("y")], config=config)

    assert sequence(server, "files", [0, 0, 0]) == [[[11]], [[13]], [[15]]]
    assert texts == ["ü".encode(), "ü!".encode(), "ü!!".encode()]


def test_a_function_that_returns_no_state_is_told_which(server: Server) -> None:
    config = ModelConfig(batcher=SequenceBatcher(states=[State("s", "t", (1,), np.float32)]))
    server.bind("without", same, [number("x")], [number("y")], config=config)

    with pytest.raises(Internal, match="its function returned outputs y, expected y, t"):
        sequence(server, "without", [1])


def iterative(function: Any, server: Server, **more: Any) -> Any:
    batcher = SequenceBatcher(strategy=OldestStrategy(max_candidate_sequences=8), iterative=True)
    config = ModelConfig(batcher=batcher, **more)
    server.bind("steps", function, [number("x")], [number("y")], config=config)
    return server.model("steps")


def test_a_request_may_be_executed_again_until_it_is_answered(server: Server) -> None:
    left: dict[Any, int] = {}

    def count_down(requests: list[Request]) -> Any:
        answers: list[Any] = []
        for request in requests:
            steps = left.setdefault(request.sequence_id, int(request["x"].item()))
            left[request.sequence_id] = steps - 1
            if steps:
                request.reschedule()
            answers.append(None if steps else {"y": request["x"]})
        return answers

    model = iterative(count_down, server)

    futures = [model.submit({"x": ROW * steps}) for steps in (3, 0, 2)]

    assert [future.result(DEADLINE_S)["y"].item() for future in futures] == [3, 0, 2]
    stats = model.statistics["model_stats"][0]
    assert sorted(left.values()) == [-1, -1, -1]
    assert stats["inference_stats"]["success"]["count"] == 3


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_a_stream_may_be_continued_by_the_next_execution(server: Server, kind: str) -> None:
    left: dict[Any, int] = {}

    def step(requests: list[Request]) -> Any:
        for request in requests:
            left[request.sequence_id] = left.get(request.sequence_id, 3) - 1
            if left[request.sequence_id]:
                request.reschedule()
        return [{"y": ROW * left[request.sequence_id]} for request in requests]

    def generate(requests: list[Request]) -> Any:
        yield step(requests)

    async def wait(requests: list[Request]) -> Any:
        return step(requests)

    model = iterative(generate if kind == "generator" else wait, server, decoupled=True)

    assert [part["y"].item() for part in model.stream({"x": ROW})] == [2, 1, 0]


def test_a_request_that_is_answered_and_to_be_executed_again_is_told_so(server: Server) -> None:
    def both(requests: list[Request]) -> Any:
        for request in requests:
            request.reschedule()
        return [{"y": request["x"]} for request in requests]

    with pytest.raises(Internal, match="for a request that is to be executed again, expected None"):
        iterative(both, server).infer({"x": ROW})


def test_only_iterative_functions_have_requests_executed_again(server: Server) -> None:
    def again(requests: list[Request]) -> Any:
        requests[0].reschedule()
        return [None]

    server.bind("once", again, [number("x")], [number("y")])

    with pytest.raises(Internal, match=r"bound with SequenceBatcher\(iterative=True\)"):
        server.model("once").infer({"x": ROW})


def test_functions_share_what_is_scarce(server: Server) -> None:
    running, most = 0, 0
    lock, entered, go_on = threading.Lock(), threading.Event(), threading.Event()

    def alone(requests: list[Request]) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        entered.set()
        go_on.wait(DEADLINE_S)
        with lock:
            running -= 1
        return same(requests)

    config = replace(WITHOUT_A_BATCHER, instances=2, rate_limiter=RateLimiter(resources=[Resource("memory")]))
    for name in ("one", "two"):
        server.bind(name, alone, [number("x")], [number("y")], config=config)
    server.bind("free", same, [number("x")], [number("y")], config=WITHOUT_A_BATCHER)

    futures = [server.model(name).submit({"x": ROW}) for name in ("one", "two", "one", "two")]
    assert entered.wait(DEADLINE_S)
    assert server.model("free").infer({"x": ROW})["y"].item() == 1  # needs nothing, and does not wait
    go_on.set()

    assert [future.result(DEADLINE_S)["y"].item() for future in futures] == [1] * 4
    assert most == 1


def test_a_function_that_needs_more_than_there_is_cannot_be_bound(server: Server) -> None:
    config = ModelConfig(rate_limiter=RateLimiter(resources=[Resource("memory", 2)]))

    with pytest.raises(TritonError, match='Resource count for "memory" is limited to 1'):
        server.bind("large", same, [number("x")], [number("y")], config=config)


def test_a_batching_strategy_is_chosen_by_name_or_object(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class OneByOne:
        @hookimpl
        def model_batcher_initialize(self, model: Any) -> None:
            """Nothing is needed."""

        @hookimpl
        def model_batcher_finalize(self, batcher: Any) -> None:
            """Nothing is left."""

        @hookimpl
        def model_batch_initialize(self, batcher: Any) -> None:
            """Nothing is counted."""

        @hookimpl
        def model_batch_include_request(self, request: Any, batch: Any) -> bool:
            asked.append(request.id)
            return True

        @hookimpl
        def model_batch_finalize(self, batch: Any) -> None:
            """Nothing is left."""

    monkeypatch.setitem(sys.modules, "strategies_of_a_test", SimpleNamespace(one_by_one=OneByOne()))
    batcher = DynamicBatcher(strategy="strategies_of_a_test:one_by_one")
    server.bind("chosen", same, [number("x")], [number("y")], config=ModelConfig(batcher=batcher))
    unknown = ModelConfig(batcher=DynamicBatcher(strategy="nowhere"))

    server.model("chosen").infer({"x": ROW}, id="first")

    assert asked == ["first"]
    with pytest.raises(InvalidArg, match="'nowhere'"):
        server.bind("chosen", same, [number("x")], [number("y")], config=unknown)
