"""The program inside the worker process of an isolated backend."""
