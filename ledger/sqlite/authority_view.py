"""Reading rulings, waits, approvals and changes of authority over one connection; what `ledger.sqlite.view` stands on.

Rules: LED-06 (each is checked against its MAC as it is read, and a ruling against the head's register: an earlier word
is authentic as well, and a missing one could be a removed one), LED-07 (each question is answered by a key).
It decides nothing. Next: `ledger.sqlite.view`.
"""

import hmac
from collections.abc import Sequence
from typing import Any, Final

from ledger.authority import CHANGES_OF_AUTHORITY, Approval, ApprovalWait, Ruling, RulingKind, ruling_id
from ledger.errors import Broken, LedgerCorrupt
from ledger.model import EffectId, LedgerId
from ledger.port import Authenticator
from ledger.sqlite import rows
from ledger.sqlite.authority_rows import (
    APPROVAL_COLUMNS,
    RULING_COLUMNS,
    WAIT_COLUMNS,
    Row,
    approval_authority,
    approval_from,
    ruling_authority,
    ruling_from,
    wait_authority,
    wait_from,
)
from ledger.sqlite.invocation_view import InvocationReading
from ledger.sqlite.tables import names
from ledger.transitions import SpanRow, TransitionName

_CHANGES: Final = f"name IN ({names(CHANGES_OF_AUTHORITY)})"
"""The condition of the partial index, word for word: SQLite uses it only where a query says the same."""

_SPAN: Final = f"SELECT {rows.SPAN_COLUMNS} FROM spans"
_RULING: Final = f"SELECT {RULING_COLUMNS}, sequence, mac FROM rulings"


ProvenRulings = dict[RulingKind, tuple[bytes, tuple[Ruling, ...]]]
"""Every ruling of a kind, with the digest of the register that it was proven by: it fixes each row and its MAC."""


