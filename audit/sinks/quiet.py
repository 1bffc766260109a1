"""Keeps a host's tracing away from what a sink sends: the audit of the audit would have no end.

Rules: AUD-03 (the host's OpenTelemetry set-up changes nothing). Instrumentation of HTTP clients looks for two keys in
the context before it traces a request or adds a header to it; both are set here for the block. The context belongs to
the thread, so nothing of the host's own requests goes untraced. Next: `audit.sinks.otlp`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.context import (
    _SUPPRESS_HTTP_INSTRUMENTATION_KEY,
    _SUPPRESS_INSTRUMENTATION_KEY,
    attach,
    detach,
    set_value,
)

__all__ = ["untraced"]


@contextmanager
def untraced() -> Iterator[None]:
    """Let no instrumentation of this process trace what this thread does in the block."""
    quiet = set_value(_SUPPRESS_INSTRUMENTATION_KEY, value=True)
    token = attach(set_value(_SUPPRESS_HTTP_INSTRUMENTATION_KEY, value=True, context=quiet))
    try:
        yield
    finally:
        detach(token)
