"""Functions of a program as models of a server inside it."""
