"""Following the repositories: what changes in them, and what is done about it."""
