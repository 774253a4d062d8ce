"""The gRPC port on grpcio's server: everything of the frontend that imports grpcio."""
