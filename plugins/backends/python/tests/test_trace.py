"""The trace of a request, as a model has it and hands it on."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils
from triton_python_backend_utils._wire import decode_request, encode_call

PLAIN = (3, "id", 0, 0, 0, 0, None, None, ())
CONTEXT = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'


def received(*trace):
    """A request as it came; without shared memory nothing more is needed."""
    return decode_request((*PLAIN, *trace), None, None)


def call_with(trace):
    """What travels when a model makes a request."""
    made = pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=["A"], trace=trace)
    return made, encode_call(made._wire, [], None)


def test_a_request_that_is_traced_gives_its_context():
    assert received((7, CONTEXT)).trace().get_context() == CONTEXT
    assert received((7, None)).trace().get_context() is None
    assert received().trace().get_context() is None


def test_a_call_names_the_trace_it_belongs_to():
    for trace in ((7, CONTEXT), (7, None)):
        made, call = call_with(received(trace).trace())

        assert call[9] == (3, 7)
        assert made.trace().get_context() == trace[1]


def test_a_call_without_a_trace_is_as_short_as_ever():
    for trace in (None, pb_utils.InferenceTrace(), received().trace()):
        made, call = call_with(trace)

        assert len(call) == 9
        assert made.trace().get_context() is None


def test_flags_that_change_leave_the_trace():
    made, _ = call_with(received((7, CONTEXT)).trace())
    made.set_flags(1)

    assert (made.flags(), made.trace().get_context()) == (1, CONTEXT)
