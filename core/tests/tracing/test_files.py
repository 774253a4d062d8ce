from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.tracing.files import TraceFiles, TraceStream
from tritonpy.tracing.output import TraceOutput
from tritonpy.tracing.settings import TraceLevel, TraceSettings
from tritonpy.tracing.trace import FinishedTrace
from tritonpy.tracing.tracing import Sampler

from .support import finished


def ids(path: Path) -> list[str]:
    return [entry["request_id"] for entry in json.loads(path.read_text()) if "request_id" in entry]


def found(folder: Path) -> dict[str, list[str]]:
    return {path.name: ids(path) for path in sorted(folder.iterdir())}


def test_a_file_is_whole_after_every_write(tmp_path: Path) -> None:
    stream = TraceStream(str(tmp_path / "t"))
    files = TraceFiles()
    for number in range(3):
        files.take([finished(stream, str(number))])
        assert ids(tmp_path / "t") == [str(one) for one in range(number + 1)]
    files.close()

    assert found(tmp_path) == {"t": ["0", "1", "2"]}


def test_so_many_traces_as_asked_for_make_a_file(tmp_path: Path) -> None:
    stream = TraceStream(str(tmp_path / "t"), log_frequency=2)
    files = TraceFiles()
    files.take([finished(stream, str(number)) for number in range(5)])

    assert ids(tmp_path / "t.0") == ["0", "1"]
    assert ids(tmp_path / "t.1") == ["2", "3"]
    assert not (tmp_path / "t.2").exists()
    files.close()
    assert found(tmp_path) == {"t.0": ["0", "1"], "t.1": ["2", "3"], "t.2": ["4"]}


def test_all_traces_of_a_count_make_a_file_with_a_number(tmp_path: Path) -> None:
    stream = TraceStream(str(tmp_path / "t"), count=2)
    files = TraceFiles()
    files.take([finished(stream, "0")])
    files.take([finished(stream, "1")])
    files.close()

    assert found(tmp_path) == {"t.0": ["0", "1"]}


def test_the_last_traces_of_a_count_make_a_file_also_if_they_are_fewer_than_others_have(
    tmp_path: Path,
) -> None:
    stream = TraceStream(str(tmp_path / "t"), log_frequency=2, count=5)
    files = TraceFiles()
    files.take([finished(stream, str(number)) for number in range(5)])

    assert stream.is_complete
    assert found(tmp_path) == {"t.0": ["0", "1"], "t.1": ["2", "3"], "t.2": ["4"]}
    files.close()


def test_fewer_than_the_count_make_the_file_itself(tmp_path: Path) -> None:
    files = TraceFiles()
    for name in ("a", "b"):
        stream = TraceStream(str(tmp_path / "t"), count=2)
        files.take([finished(stream, name)])
        files.end_stream(stream)
    files.close()

    assert found(tmp_path) == {"t": ["a", "b"]}


def test_settings_that_follow_each_other_write_on_and_number_on(tmp_path: Path) -> None:
    whole, numbered = (TraceStream(str(tmp_path / "t"), frequency) for frequency in (0, 1))
    again = TraceStream(str(tmp_path / "t"), 1)
    files = TraceFiles()
    files.take([finished(whole, "a"), finished(numbered, "b"), finished(whole, "c"), finished(again, "d")])
    files.end_stream(whole)
    files.close()

    assert found(tmp_path) == {"t": ["a", "c"], "t.0": ["b"], "t.1": ["d"]}


def test_what_comes_after_the_end_of_its_stream_is_written_all_the_same(tmp_path: Path) -> None:
    stream = TraceStream(str(tmp_path / "t"), log_frequency=5)
    files = TraceFiles()
    files.take([finished(stream, "a")])
    files.end_stream(stream)
    files.take([finished(stream, "late")])
    files.close()

    assert found(tmp_path) == {"t.0": ["a"], "t.1": ["late"]}


def test_a_file_of_an_earlier_server_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("[something much longer than what comes now" * 100)
    files = TraceFiles()
    files.take([finished(TraceStream(str(tmp_path / "t")), "new")])

    assert ids(tmp_path / "t") == ["new"]


def test_a_place_that_cannot_be_written_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "tritonpy.tracing")
    path = tmp_path / "missing" / "t"
    stream = TraceStream(str(path))
    files = TraceFiles()
    files.take([finished(stream, "a")])
    files.take([finished(stream, "b")])

    assert [record.getMessage() for record in caplog.records] == [
        f"traces cannot be written to '{path}': No such file or directory; they are lost"
    ]
    path.parent.mkdir()
    files.take([finished(stream, "c")])
    assert ids(path) == ["c"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_costs_traces_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "tritonpy.tracing")
    files = TraceFiles()
    files.take([finished(TraceStream("/dev/full"), "a")])

    assert "traces cannot be written to '/dev/full': No space left on device" in caplog.text


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(0, 2), max_size=20),
    st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 6)), min_size=3, max_size=3),
    st.integers(1, 6),
)
def test_every_trace_is_in_exactly_one_file(
    tmp_path_factory: pytest.TempPathFactory,
    which: list[int],
    kinds: list[tuple[int, int]],
    at_once: int,
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    streams = [TraceStream(str(folder / "t"), frequency, count) for frequency, count in kinds]
    traces = [finished(streams[stream], str(number)) for number, stream in enumerate(which)]
    files = TraceFiles()
    for start in range(0, len(traces), at_once):
        files.take(traces[start : start + at_once])
    files.close()

    written = [id for file in found(folder).values() for id in file]
    assert sorted(written) == sorted(str(number) for number in range(len(which)))
    assert not list(folder.glob("*.part*"))


def sampler_of(path: Path, *, count: int) -> Sampler:
    settings = TraceSettings(level=TraceLevel.TIMESTAMPS, rate=1, count=count, file=str(path))
    sampler = Sampler(settings, needs_file=True)
    assert [sampler.wants() for _ in range(count + 1)] == [True] * count + [False]
    return sampler


def test_a_count_is_0_only_when_its_file_is_there(tmp_path: Path) -> None:
    sampler = sampler_of(tmp_path / "t", count=2)
    files = TraceFiles()

    for number in range(2):
        assert sampler.shown_count == 1
        assert not (tmp_path / "t.0").exists()
        files.take([finished(sampler.stream, str(number))])

    assert sampler.shown_count == 0
    assert ids(tmp_path / "t.0") == ["0", "1"]


def test_a_count_is_0_also_when_its_traces_are_lost(tmp_path: Path) -> None:
    unwritable = sampler_of(tmp_path / "gone" / "t", count=1)
    TraceFiles().take([finished(unwritable.stream)])
    assert unwritable.shown_count == 0

    flooded = sampler_of(tmp_path / "t", count=2)
    stuck = _Stuck()
    output = TraceOutput(stuck, most_held_bytes=1)
    output.put(finished(flooded.stream))
    output.put(finished(flooded.stream))  # finds too much waiting
    stuck.may_go_on.set()
    output.close()
    assert (flooded.stream.dropped_count, flooded.shown_count) == (1, 0)


class _Stuck(TraceFiles):
    """Writes nothing before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()

    def take(self, traces: Sequence[FinishedTrace]) -> None:
        self.may_go_on.wait(60)
        super().take(traces)
