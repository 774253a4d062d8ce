"""Batches of requests as the tensors of one call of a model, and its outputs as responses."""
