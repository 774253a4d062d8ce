"""The type of objects of JSON, such as configurations of models."""

from typing import Any

JsonObject = dict[str, Any]  # Any: JSON
"""An object of JSON, such as a model's configuration."""
