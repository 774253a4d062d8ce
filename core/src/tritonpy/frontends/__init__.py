"""Ways in: HTTP and gRPC, both thin over one data plane."""
