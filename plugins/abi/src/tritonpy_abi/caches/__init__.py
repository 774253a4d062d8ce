"""Response caches compiled for Triton."""

from tritonpy_abi.caches.shared_cache import SharedCache as open_cache

__all__ = ["open_cache"]
