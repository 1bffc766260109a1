"""The rows of all spans in order, each with its columns and its policies, for whoever holds every one against its body.

Rules: AUD-06, LED-06. Policies stand in a table of their own; one pass goes over both. It decides nothing.
Next: `ledger.sqlite.check_trail` and `ledger.sqlite.span_stream`.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from ledger.port import SpanColumns
from ledger.sqlite.check_ground import BATCH

_COLUMNS: Final = ", ".join(SpanColumns._fields[:-1])
_SEQUENCE: Final = SpanColumns._fields.index("sequence")


def span_batches(raw: Any, stray: Callable[[int], None]) -> Iterator[list[SpanColumns]]:  # noqa: ANN401 - untyped driver
    """Give the spans that are there, a batch at a time; `stray` is told the sequence of each policy without a span."""
    cursor = raw.execute(f"SELECT {_COLUMNS} FROM spans ORDER BY sequence")
    policies = _Policies(raw, stray)
    while batch := cursor.fetchmany(BATCH):
        yield [SpanColumns._make((*row, policies.of(row[_SEQUENCE]))) for row in batch]
    policies.end()


class _Policies:
    """The rows of `span_policies`, beside the spans that they name."""

    def __init__(self, raw: Any, stray: Callable[[int], None]) -> None:  # noqa: ANN401 - untyped driver
        self._stray = stray
        # SQLite sorts what fits no memory in a file of its own; row by row, each would be a search.
        self._rows = iter(raw.execute("SELECT sequence, policy FROM span_policies ORDER BY sequence, policy"))
        self._next: tuple[int, str] | None = next(self._rows, None)

    def of(self, sequence: int) -> tuple[str, ...]:
        """Return the policies of the next span, sorted."""
        found: list[str] = []
        while self._next is not None and self._next[0] <= sequence:
            if self._next[0] == sequence:
                found.append(self._next[1])
            else:
                self._stray(self._next[0])
            self._next = next(self._rows, None)
        return tuple(found)

    def end(self) -> None:
        """Tell those after the last span."""
        while self._next is not None:
            self._stray(self._next[0])
            self._next = next(self._rows, None)
