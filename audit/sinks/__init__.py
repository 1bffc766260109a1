"""Where spans go beside the ledger: the port, and the sinks that ship with it."""

__all__: list[str] = []
