"""The errors of this distribution."""


class BenchError(Exception):
    """The load cannot be made, or gave nothing to measure; the text says why and what to do."""


class NothingAnswered(BenchError):
    """No request was answered, nor failed, in the windows that were measured.

    Attributes:
        reason: what happened, without what to do.
    """

    def __init__(self, model: str, seconds: float) -> None:
        self.reason = f"no request to model '{model}' was answered within {seconds:.1f} s"
        super().__init__(f"{self.reason}; measure longer (--measurement-interval)")
