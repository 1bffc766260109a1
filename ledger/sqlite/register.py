"""Reading and renewing a register of standing rows inside a transaction (`ledger.standing`).

Rules: LED-06 (an earlier version of a row is authentic, so the head says which is the latest), LED-07 (proving one row
reads its bucket only). A bucket is proven before it is renewed, or an edit beside the renewed row would be made good.
"""

import hmac
from typing import Any, Final

from ledger.errors import LedgerCorrupt
from ledger.standing import (
    BUCKETS,
    Standing,
    bucket_digest,
    bucket_in,
    bucket_of,
    register_digest,
    with_bucket,
)
from ledger.states import PENDING

_PENDING: Final = ", ".join(f"'{state}'" for state in sorted(PENDING))
ROWS_OF: Final = {
    Standing.TASKS: (
        "SELECT task_id AS id, mac FROM tasks WHERE bucket = ?1 UNION ALL "
        "SELECT invocation_id, mac FROM invocations WHERE bucket = ?1 AND outcome IS NULL UNION ALL "
        "SELECT ruling_id, mac FROM rulings WHERE bucket = ?1 ORDER BY id"
    ),
    Standing.EFFECTS: (
        f"SELECT effect_id, mac FROM effects WHERE bucket = ?1 AND state IN ({_PENDING}) ORDER BY effect_id"
    ),
}
"""The rows of one bucket; the index of the second has exactly this condition."""

_SAYS: Final = {
    Standing.TASKS: (
        "A row of a task, an open invocation or a ruling is not the latest of it, or was removed; run the full check."
    ),
    Standing.EFFECTS: (
        "The effects that may still be admitted are not those that were prepared; run the full check."
    ),
}
REASONS: Final = {Standing.TASKS: "standing", Standing.EFFECTS: "pending_set"}


def recomputed(raw: Any, kind: Standing) -> bytes:  # noqa: ANN401 - untyped driver
    """Return the register that the rows make, whatever is stored."""
    return b"".join(bucket_digest(raw.execute(ROWS_OF[kind], (bucket,))) for bucket in range(BUCKETS))


class Register:
    """One register as a transaction finds it; `digest` is what the head holds, or is to hold."""

    def __init__(self, raw: Any, kind: Standing, digest: bytes) -> None:  # noqa: ANN401 - untyped driver
        """Read nothing yet."""
        self._raw = raw
        self._kind = kind
        self.digest = digest
        self._register: bytes | None = None
        self._proven: set[int] = set()

    def prove(self, row_id: str) -> None:
        """Return if every row in the bucket of `row_id` stands as the head says.

        Raises:
            LedgerCorrupt: `standing` or `pending_set`; one was set back, added or removed without the keys.
        """
        bucket = bucket_of(row_id)
        if bucket in self._proven:
            return
        if not hmac.compare_digest(self._found(bucket), bucket_in(self._read(), bucket)):
            raise LedgerCorrupt(REASONS[self._kind], _SAYS[self._kind])
        self._proven.add(bucket)

    def prove_all(self) -> None:
        """Return if every row stands as the head says, and none is missing; reads all of them.

        Raises:
            LedgerCorrupt: as `prove`.
        """
        register = self._read()
        for bucket in range(BUCKETS):
            if not hmac.compare_digest(self._found(bucket), bucket_in(register, bucket)):
                raise LedgerCorrupt(REASONS[self._kind], _SAYS[self._kind])
            self._proven.add(bucket)

    def renew(self, row_id: str) -> None:
        """Take in a row that was just written, after `prove` of its bucket."""
        bucket = bucket_of(row_id)
        renewed = with_bucket(self._read(), bucket, self._found(bucket))
        self._raw.execute("UPDATE standing SET register = ? WHERE kind = ?", (renewed, str(self._kind)))
        self._register, self.digest = renewed, register_digest(renewed)

    def _read(self) -> bytes:
        if self._register is None:
            row = self._raw.execute(
                "SELECT register FROM standing WHERE kind = ?", (str(self._kind),)
            ).fetchone()
            if row is None or not hmac.compare_digest(register_digest(row[0]), self.digest):
                raise LedgerCorrupt(REASONS[self._kind], _SAYS[self._kind])
            self._register = bytes(row[0])
        return self._register

    def _found(self, bucket: int) -> bytes:
        return bucket_digest(self._raw.execute(ROWS_OF[self._kind], (bucket,)))
