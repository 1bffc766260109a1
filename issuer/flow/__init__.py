"""The way of one effect, one file a step: prepare, decide, issue, admit, dispatch, settle. Start at `prepare`."""

__all__: list[str] = []
