"""Writing invocations and obligations: rows, their MACs, and the register over what is open.

Rules: INV-02 (an outcome is written once), EFF-09 (obligations are append-only, and closing one is its own row), LED-06
(an open invocation stands in the register of the head, so that none that ended is set back to open). A constraint that
fires here is a broken rule of ours.
Next: `ledger.sqlite.writes` calls it inside the transaction of a step.
"""

from dataclasses import replace
from typing import Any, Final

from ledger import changes
from ledger.errors import Broken
from ledger.invocations import Invocation
from ledger.model import InstantMs
from ledger.port import Authenticator
from ledger.sqlite.invocation_rows import (
    INVOCATION_COLUMNS,
    invocation_authority,
    invocation_from,
    invocation_row,
)
from ledger.sqlite.register import Register
from ledger.standing import bucket_of

_MARKS: Final = ", ".join("?" * (len(INVOCATION_COLUMNS.split(",")) + 3))


class InvocationWriter:
    """Writes the changes of invocations and obligations in one transaction."""

    def __init__(
        self,
        raw: Any,  # noqa: ANN401 - untyped driver
        *,
        keys: Authenticator,
        register: Register,
    ) -> None:
        """Write over `raw`; `register` is the one that tasks are in too, as the transaction has it."""
        self._raw = raw
        self._keys = keys
        self._register = register

    def opened(self, change: changes.InvocationOpened, sequence: int) -> None:
        """Insert an invocation; one that was rejected never stands in the register."""
        invocation = change.invocation
        self._register.prove(invocation.invocation_id)
        self._raw.execute(
            f"INSERT INTO invocations({INVOCATION_COLUMNS}, bucket, sequence, mac) VALUES ({_MARKS})",
            (
                *invocation_row(invocation),
                bucket_of(invocation.invocation_id),
                sequence,
                self._mac(invocation, sequence),
            ),
        )
        if invocation.outcome is None:
            self._register.renew(invocation.invocation_id)

    def ended(self, change: changes.InvocationEnded, sequence: int, at_ms: InstantMs) -> None:
        """Give an open invocation its outcome."""
        row = self._raw.execute(
            f"SELECT {INVOCATION_COLUMNS} FROM invocations WHERE invocation_id = ?",
            (change.invocation_id,),
        ).fetchone()
        if row is None:
            raise Broken("a change names an invocation that does not exist")
        # Proven before it is changed: an edit of this row, or of one beside it, must not be signed as ours.
        self._register.prove(change.invocation_id)
        ended = replace(invocation_from(row), outcome=change.outcome, ended_ms=at_ms)
        self._raw.execute(
            "UPDATE invocations SET outcome = ?, ended_ms = ?, sequence = ?, mac = ? WHERE invocation_id = ?",
            (str(change.outcome), at_ms, sequence, self._mac(ended, sequence), change.invocation_id),
        )
        self._register.renew(change.invocation_id)

    def collected(self, change: changes.InvocationsCollected) -> None:
        """Remove invocations that ended and that no effect names."""
        for invocation_id in change.invocation_ids:
            self._raw.execute("DELETE FROM invocations WHERE invocation_id = ?", (invocation_id,))

    def obliged(self, change: changes.ObligationOpened, sequence: int) -> None:
        """Insert an open obligation."""
        obligation = change.obligation
        self._raw.execute(
            "INSERT INTO obligations(effect_id, name, deadline_ms, sequence) VALUES (?, ?, ?, ?)",
            (obligation.effect_id, obligation.name, obligation.deadline_ms, sequence),
        )

    def done(self, change: changes.ObligationDone, sequence: int, at_ms: InstantMs) -> None:
        """Insert that an obligation was closed."""
        self._raw.execute(
            "INSERT INTO obligations_done(effect_id, name, at_ms, sequence) VALUES (?, ?, ?, ?)",
            (change.effect_id, change.name, at_ms, sequence),
        )

    def _mac(self, invocation: Invocation, sequence: int) -> bytes:
        return self._keys.tag("row", invocation_authority(invocation, sequence))
