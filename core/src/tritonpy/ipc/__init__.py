"""Communication between the server and a worker process: frames on a socket, tensors in shared memory.

This package needs only the standard library and numpy, imports nothing else of the server, and runs on every
Python from 3.9: the program behind a Python model's instance is started with the model's own interpreter and
loads this package by its path. All imports in here are therefore relative.
"""
