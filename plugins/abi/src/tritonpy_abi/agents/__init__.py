"""Repository agents that are shared objects; each runs in a process of its own, which imports this first."""
