"""Traces of requests: choosing them, noting activities, writing files or spans."""
