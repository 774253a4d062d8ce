"""Loaded models: the check of requests, instances on threads, statistics of executions."""
