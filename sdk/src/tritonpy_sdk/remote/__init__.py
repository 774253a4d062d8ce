"""Functions of this program as models of a server that runs elsewhere.

`wire`, `proof`, `messages` and `link` are the protocol; the frontend `bind` speaks it on the server's side.
"""
