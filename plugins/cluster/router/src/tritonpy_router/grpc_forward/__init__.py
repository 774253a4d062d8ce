"""Calls of gRPC on their way to replicas, and the answers on their way back: messages that are not parsed."""
