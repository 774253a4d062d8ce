"""Backends that come with the server; they enter through entry points, like everybody else's."""
