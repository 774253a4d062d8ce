"""The gRPC frontend: service `inference.GRPCInferenceService`, without what moves its bytes."""
