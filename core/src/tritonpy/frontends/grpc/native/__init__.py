"""The gRPC port on an HTTP/2 engine of its own, on the server's loop."""
