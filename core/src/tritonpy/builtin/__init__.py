"""Backends and a cache that come with the server, found through entry points as plugins are."""
