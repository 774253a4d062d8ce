"""The backend `xyz`, which is a library: the entry point names it, and tritonpy-abi opens it."""

from __future__ import annotations

from pathlib import Path

LIBRARY = Path(__file__).with_name("libtriton_xyz.so")
