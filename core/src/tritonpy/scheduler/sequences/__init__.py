"""Sequence batching: which requests belong together, where their state is, and what goes into a batch."""
