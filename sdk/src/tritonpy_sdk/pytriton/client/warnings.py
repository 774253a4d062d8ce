"""`pytriton.client.warnings`."""


class PyTritonWarning(UserWarning):
    """The warning below; a program may filter it."""


class NotSupportedTimeoutWarning(PyTritonWarning):
    """A time-out has no effect with a protocol; of the clients here it has one with both."""
