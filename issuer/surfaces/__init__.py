"""Surfaces: the same commands for people at a terminal and, later, over HTTP and MCP."""

__all__: list[str] = []
