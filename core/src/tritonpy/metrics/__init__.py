"""Prometheus metrics: Triton's families for models, and `tritonpy_*` for the server itself.

At a scrape the loop copies the counters (`ModelMetrics.take`), and a thread renders the copies (`render`).
"""
