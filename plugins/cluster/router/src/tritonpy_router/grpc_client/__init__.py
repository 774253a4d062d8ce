"""Connections to the gRPC port of a replica: streams of HTTP/2 whose bytes are handed on."""