class AuthorityReading(InvocationReading):
    """What a decision may read of rulings, waits, approvals and changes of authority."""

    _by_changes = "INDEXED BY spans_changes"
    _by_name = "INDEXED BY spans_name"
    _by_story = "INDEXED BY spans_story"

    def __init__(
        self,
        raw: Any,  # noqa: ANN401 - untyped driver
        *,
        ledger_id: LedgerId,
        keys: Authenticator,
        proven: ProvenRulings | None = None,
    ) -> None:
        """Read over `raw`, whose transaction belongs to the caller; `proven` is kept from view to view."""
        super().__init__(raw, ledger_id=ledger_id, keys=keys)
        self._rulings_proven: ProvenRulings = {} if proven is None else proven

    def ruling(self, kind: RulingKind, name: str) -> Ruling | None:
        """Return the latest word about one name, proven to be the latest; that there is none is proven too."""
        wanted = ruling_id(kind, name)
        self._standing().prove(wanted)
        row = self._one(f"{_RULING} WHERE ruling_id = ?", wanted)
        return None if row is None else self._ruling(row)

    def rulings(self, kind: RulingKind) -> Sequence[Ruling]:
        """Return every ruling of one kind, by name; that none is missing is proven over the whole register.

        Where the register's digest is that of an earlier proof, what was proven then is what stands (LED-07).
        """
        register = self._standing()
        before = self._rulings_proven.get(kind)
        if before is not None and hmac.compare_digest(before[0], register.digest):
            return list(before[1])
        register.prove_all()
        found = tuple(
            self._ruling(row) for row in self._all(f"{_RULING} WHERE kind = ? ORDER BY name", str(kind))
        )
        self._rulings_proven[kind] = (register.digest, found)
        return list(found)

    def _ruling(self, row: Row) -> Ruling:
        ruling = ruling_from(row)
        signed = ruling_authority(ruling, row[len(row) - 2])
        if not self._keys.is_authentic("row", signed, row[len(row) - 1]):
            raise LedgerCorrupt("ruling_mac", "A ruling was changed by someone without the keys.")
        self._standing().prove(ruling.ruling_id)
        return ruling

    def approval_wait(self, effect_id: EffectId) -> ApprovalWait | None:
        """Return what an effect waits for, or waited for."""
        row = self._one(f"SELECT {WAIT_COLUMNS}, mac FROM approval_waits WHERE effect_id = ?", effect_id)
        if row is None:
            return None
        wait = wait_from(row)
        if not self._keys.is_authentic("row", wait_authority(wait), row[len(row) - 1]):
            raise LedgerCorrupt(
                "wait_mac", "What an effect waits for was changed by someone without the keys."
            )
        return wait

    def approvals(self, effect_id: EffectId) -> Sequence[Approval]:
        """Return the signed yes of each person, oldest first: exactly as many as the trail tells."""
        found = self._all(
            f"SELECT {APPROVAL_COLUMNS}, mac FROM approvals WHERE effect_id = ? ORDER BY sequence", effect_id
        )
        told = f"SELECT count(*) FROM spans {self._by_story} WHERE story = ? AND name = ?"
        if self._one(told, effect_id, str(TransitionName.EFFECT_APPROVED)) != (len(found),):
            raise LedgerCorrupt(
                "approval_missing", "The approvals of an effect are not those that its trail tells."
            )
        return [self._approval(row) for row in found]

    def _approval(self, row: Row) -> Approval:
        approval = approval_from(row)
        if not self._keys.is_authentic("row", approval_authority(approval), row[len(row) - 1]):
            raise LedgerCorrupt("approval_mac", "An approval was changed by someone without the keys.")
        return approval

    def was_revoked_late(self, effect_id: EffectId) -> bool:
        """Say whether a revocation came after the admission of an effect."""
        return self._in_trail(effect_id, TransitionName.EFFECT_REVOKED_LATE)

    def _in_trail(self, story: str, name: TransitionName) -> bool:
        sql = f"SELECT 1 FROM spans {self._by_story} WHERE story = ? AND name = ? LIMIT 1"
        return self._one(sql, story, str(name)) is not None

    def changes(self, after: int, *, limit: int, name: TransitionName | None = None) -> Sequence[SpanRow]:
        """Return at most `limit` changes of authority with a larger sequence, in order; with `name` those of one kind.

        Raises:
            Broken: `name` is none of `CHANGES_OF_AUTHORITY`.
        """
        if name is not None:
            return self._changes_named(name, "sequence > ? ORDER BY sequence", after, limit)
        sql = f"{_SPAN} {self._by_changes} WHERE {_CHANGES} AND sequence > ? ORDER BY sequence LIMIT ?"
        return [rows.span_from(self._ledger_id, row) for row in self._all(sql, after, limit)]

    def changes_before(self, before: int, *, limit: int, name: TransitionName) -> Sequence[SpanRow]:
        """Return at most `limit` changes of one kind with a smaller sequence, the latest first.

        Raises:
            Broken: `name` is none of `CHANGES_OF_AUTHORITY`.
        """
        return self._changes_named(name, "sequence < ? ORDER BY sequence DESC", before, limit)

    def _changes_named(self, name: TransitionName, place: str, at: int, limit: int) -> Sequence[SpanRow]:
        if name not in CHANGES_OF_AUTHORITY:
            raise Broken("this name is no change of authority")
        sql = f"{_SPAN} {self._by_name} WHERE name = ? AND {place} LIMIT ?"
        return [rows.span_from(self._ledger_id, row) for row in self._all(sql, str(name), at, limit)]

    def epoch_after(self, epoch: int) -> SpanRow | None:
        """Return the first span of the first epoch later than `epoch` (LED-08): a ledger is restored a few times."""
        sql = f"{_SPAN} {self._by_name} WHERE name = ? AND epoch > ? ORDER BY sequence LIMIT 1"
        row = self._one(sql, str(TransitionName.LEDGER_RESTORED), epoch)
        return None if row is None else rows.span_from(self._ledger_id, row)
