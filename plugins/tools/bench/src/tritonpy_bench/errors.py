"""The error of this distribution."""


class BenchError(Exception):
    """The load cannot be made, or gave nothing to measure; the text says why and what to do."""
