"""The best configuration of models, found by trials, and why they answer as they do."""
