"""The gRPC frontend: service `inference.GRPCInferenceService` on grpcio."""
