"""Repository agents that are shared objects; each runs in a process of its own."""

from tritonpy_abi.agents.library import AgentLibrary as open_agent

__all__ = ["open_agent"]
