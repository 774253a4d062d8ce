"""The model configuration: read, completed, checked and shown."""
