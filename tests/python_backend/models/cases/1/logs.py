"""Lines for the server's log."""

import sys

import triton_python_backend_utils as pb_utils

LOGGER = pb_utils.Logger


def each_level(request, text):
    LOGGER.log_info(f"{text} info")
    LOGGER.log_warn(f"{text} warning")
    LOGGER.log_error(f"{text} error")
    LOGGER.log_verbose(f"{text} verbose")


def by_level(request, text):
    LOGGER.log(f"{text} default")
    LOGGER.log(f"{text} info", LOGGER.INFO)
    LOGGER.log(f"{text} warning", LOGGER.WARNING)
    LOGGER.log(f"{text} error", LOGGER.ERROR)
    LOGGER.log(f"{text} verbose", LOGGER.VERBOSE)


def any_text(request, text):
    LOGGER.log_info(text)


def refused(request):
    found = []
    for args in ((3,), (None,), ("text", 7), ("text", "INFO"), ()):
        try:
            LOGGER.log(*args)
        except Exception as exc:
            found.append(type(exc).__name__)
        else:
            found.append(None)
    return found


def printed(request, text):
    print(f"{text} out")
    print(f"{text} err", file=sys.stderr)
