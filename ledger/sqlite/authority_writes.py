"""Writing rulings, waits and approvals: rows, their MACs, and the register over the rulings.

Rules: POL-07, ADM-05, APP-01, LED-06 (a ruling stands in the register of the head, so that no earlier one is put back
and none is taken away). A constraint that fires here is a broken rule of ours.
Next: `ledger.sqlite.writes` calls it inside the transaction of a step.
"""

from typing import Any, Final

from ledger import changes
from ledger.authority import RulingKind, ruling_id
from ledger.port import Authenticator
from ledger.sqlite.authority_rows import (
    APPROVAL_COLUMNS,
    RULING_COLUMNS,
    WAIT_COLUMNS,
    approval_authority,
    approval_row,
    ruling_authority,
    ruling_row,
    wait_authority,
    wait_row,
)
from ledger.sqlite.register import Register
from ledger.standing import bucket_of

_RULING_MARKS: Final = ", ".join("?" * (len(RULING_COLUMNS.split(",")) + 4))
_WAIT_MARKS: Final = ", ".join("?" * (len(WAIT_COLUMNS.split(",")) + 2))
_APPROVAL_MARKS: Final = ", ".join("?" * (len(APPROVAL_COLUMNS.split(",")) + 2))


class AuthorityWriter:
    """Writes the changes of rulings, waits and approvals in one transaction."""

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

    def ruled(self, change: changes.RulingMade, sequence: int) -> None:
        """Put a ruling in the place of the one before."""
        ruling = change.ruling
        # Proven before it is changed: an edit of this row, or of one beside it, must not be signed as ours.
        self._register.prove(ruling.ruling_id)
        mac = self._keys.tag("row", ruling_authority(ruling, sequence))
        self._raw.execute(
            f"INSERT INTO rulings(ruling_id, bucket, {RULING_COLUMNS}, sequence, mac) VALUES ({_RULING_MARKS}) "
            "ON CONFLICT (ruling_id) DO UPDATE SET value = excluded.value, sequence = excluded.sequence, "
            "voids_until_ms = excluded.voids_until_ms, since_ms = excluded.since_ms, mac = excluded.mac",
            (ruling.ruling_id, bucket_of(ruling.ruling_id), *ruling_row(ruling), sequence, mac),
        )
        self._register.renew(ruling.ruling_id)

    def dropped(self, change: changes.ChallengesDropped) -> None:
        """Remove used challenges whose time is over."""
        for name in change.names:
            wanted = ruling_id(RulingKind.CHALLENGE, name)
            self._register.prove(wanted)
            self._raw.execute("DELETE FROM rulings WHERE ruling_id = ?", (wanted,))
            self._register.renew(wanted)

    def asked(self, change: changes.ApprovalAsked, sequence: int) -> None:
        """Insert what an effect waits for."""
        mac = self._keys.tag("row", wait_authority(change.wait))
        self._raw.execute(
            f"INSERT INTO approval_waits({WAIT_COLUMNS}, sequence, mac) VALUES ({_WAIT_MARKS})",
            (*wait_row(change.wait), sequence, mac),
        )

    def approved(self, change: changes.ApprovalGiven, sequence: int) -> None:
        """Insert one person's yes."""
        mac = self._keys.tag("row", approval_authority(change.approval))
        self._raw.execute(
            f"INSERT INTO approvals({APPROVAL_COLUMNS}, sequence, mac) VALUES ({_APPROVAL_MARKS})",
            (*approval_row(change.approval), sequence, mac),
        )
