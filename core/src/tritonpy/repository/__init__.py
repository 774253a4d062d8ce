"""Model repositories: what lies in them, and the life of each model version."""
