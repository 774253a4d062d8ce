"""For people who write models and plugins for tritonpy; importing this package imports nothing heavy."""

from tritonpy_sdk.repository import ModelRepository

__all__ = ["ModelRepository"]
