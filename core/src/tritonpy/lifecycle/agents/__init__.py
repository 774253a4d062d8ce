"""Repository agents: plugins that see a model's files before it is loaded, and hear what becomes of it."""
