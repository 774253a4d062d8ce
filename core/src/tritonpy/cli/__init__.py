"""The command `corectl`: serve, and talk to a running server."""
