"""The verdict on a library that was tried in a child, from the child's end."""

from __future__ import annotations

import signal

from tritonpy.plugin import ErrorCode, Internal, TritonError, Unavailable

from tritonpy_abi.probe.process import Ending

TIME_VARIABLE = "TRITONPY_ABI_PROBE_S"

_OPENING = "dlopen"
_KEPT_LINES = 20
_SHOWN_LINES = 3
_SHOWN_CHARS = 400

UNTRIED = f"{TIME_VARIABLE}=0 makes the server load libraries untried"


def judge(what: str, ending: Ending, time_s: float) -> list[str]:
    """Return what the child reported, if the library may be loaded, or cannot be.

    Args:
        what: was tried, for messages.
        ending: of the child.
        time_s: how long it was given.

    Raises:
        TritonError: what the plugin itself said; or how it ended the child, or where it did not return.
    """
    records = ending.report.decode(errors="replace").split("\0")[:-1]
    if not records:
        raise Unavailable(
            f"{what} cannot be tried: the process for it {_end(ending, time_s)} before it began"
            f"{_said(ending)}; {UNTRIED}"
        )
    kind, _, rest = records[-1].partition(" ")
    if kind == "error":
        code, _, text = rest.partition(" ")
        # A plugin may have written what is no number: the descriptor is its, too.
        raise TritonError.with_code(int(code) if code.isdecimal() else ErrorCode.UNKNOWN, text)
    if kind == "calling":
        raise _death(what, rest, ending, time_s)
    return records


def _death(what: str, function: str, ending: Ending, time_s: float) -> TritonError:
    place = "while it was opened" if function == _OPENING else f"in {function}"
    if function == _OPENING and ending.status == -signal.SIGBUS:
        place += ", as it happens where a file was not copied to its end"
    if ending.status is None:
        still = "being opened" if function == _OPENING else f"in {function}"
        return Unavailable(
            f"{what} was tried in a process of its own, and was still {still} after {time_s:g} s"
            f"{_said(ending)}; {TIME_VARIABLE} gives it more of them, and {UNTRIED}"
        )
    return Internal(
        f"{what} ended the process it was tried in: {_cause(ending.status)} {place}{_said(ending)}; the "
        f"server has not loaded it. To have it end the server, under a debugger for example: {UNTRIED}"
    )


def _end(ending: Ending, time_s: float) -> str:
    return f"was stopped after {time_s:g} s" if ending.status is None else f"ended ({_cause(ending.status)})"


def _cause(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def printed_lines(ending: Ending) -> list[str]:
    """The last lines that it printed or logged, without blank ones."""
    lines = ending.output.decode(errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()][-_KEPT_LINES:]


def _said(ending: Ending) -> str:
    """The last that it printed, to go on after a sentence."""
    text = " | ".join(printed_lines(ending)[-_SHOWN_LINES:])
    return f"; it printed: {text[-_SHOWN_CHARS:]}" if text else ""
