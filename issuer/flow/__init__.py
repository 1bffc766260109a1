"""The way of one effect, one file a step: prepare, decide, issue, admit, dispatch, settle, reconcile.

The numbers are those of `docs/flow.md`, where step 1 is the surface that reads the request. Start at `prepare`.
"""

__all__: list[str] = []
