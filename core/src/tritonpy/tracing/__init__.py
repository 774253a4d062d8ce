"""Traces of requests: which are taken, what is noted, and where it goes."""
