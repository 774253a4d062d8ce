"""A check of this environment, to be sent with a question: its facts, and an example that is served.

`python -m tritonpy_sdk.pytriton.check` has the commands of `python -m pytriton`. Values of environment
variables are not written down.
"""
