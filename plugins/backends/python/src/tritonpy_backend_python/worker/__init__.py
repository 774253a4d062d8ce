"""The program behind an instance of a Python model: `python …/worker/__main__.py`, started by the server.

It needs only the standard library and numpy, runs on Python 3.9 and newer, and does not import `tritonpy`:
the model's interpreter may not have it. What it shares with the server, the package `ipc`, is loaded by its
path.
"""
